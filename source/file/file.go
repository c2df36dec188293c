// Package file is a source of lines: NDJSON in a file, in the files that a pattern
// matches, or on standard input. What is packed with gzip or zstd is unpacked.
//
// A position is a line, counted from 0, empty lines included; those are skipped.
// A file is known by device, inode and its first line, so it may be renamed and
// may grow. Nothing is stored beside it: to resume, lines are counted again and
// held against the fingerprints of what was delivered, so that a file that was
// written anew in place is noticed.
//
// Files of a pattern, which log rotation renames and packs, are known by their
// first line alone, so that a line is the same one wherever it is found. They are
// read oldest first, a few at a time.
//
// Standard input, and any other path that is not a regular file, has no identity
// that outlives the process: positions start anew with each, under a name of
// random bits. Lines that were read and not acknowledged are kept until they are.
package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// Config are the settings below "file".
type Config struct {
	Path   string `yaml:"path,required" help:"file with one JSON object per line, or a pattern such as logs/*.ndjson*; - is standard input"`
	Follow bool   `yaml:"follow" help:"wait for further lines at the end of the file, and for further files (default false)"`
	AtOnce int    `yaml:"at_once" help:"files of a pattern that are read at the same time (default 4)"`
}

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "file",
		Doc:    "Reads the lines of a file (NDJSON) or of standard input, and resumes where it was.",
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

	mu     sync.Mutex
	stream *stream // what is read once only; nil for a regular file
}

// New makes a source. It does not open the file.
func New(env source.Env, c Config) (*Source, error) {
	switch {
	case c.Path == "":
		return nil, errors.New("path is empty; name a file, or - for standard input")
	case c.Path == "-" && c.Follow:
		return nil, errors.New("standard input ends when its writer does; leave follow out")
	case c.Path != "-" && !filepath.IsAbs(c.Path):
		c.Path = filepath.Join(env.Folder, c.Path)
	}
	return &Source{limits: env.Limits, path: c.Path, follow: c.Follow}, nil
}

// Partitions implements source.Source.
func (s *Source) Partitions(context.Context) ([]string, error) {
	if st, err := s.streamed(); err != nil {
		return nil, err
	} else if st != nil {
		return []string{st.name}, nil
	}
	f, name, err := s.open()
	if err != nil {
		return nil, err
	}
	return []string{name}, f.Close()
}

// Traits implements source.Source. Files are local: another host has another file
// under the same name.
func (s *Source) Traits() source.Traits {
	return source.Traits{Local: allLocal, Bounds: s.bounds, Check: s.check}
}

func allLocal(string) bool { return true }

// Open implements source.Source.
func (s *Source) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	if st, err := s.streamed(); err != nil {
		return nil, err
	} else if st != nil {
		if partition != st.name {
			return nil, source.ErrMoved
		}
		return &streamReader{stream: st, limits: s.limits, done: done}, nil
	}
	f, name, err := s.open()
	if err != nil {
		return nil, err
	}
	if name != partition {
		_ = f.Close()
		return nil, source.ErrMoved
	}
	return newReader(ctx, reader{path: s.path, limits: s.limits, name: name, file: f, wait: func() bool { return s.follow }}, done)
}

// open opens the regular file and tells its name.
func (s *Source) open() (*os.File, string, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, "", s.missing(err)
	}
	name, err := identity(f)
	if err != nil {
		_ = f.Close()
		return nil, "", fmt.Errorf("identify %s: %w", s.path, err)
	}
	return f, name, nil
}

// missing makes the errors of opening into ones that say what to do. A file that
// is followed may come into being later.
func (s *Source) missing(err error) error {
	err = fmt.Errorf("read events: %w", err)
	switch {
	case errors.Is(err, os.ErrNotExist) && !s.follow:
		return &event.PermanentError{Err: err, Hint: "check the path; one that is not absolute starts at the configuration's folder"}
	case errors.Is(err, os.ErrPermission):
		return &event.PermanentError{Err: err, Hint: "let the user that runs perigee read it"}
	}
	return err
}

// check does not open a stream, which can be read only once.
func (s *Source) check(ctx context.Context) error {
	if s.path == "-" || ctx.Err() != nil {
		return ctx.Err()
	}
	info, err := os.Stat(s.path)
	switch {
	case err != nil:
		return s.missing(err)
	case info.IsDir():
		return s.folder()
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := os.Open(s.path)
	if err != nil {
		return s.missing(err)
	}
	return f.Close()
}

func (s *Source) folder() error {
	return &event.PermanentError{Err: fmt.Errorf("read events: %s is a folder", s.path), Hint: "name a file in it, or a pattern such as *.ndjson"}
}

// streamed returns the stream, if the path is one.
func (s *Source) streamed() (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		return s.stream, nil
	}
	in := os.Stdin
	if s.path != "-" {
		info, err := os.Stat(s.path)
		if err != nil {
			return nil, s.missing(err)
		}
		if info.IsDir() {
			return nil, s.folder()
		}
		if info.Mode().IsRegular() {
			return nil, nil
		}
		if in, err = os.Open(s.path); err != nil {
			return nil, s.missing(err)
		}
	}
	s.stream = newStream("stream-"+rand.Text(), in)
	return s.stream, nil
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
