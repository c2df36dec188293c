// Package file is a source of lines: NDJSON or another format in a file, in the files that
// a pattern matches, or on standard input. It decompresses gzip and zstd.
//
// A position is a line, counted from 0; in CSV it is a record, which may span lines. Empty
// lines count, and are skipped, as is the first line of CSV, which names the fields. The
// partition of a file is named for its device, inode and first line, so the file may
// be renamed and may grow. The source stores nothing: to resume, it counts lines again
// and compares them with the fingerprints of what was delivered, so it notices a file
// that was rewritten in place.
//
// Log rotation renames and compresses the files of a pattern. Their partitions are
// named for their first line alone, so a line keeps its position in all of them. The
// source reads the oldest files first, a few at the same time.
//
// Standard input, and any other path that is not a regular file, has no identity that
// outlives the process: positions start at 0 in each process, in a partition with a
// random name. The source keeps the lines that it read until they are acknowledged.
package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// Config are the settings below "file".
type Config struct {
	Path   string `yaml:"path,required" example:"events.ndjson" help:"file with one event per line, or a pattern such as logs/*.ndjson*; - is standard input"`
	Follow bool   `yaml:"follow" help:"wait for more lines at the end of the file, and for more files"`
	AtOnce int    `yaml:"at_once" default:"4" unit:"files" example:"8" help:"how many files of a pattern are read at the same time"`
	format.Settings
}

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "file",
		Doc:    "Reads the lines of a file (NDJSON, text, CSV) or of standard input, and resumes where it stopped.",
		Config: &Config{},
		New: func(env source.Env, decode func(any) error) (source.Source, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			if isPattern(c.Path) {
				return newPattern(env, c)
			}
			return New(env, c)
		},
	}
}

// A Source is one file. It has one partition.
type Source struct {
	limits source.Limits
	path   string
	follow bool
	format format.Format

	mu     sync.Mutex
	stream *stream // nil for a regular file
}

// New makes a source. It does not open the file.
func New(env source.Env, c Config) (*Source, error) {
	switch {
	case c.Path == "":
		return nil, errors.New("path is empty: name a file, or - for standard input")
	case c.Path == "-" && c.Follow:
		return nil, errors.New("standard input cannot be followed: it ends when its writer closes it")
	case c.Path != "-" && !filepath.IsAbs(c.Path):
		c.Path = filepath.Join(env.Folder, c.Path)
	}
	f, err := format.New(c.Settings)
	if err != nil {
		return nil, err
	}
	return &Source{limits: env.Limits, path: c.Path, follow: c.Follow, format: f}, nil
}

// Traits implements source.Source. Files are local: another host has another file
// under the same name.
func (s *Source) Traits() source.Traits {
	t := source.Traits{Local: isLocal, Unit: s.unit, Bounds: s.bounds, Check: s.check, Offline: true, Format: s.format}
	if s.path != "-" {
		t.Peek = s.peek
	}
	return t
}

// peek reads the file to its present end, also one that is followed.
func (s *Source) peek(ctx context.Context, visit func(*event.Batch) error) error {
	info, err := os.Stat(s.path)
	switch {
	case err != nil:
		return s.openError(err)
	case info.IsDir():
		return s.folderError()
	case !info.Mode().IsRegular():
		return &event.PermanentError{Err: fmt.Errorf("%s is not a regular file: reading it consumes the events", s.path), Hint: "name a file that keeps them"}
	}
	return source.PeekPartitions(ctx, &Source{limits: s.limits, path: s.path, format: s.format}, visit)
}

func isLocal(string) bool { return true }

// unit is the path, whatever file it names.
func (s *Source) unit(string) string {
	if s.path == "-" {
		return "stdin"
	}
	return source.UnitName(s.path)
}

// Partitions implements source.Source.
func (s *Source) Partitions(context.Context) ([]string, error) {
	if st, err := s.openStream(); err != nil {
		return nil, err
	} else if st != nil {
		return []string{st.name}, nil
	}
	f, name, err := s.openFile()
	if err != nil {
		return nil, err
	}
	return []string{name}, f.Close()
}

// Open implements source.Source.
func (s *Source) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	if st, err := s.openStream(); err != nil {
		return nil, err
	} else if st != nil {
		if partition != st.name {
			return nil, source.ErrMoved
		}
		return &streamReader{stream: st, limits: s.limits, done: done}, nil
	}
	f, name, err := s.openFile()
	if err != nil {
		return nil, err
	}
	if name != partition {
		_ = f.Close()
		return nil, source.ErrMoved
	}
	return newReader(ctx, reader{path: s.path, limits: s.limits, format: s.format, name: name, file: f, mayGrow: func() bool { return s.follow }}, done)
}

// openFile opens the regular file and returns the name of its partition.
func (s *Source) openFile() (*os.File, string, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, "", s.openError(err)
	}
	name, err := partitionName(f, s.format)
	if err != nil {
		_ = f.Close()
		return nil, "", fmt.Errorf("identify %s: %w", s.path, err)
	}
	return f, name, nil
}

// openStream returns the stream, or nil when the path is a regular file.
func (s *Source) openStream() (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		return s.stream, nil
	}
	in := os.Stdin
	if s.path != "-" {
		info, err := os.Stat(s.path)
		if err != nil {
			return nil, s.openError(err)
		}
		if info.IsDir() {
			return nil, s.folderError()
		}
		if info.Mode().IsRegular() {
			return nil, nil
		}
		if in, err = os.Open(s.path); err != nil {
			return nil, s.openError(err)
		}
	}
	s.stream = newStream("stream-"+rand.Text(), in, s.format)
	return s.stream, nil
}

// openError adds a hint to an error of opening the file. A missing file is an error
// that passes when the file is followed: it may appear later.
func (s *Source) openError(err error) error {
	err = fmt.Errorf("read events: %w", err)
	switch {
	case errors.Is(err, os.ErrNotExist) && !s.follow:
		return &event.PermanentError{Err: err, Hint: "check the path; a relative path starts at the configuration file's folder"}
	case errors.Is(err, os.ErrPermission):
		return &event.PermanentError{Err: err, Hint: "let the user that runs perigee read it"}
	}
	return err
}

func (s *Source) folderError() error {
	return &event.PermanentError{Err: fmt.Errorf("read events: %s is a folder", s.path), Hint: "name a file in it, or a pattern such as *.ndjson"}
}

// check does not open a stream, which can be read only once.
func (s *Source) check(ctx context.Context) error {
	if s.path == "-" || ctx.Err() != nil {
		return ctx.Err()
	}
	info, err := os.Stat(s.path)
	switch {
	case err != nil:
		return s.openError(err)
	case info.IsDir():
		return s.folderError()
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := os.Open(s.path)
	if err != nil {
		return s.openError(err)
	}
	return f.Close()
}

// bounds counts the lines of the file. A stream, which can be read only once, has no
// bounds.
func (s *Source) bounds(ctx context.Context) (map[string]event.Range, error) {
	info, err := os.Stat(s.path)
	if s.path == "-" || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	f, name, err := s.openFile()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	in, err := openContent(f)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	n, err := countRecords(ctx, in, s.format, !s.follow)
	return map[string]event.Range{name: {Count: n}}, err
}

// Close implements source.Source.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil {
		return nil
	}
	return s.stream.close()
}
