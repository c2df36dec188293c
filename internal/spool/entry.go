package spool

import (
	"encoding/binary"
	"io"
	"time"

	"github.com/perigeedb/perigee/internal/frame"
)

// A storedEntry is an entry as a frame's record holds it:
//
//	bytes  what
//	8      position of the first document
//	8      seconds since 1970 when it arrived
//	8      checksum of the content
//	2      length of the key
//	4      number of documents
//	…      the key, where each document ends (4 bytes each), the documents
//
// All numbers are little-endian.
type storedEntry struct {
	first uint64
	when  time.Time
	entry Entry
}

// fixedSize is the number of bytes before the key.
const fixedSize = 30

// size returns the number of bytes of the frame.
func (f *storedEntry) size() int64 {
	return int64(frame.PrefixSize + fixedSize + len(f.entry.Key) + 4*len(f.entry.Ends) + len(f.entry.Data))
}

func (f *storedEntry) end() uint64 { return f.first + uint64(len(f.entry.Ends)) }

// appendFrame appends the frame of the entry.
func (f *storedEntry) appendFrame(to []byte) []byte {
	begin := len(to)
	to = frame.Begin(to)
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
	frame.Finish(to[begin:])
	return to
}

// readEntry reads the next frame, with buffer as memory. io.EOF says that none follows,
// frame.ErrDamaged that one is damaged or incomplete.
func readEntry(in io.Reader, f *storedEntry, buffer *[]byte) error {
	record, err := frame.Read(in, *buffer)
	if err != nil {
		return err
	}
	*buffer = record
	return f.decode(record)
}

// decode reads the entry from a frame's record. The documents share memory with it, the
// ends reuse that of f.
func (f *storedEntry) decode(record []byte) error {
	if len(record) < fixedSize {
		return frame.ErrDamaged
	}
	f.first = binary.LittleEndian.Uint64(record)
	f.when = time.Unix(int64(binary.LittleEndian.Uint64(record[8:])), 0)
	f.entry.Sum = binary.LittleEndian.Uint64(record[16:])
	key := int(binary.LittleEndian.Uint16(record[24:]))
	count := int(binary.LittleEndian.Uint32(record[26:]))
	rest := record[fixedSize:]
	if key > len(rest) || count == 0 || count > (len(rest)-key)/4 {
		return frame.ErrDamaged
	}
	f.entry.Key, rest = string(rest[:key]), rest[key:]
	f.entry.Data = rest[4*count:]
	f.entry.Ends = f.entry.Ends[:0]
	before := uint32(0)
	for i := range count {
		end := binary.LittleEndian.Uint32(rest[4*i:])
		if end < before || int(end) > len(f.entry.Data) {
			return frame.ErrDamaged
		}
		f.entry.Ends, before = append(f.entry.Ends, end), end
	}
	if int(before) != len(f.entry.Data) {
		return frame.ErrDamaged
	}
	return nil
}
