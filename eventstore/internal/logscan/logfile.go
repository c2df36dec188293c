//go:build linux && cgo

// Package logscan presents the write-ahead log to DuckDB as tables, in place in its mapped
// files. Files is safe for concurrent use; a View and a Scan belong to one request.
package logscan

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"syscall"

	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/frame"
)

// A logFile is a mapped log file with an index of its frames. The index is kept for the next
// query, which reads only newly appended frames.
type logFile struct {
	number uint64
	mapped []byte
	// outgrown holds older, smaller mappings that frames still point into. They arise
	// where files are not preallocated and grow.
	outgrown [][]byte
	end      int64               // end of the frames that were read
	frames   map[uint32][]*Frame // by table, in log order
	entry    wal.Entry           // of the frame that was read last
	users    int                 // number of queries that read it
}

// A Frame is the rows of one append. The log can have a frame for each row, so a frame keeps no
// decoded columns: the file is read again by each new worker, and the next query waits for it.
type Frame struct {
	Position         wal.Position
	Schema           uint64
	Rows             int
	MinTime, MaxTime int64 // microseconds
	record           wal.Record
}

// Size returns the size of the frame in bytes.
func (f *Frame) Size() int { return len(f.record) }

// HasNegativeZero reports whether the frame has a double of -0.0.
func (f *Frame) HasNegativeZero() bool {
	for v := range f.record.Vectors() {
		if slices.ContainsFunc(v.Floats, func(x float64) bool { return math.Float64bits(x) == 1<<63 }) {
			return true
		}
	}
	return false
}

// Files holds the mapped log files.
type Files struct {
	folder string
	mu     sync.Mutex
	files  map[uint64]*logFile
}

// NewFiles returns the log files of a folder. It maps them when Open first needs them.
func NewFiles(folder string) *Files {
	return &Files{folder: folder, files: map[uint64]*logFile{}}
}

// A View is the view that a query has of the log. Close it after the query.
type View struct {
	from  *Files
	files []*logFile
	ends  []int64
}

// Open maps the files from first on, up to their ends. It closes files that the parent no
// longer lists once no query reads them.
func (l *Files) Open(first uint64, ends []wal.FileEnd) (*View, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &View{from: l}
	for _, end := range ends {
		if end.Number < first || end.End <= wal.FirstFrame {
			continue
		}
		f, err := l.read(end)
		if err != nil {
			v.release()
			return nil, fmt.Errorf("read file %d of the log: %w", end.Number, err)
		}
		f.users++
		v.files, v.ends = append(v.files, f), append(v.ends, end.End)
	}
	l.evict(ends)
	return v, nil
}

// read returns a file with its frames indexed up to end.
func (l *Files) read(end wal.FileEnd) (*logFile, error) {
	f := l.files[end.Number]
	if f == nil {
		mapped, err := durable.Map(wal.Path(l.folder, end.Number))
		if err != nil {
			return nil, err
		}
		f = &logFile{number: end.Number, mapped: mapped, end: wal.FirstFrame, frames: map[uint32][]*Frame{}}
		l.files[end.Number] = f
	}
	if int64(len(f.mapped)) < end.End {
		mapped, err := durable.Map(wal.Path(l.folder, end.Number))
		if err != nil {
			return nil, err
		}
		f.mapped, f.outgrown = mapped, append(f.outgrown, f.mapped)
	}
	return f, f.readTo(end)
}

// readTo indexes the frames up to end.
func (f *logFile) readTo(end wal.FileEnd) error {
	for f.end < end.End {
		if i := slices.IndexFunc(end.Damaged, func(s wal.Span) bool { return s.Begin == f.end }); i >= 0 {
			f.end = end.Damaged[i].End
			continue
		}
		if f.end+frame.PrefixSize > int64(len(f.mapped)) {
			return fmt.Errorf("a frame at %d begins beyond the file", f.end)
		}
		length := int64(binary.LittleEndian.Uint32(f.mapped[f.end:]))
		begin := f.end + frame.PrefixSize
		if length == 0 || begin+length > int64(len(f.mapped)) {
			return fmt.Errorf("the frame at %d has %d bytes", f.end, length)
		}
		record := f.mapped[begin : begin+length]
		if wal.Kind(record[0]) == wal.Rows {
			if err := f.add(record); err != nil {
				return fmt.Errorf("the frame at %d: %w", f.end, err)
			}
		}
		f.end = begin + length
	}
	return nil
}

func (f *logFile) add(record []byte) error {
	e := &f.entry
	if err := e.Decode(record); err != nil {
		return err
	}
	if e.Rows() > 0 {
		f.frames[e.Table] = append(f.frames[e.Table], &Frame{
			Position: wal.Position{File: f.number, Offset: f.end}, Schema: e.Schema, Rows: e.Rows(),
			MinTime: e.MinTime, MaxTime: e.MaxTime, record: record,
		})
	}
	return nil
}

// evict closes files that are neither listed nor read by a query.
func (l *Files) evict(listed []wal.FileEnd) {
	for number, f := range l.files {
		if f.users == 0 && !slices.ContainsFunc(listed, func(e wal.FileEnd) bool { return e.Number == number }) {
			for _, mapped := range append(f.outgrown, f.mapped) {
				_ = syscall.Munmap(mapped)
			}
			delete(l.files, number)
		}
	}
}

// Of returns the frames of a table, in log order.
func (v *View) Of(table uint32) (frames []*Frame) {
	v.from.mu.Lock()
	defer v.from.mu.Unlock()
	for i, f := range v.files {
		for _, one := range f.frames[table] {
			if one.Position.Offset < v.ends[i] {
				frames = append(frames, one)
			}
		}
	}
	return frames
}

// Close releases the files. The caller must not use the frames afterwards.
func (v *View) Close() {
	v.from.mu.Lock()
	defer v.from.mu.Unlock()
	v.release()
}

func (v *View) release() {
	for _, f := range v.files {
		f.users--
	}
	v.files = nil
}
