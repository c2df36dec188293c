package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"time"
)

// frameBytesMax bounds the memory that a damaged length can ask for.
const frameBytesMax = 1 << 30

// A frame is an entry on disk:
//
//	bytes  what
//	4      length of all that follows the next field
//	4      CRC-32C of it
//	8      position of the first document
//	8      seconds since 1970 when it arrived
//	8      checksum of the content
//	2      length of the key
//	4      number of documents
//	…      the key, where each document ends (4 bytes each), the documents
//
// All numbers are little-endian.
type frame struct {
	first uint64
	when  time.Time
	entry Entry
}

const (
	prefixSize = 8
	fixedSize  = 30
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errFrame   = errors.New("an entry is damaged or incomplete")
)

func (f *frame) size() int64 {
	return int64(prefixSize + fixedSize + len(f.entry.Key) + 4*len(f.entry.Ends) + len(f.entry.Data))
}

func (f *frame) end() uint64 { return f.first + uint64(len(f.entry.Ends)) }

func (f *frame) append(to []byte) []byte {
	begin := len(to)
	to = append(to, make([]byte, prefixSize)...)
	to = binary.LittleEndian.AppendUint64(to, f.first)
	to = binary.LittleEndian.AppendUint64(to, uint64(f.when.Unix()))
	to = binary.LittleEndian.AppendUint64(to, f.entry.Sum)
	to = binary.LittleEndian.AppendUint16(to, uint16(len(f.entry.Key)))
	to = binary.LittleEndian.AppendUint32(to, uint32(len(f.entry.Ends)))
	to = append(to, f.entry.Key...)
	for _, end := range f.entry.Ends {
		to = binary.LittleEndian.AppendUint32(to, end)
	}
	to = append(to, f.entry.Data...)
	body := to[begin+prefixSize:]
	binary.LittleEndian.PutUint32(to[begin:], uint32(len(body)))
	binary.LittleEndian.PutUint32(to[begin+4:], crc32.Checksum(body, castagnoli))
	return to
}

// readFrame reads the next frame. io.EOF says that none follows, errFrame that one
// is damaged or incomplete.
func readFrame(in io.Reader, f *frame, body *[]byte) error {
	var prefix [prefixSize]byte
	switch _, err := io.ReadFull(in, prefix[:]); {
	case err == io.EOF:
		return io.EOF
	case err == io.ErrUnexpectedEOF:
		return errFrame
	case err != nil:
		return err
	}
	size := binary.LittleEndian.Uint32(prefix[:])
	if size < fixedSize || size > frameBytesMax {
		return errFrame
	}
	if cap(*body) < int(size) {
		*body = make([]byte, size)
	}
	*body = (*body)[:size]
	if _, err := io.ReadFull(in, *body); err == io.EOF || err == io.ErrUnexpectedEOF {
		return errFrame
	} else if err != nil {
		return err
	}
	return f.decode(*body, binary.LittleEndian.Uint32(prefix[4:]))
}

// decode reads the frame from body. The documents share memory with body, the
// ends reuse that of f.
func (f *frame) decode(body []byte, checksum uint32) error {
	if len(body) < fixedSize || crc32.Checksum(body, castagnoli) != checksum {
		return errFrame
	}
	f.first = binary.LittleEndian.Uint64(body)
	f.when = time.Unix(int64(binary.LittleEndian.Uint64(body[8:])), 0)
	f.entry.Sum = binary.LittleEndian.Uint64(body[16:])
	key := int(binary.LittleEndian.Uint16(body[24:]))
	count := int(binary.LittleEndian.Uint32(body[26:]))
	rest := body[fixedSize:]
	if key > len(rest) || count == 0 || count > (len(rest)-key)/4 {
		return errFrame
	}
	f.entry.Key, rest = string(rest[:key]), rest[key:]
	f.entry.Data = rest[4*count:]
	f.entry.Ends = f.entry.Ends[:0]
	before := uint32(0)
	for i := range count {
		end := binary.LittleEndian.Uint32(rest[4*i:])
		if end < before || int(end) > len(f.entry.Data) {
			return errFrame
		}
		f.entry.Ends, before = append(f.entry.Ends, end), end
	}
	if int(before) != len(f.entry.Data) {
		return errFrame
	}
	return nil
}
