package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// ErrDamagedValue says that a value is not what was stored there, as after a power cut on a disk
// that says it has synced what it has not.
var ErrDamagedValue = errors.New("damaged")

// The checksum of a value is a trailer: a magic, and a character for each two bits of a CRC-32C.
// All are white space, which a decoder of JSON skips; one of gob ends before it. So versions from
// before there were checksums read values that have one, and a value without a trailer is theirs.
const (
	checksumMagic  = "\n\t\r \n\t\r "
	checksumDigits = "\t\n\r "
	trailerSize    = len(checksumMagic) + 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendChecksum appends the checksum of a value and of the path at which it is stored: the names
// of its buckets, if more than one has such values, and its key.
func AppendChecksum(value []byte, path ...[]byte) []byte {
	sum := uint32(0)
	for _, name := range path {
		sum = crc32.Update(sum, castagnoli, binary.BigEndian.AppendUint32(nil, uint32(len(name))))
		sum = crc32.Update(sum, castagnoli, name)
	}
	sum = crc32.Update(sum, castagnoli, value)
	value = append(value, checksumMagic...)
	for shift := 30; shift >= 0; shift -= 2 {
		value = append(value, checksumDigits[sum>>shift&3])
	}
	return value
}

// VerifyChecksum returns what AppendChecksum was given, or ErrDamagedValue. It returns a value
// without a checksum as it is; its decoder must refuse bytes behind the content, which may be a
// damaged checksum.
func VerifyChecksum(value []byte, path ...[]byte) (content []byte, err error) {
	end := len(value) - trailerSize
	if end < 0 || !bytes.HasPrefix(value[end:], []byte(checksumMagic)) {
		return value, nil
	}
	if !bytes.Equal(AppendChecksum(bytes.Clone(value[:end]), path...), value) {
		return nil, ErrDamagedValue
	}
	return value[:end:end], nil
}
