// Package frame tells whole records of a file from torn and damaged ones. A frame is a
// record behind a prefix:
//
//	bytes  what
//	4      length of the record, at least 1
//	4      CRC-32C of the record
//	…      the record
//
// Numbers are little-endian. Zeros are no frame, so that a file may be longer than its
// frames. A frame with a flipped bit, or without some of its sectors, is found out with a
// probability of 1 - 2⁻³².
//
// All functions are safe for concurrent use.
package frame

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

const (
	// PrefixSize is the number of bytes before the record.
	PrefixSize = 8
	// RecordMax bounds the memory that a damaged length can ask for.
	RecordMax = 1 << 30
)

// ErrDamaged says that a frame is damaged or incomplete.
var ErrDamaged = errors.New("an entry is damaged or incomplete")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of data behind what has the given checksum, which is 0 for
// nothing.
func Checksum(before uint32, data []byte) uint32 { return crc32.Update(before, castagnoli, data) }

// Begin appends room for a prefix. The caller appends the record, and calls Finish.
func Begin(to []byte) []byte { return append(to, make([]byte, PrefixSize)...) }

// Finish writes the prefix of a frame, which is all of f.
func Finish(f []byte) {
	record := f[PrefixSize:]
	PutPrefix(f, len(record), Checksum(0, record))
}

// PutPrefix writes a prefix to the first bytes of f.
func PutPrefix(f []byte, length int, checksum uint32) {
	binary.LittleEndian.PutUint32(f, uint32(length))
	binary.LittleEndian.PutUint32(f[4:], checksum)
}

// ParsePrefix reads the prefix in the first bytes of f. It returns ErrDamaged for a length
// that no record has.
func ParsePrefix(f []byte) (length int, checksum uint32, err error) {
	size := binary.LittleEndian.Uint32(f)
	if size == 0 || size > RecordMax {
		return 0, 0, ErrDamaged
	}
	return int(size), binary.LittleEndian.Uint32(f[4:]), nil
}

// Read reads the next frame and returns its record, in the memory of buffer if that is
// large enough. io.EOF says that nothing follows, ErrDamaged that no whole frame does.
func Read(in io.Reader, buffer []byte) (record []byte, err error) {
	var prefix [PrefixSize]byte
	switch _, err := io.ReadFull(in, prefix[:]); {
	case err == io.ErrUnexpectedEOF:
		return nil, ErrDamaged
	case err != nil:
		return nil, err
	}
	length, checksum, err := ParsePrefix(prefix[:])
	if err != nil {
		return nil, err
	}
	if cap(buffer) < length {
		buffer = make([]byte, length)
	}
	record = buffer[:length]
	if _, err := io.ReadFull(in, record); err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, ErrDamaged
	} else if err != nil {
		return nil, err
	}
	if Checksum(0, record) != checksum {
		return nil, ErrDamaged
	}
	return record, nil
}
