package wal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
)

// The folder of a log:
//
//	00000000000000000007.log a log file
//	next                     a file that is being prepared
//	spare                    a removed file, to be reused as the next
//
// A file begins with a header:
//
//	  0 magic (8 bytes)
//	  8 version of the format
//	 12 zeros
//	 16 number of the file (8)
//	 24 key of the file (8), random: a frame written for another place is never valid
//	 32 creation time, in microseconds since 1970 (8)
//	 40 the store's id (32), padded with zeros
//	 72 zeros
//	124 CRC-32C of the preceding bytes
//
// Frames follow, each at a multiple of 8. After the last frame the file has zeros, or frames
// from before it was reused. The header is durable before the file gets its name.
const (
	suffix    = ".log"
	nextName  = "next"
	spareName = "spare"

	magic    = "perigwal"
	storeMax = 32

	headerSize = FirstFrame
)

// Format is the format version of log files.
const Format = 1

// FirstFrame is the offset of the first frame in a file.
const FirstFrame = 128

type header struct {
	number, key uint64
	created     time.Time
	store       string
}

func (h *header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], Format)
	binary.LittleEndian.PutUint64(b[16:], h.number)
	binary.LittleEndian.PutUint64(b[24:], h.key)
	binary.LittleEndian.PutUint64(b[32:], uint64(h.created.UnixMicro()))
	copy(b[40:40+storeMax], h.store)
	binary.LittleEndian.PutUint32(b[124:], frame.Checksum(0, b[:124]))
	return b
}

var errFormat = errors.New("another version of perigee has written it")

// parseHeader parses the header of the file with the given number. The error describes the
// fault, to follow the file's name.
func parseHeader(b []byte, number uint64) (header, error) {
	switch {
	case string(b[:len(magic)]) != magic || frame.Checksum(0, b[:124]) != binary.LittleEndian.Uint32(b[124:]):
		return header{}, errors.New("its header is damaged")
	case binary.LittleEndian.Uint32(b[8:]) != Format:
		return header{}, fmt.Errorf("%w: it has format %d, and this version reads format %d", errFormat, binary.LittleEndian.Uint32(b[8:]), Format)
	}
	h := header{
		number:  binary.LittleEndian.Uint64(b[16:]),
		key:     binary.LittleEndian.Uint64(b[24:]),
		created: time.UnixMicro(int64(binary.LittleEndian.Uint64(b[32:]))),
		store:   strings.TrimRight(string(b[40:40+storeMax]), "\x00"),
	}
	if h.number != number {
		return header{}, fmt.Errorf("it is file number %d under another name", h.number)
	}
	return h, nil
}

// Path returns the path of the file with the given number.
func Path(folder string, number uint64) string {
	return filepath.Join(folder, fmt.Sprintf("%020d%s", number, suffix))
}

// listFiles returns the numbers of the files in a folder, in ascending order.
func listFiles(folder string) (numbers []uint64, err error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		digits, found := strings.CutSuffix(e.Name(), suffix)
		number, parseErr := strconv.ParseUint(digits, 10, 64)
		if found && parseErr == nil && e.Name() == filepath.Base(Path("", number)) {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// A file is an open log file for appending. The committing goroutine owns it.
type file struct {
	*os.File
	number, key uint64
	end         int64 // everything before it is durable
	reused      bool  // it may hold frames from before it was reused
	buffers     [][]byte
}

// hasEntries reports whether the file has durable frames.
func (f *file) hasEntries() bool { return f.end > headerSize }

// name returns the file's final name, which a prepared file does not have yet.
func (f *file) name() string { return filepath.Base(Path("", f.number)) }

// prepareFile creates an empty file with the given number and space for a full file, under a
// temporary name. It prefers the spare file to a new one: syncing blocks that were written
// before does not wait for the file system's journal, and so not for the writes of others.
func (l *Log) prepareFile(number uint64) (*file, error) {
	path := filepath.Join(l.folder, nextName)
	reused, err := l.takeSpare(path)
	if err != nil {
		return nil, err
	}
	f, err := durable.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	h := header{number: number, created: time.Now(), store: l.options.Store}
	var key [8]byte
	_, _ = rand.Read(key[:]) // never fails
	h.key = binary.LittleEndian.Uint64(key[:])
	if err = allocate(f, l.options.FileSize); err == nil {
		_, err = f.WriteAt(h.encode(), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return &file{File: f, number: number, key: h.key, end: headerSize, reused: reused}, nil
}

// takeSpare renames the spare file to path, replacing what is there, and reports whether
// there was a spare. Without a spare it removes path.
func (l *Log) takeSpare(path string) (taken bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hasSpare {
		return false, removeIfThere(path)
	}
	l.hasSpare = false
	return true, os.Rename(filepath.Join(l.folder, spareName), path)
}

// discardFile removes a log file, or keeps it as the spare if it has the usual size and
// nothing writes to it any more. The caller holds mu.
func (l *Log) discardFile(number uint64) error {
	path := Path(l.folder, number)
	wanted := !l.hasSpare && !l.isClosed && !l.unfinished[number]
	if info, err := os.Stat(path); wanted && err == nil && info.Size() >= l.options.FileSize && info.Size() < 2*l.options.FileSize {
		if err := os.Rename(path, filepath.Join(l.folder, spareName)); err != nil {
			return err
		}
		l.hasSpare = true
		return nil
	}
	return removeIfThere(path)
}

// removeUnused removes files that a closed log does not need.
func removeUnused(folder string) error {
	return errors.Join(removeIfThere(filepath.Join(folder, nextName)), removeIfThere(filepath.Join(folder, spareName)))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// nameFile durably gives a prepared file its name.
func nameFile(folder string, f *file) error {
	if err := os.Rename(filepath.Join(folder, nextName), Path(folder, f.number)); err != nil {
		return err
	}
	return durable.SyncDir(folder)
}

// A mark is a frame of the log itself.
//
//	 0 kind (1 byte), zeros to 8
//	 8 of a beginMark: end of the previous file (8)
//	16 of a beginMark: time of the first commit, in microseconds since 1970 (8)
type mark struct {
	kind        Kind
	previousEnd int64
	at          time.Time
}

const markSize = 24

func (m *mark) appendFrame(to []byte) []byte {
	begin := len(to)
	to = frame.Begin(to)
	to = append(to, byte(m.kind), 0, 0, 0, 0, 0, 0, 0)
	to = binary.LittleEndian.AppendUint64(to, uint64(m.previousEnd))
	to = binary.LittleEndian.AppendUint64(to, uint64(m.at.UnixMicro()))
	return finishRecord(to, begin)
}

// parseMark parses a mark of the given kind.
func parseMark(record []byte, kind Kind) (mark, bool) {
	if len(record) != markSize+trailerSize || Kind(record[0]) != kind {
		return mark{}, false
	}
	return mark{
		kind:        kind,
		previousEnd: int64(binary.LittleEndian.Uint64(record[8:])),
		at:          time.UnixMicro(int64(binary.LittleEndian.Uint64(record[16:]))),
	}, true
}
