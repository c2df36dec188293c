// Package file is a sink of files with one document per line, rotated by size
// and age, packed if wished. It gives exactly once.
//
// A file that is being written ends in ".open"; when it is full it loses the
// ending and never changes again. Beside the files a journal says how much of the
// open one counts and which ranges are in it. Rows reach the disk before the
// journal does, so what a process that was killed leaves behind the last entry is
// cut off by the next writer. Each batch is packed by itself: what counts can
// always be unpacked.
//
// Writers, of other processes too, take turns by a lock on a file. A Sink and
// its writers are safe for concurrent use.
package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// Config are the settings below "file".
type Config struct {
	Folder string        `yaml:"folder,required" help:"where the files are; made when absent"`
	Name   string        `yaml:"name" help:"what files' names begin with (default the pipeline's name, and the sink's where there are several)"`
	Pack   string        `yaml:"pack" help:"none, gzip or zstd (default none)"`
	Bytes  int           `yaml:"bytes,size" help:"after which a file is full, packed (default 128MiB)"`
	Age    time.Duration `yaml:"age" help:"after which a file is full (default 1h)"`
}

var names = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "file",
		Doc:       "Writes documents into files, one per line, rotated and packed.",
		Guarantee: sink.ExactlyOnce,
		Config:    &Config{},
		New: func(env sink.Env, decode func(any) error) (sink.Sink, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			return New(env, c)
		},
	}
}

// A Sink is the files of one pipeline in a folder.
type Sink struct {
	folder string
	log    *slog.Logger

	mu      sync.Mutex
	journal *journal // made by the first Open
	make    func() (*journal, error)
}

// New makes a sink. It touches no file.
func New(env sink.Env, c Config) (*Sink, error) {
	if c.Folder == "" {
		return nil, errors.New("folder is empty")
	}
	if !filepath.IsAbs(c.Folder) {
		c.Folder = filepath.Join(env.Folder, c.Folder)
	}
	if c.Name == "" {
		c.Name = strings.ReplaceAll(env.Pipeline, "/", "-") // PIPELINE/SINK, where there are several
	}
	if c.Bytes == 0 {
		c.Bytes = 128 << 20
	}
	if c.Age == 0 {
		c.Age = time.Hour
	}
	pack, err := packing(c.Pack)
	switch {
	case err != nil:
		return nil, err
	case !names.MatchString(c.Name):
		return nil, fmt.Errorf("files cannot be called %q: letters, digits, _ . - and at most 100 of them", c.Name)
	case c.Bytes < 0 || c.Age < 0:
		return nil, errors.New("bytes and age must not be negative")
	}
	log := env.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Sink{folder: c.Folder, log: log, make: func() (*journal, error) {
		return openJournal(folder{path: c.Folder, name: c.Name, pipeline: env.Pipeline, ending: pack.ending, bytes: int64(c.Bytes), age: c.Age}, pack)
	}}, nil
}

func (s *Sink) open() (*journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		made, err := s.make()
		if err != nil {
			return nil, err
		}
		s.journal = made
	}
	return s.journal, nil
}

// Open implements sink.Sink.
func (s *Sink) Open(_ context.Context, partition string) (sink.Writer, event.Ranges, error) {
	j, err := s.open()
	if err != nil {
		return nil, nil, err
	}
	b := &book{journal: j, partition: partition}
	entries, err := b.own()
	if err != nil {
		return nil, nil, err
	}
	w, done := positions.NewWriter(b, entries, s.log)
	return w, done, nil
}

// Traits implements sink.Sink.
func (s *Sink) Traits() sink.Traits {
	return sink.Traits{Order: sink.AnyOrder, Positions: s, Check: s.check}
}

// check finds out whether the folder exists, or can be made in one that does.
func (s *Sink) check(ctx context.Context) error {
	for path := s.folder; ctx.Err() == nil; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, os.ErrNotExist) && path != filepath.Dir(path):
			continue
		case err == nil && !info.IsDir():
			err = fmt.Errorf("%s is not a folder", path)
		}
		if err != nil {
			return &event.PermanentError{Err: err, Hint: "check folder below the file sink"}
		}
		return nil
	}
	return ctx.Err()
}

// Positions implements sink.PositionStore.
func (s *Sink) Positions(context.Context) (map[string]event.Ranges, error) {
	j, err := s.open()
	if err != nil {
		return nil, err
	}
	all := make(map[string]event.Ranges)
	err = j.locked(func() error {
		for partition, p := range j.state.Partitions {
			for _, e := range p.Entries {
				done := all[partition]
				done.Add(e.whole())
				all[partition] = done
			}
		}
		return nil
	})
	return all, err
}

// SetPosition implements sink.PositionStore.
func (s *Sink) SetPosition(_ context.Context, partition string, next uint64) error {
	j, err := s.open()
	if err != nil {
		return err
	}
	return j.locked(func() error { return j.note(record{Partition: partition, Set: &next}) })
}

// Close implements sink.Sink. The open file stays open, for the next process.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return nil
	}
	return s.journal.close()
}

// A book is what the journal keeps of one partition for its owner.
type book struct {
	journal   *journal
	partition string
	epoch     uint64
}

// own takes the partition over.
func (b *book) own() (entries []positions.Entry, err error) {
	err = b.journal.locked(func() error {
		if err := b.journal.ours(); err != nil {
			return err
		}
		b.epoch = b.journal.state.partition(b.partition).Epoch + 1
		if err := b.journal.note(record{Partition: b.partition, Own: b.epoch, Pipeline: b.journal.folder.pipeline}); err != nil {
			return err
		}
		entries = b.journal.state.partition(b.partition).ledger()
		return nil
	})
	return entries, err
}

// owned runs f while the partition is still this owner's.
func (b *book) owned(f func() error) error {
	return b.journal.locked(func() error {
		if b.journal.state.partition(b.partition).Epoch != b.epoch {
			return sink.ErrFenced
		}
		return f()
	})
}

// Renew implements positions.Store.
func (b *book) Renew(context.Context) (entries []positions.Entry, err error) {
	err = b.owned(func() error {
		entries = b.journal.state.partition(b.partition).ledger()
		return nil
	})
	return entries, err
}

// IsCommitted implements positions.Store.
func (b *book) IsCommitted(_ context.Context, r event.Range) (there bool, err error) {
	err = b.owned(func() error {
		there = slices.ContainsFunc(b.journal.state.partition(b.partition).ledger(), func(e positions.Entry) bool {
			return e.Range.First <= r.First && r.End() <= e.Range.End()
		})
		return nil
	})
	return there, err
}

// Commit implements positions.Store.
func (b *book) Commit(_ context.Context, rows *positions.Rows, ranges []event.Range) error {
	return b.owned(func() error {
		size, err := b.journal.store(rows)
		if err != nil {
			return err
		}
		return b.journal.note(record{Partition: b.partition, Ranges: toDisk(ranges...), Size: &size, When: time.Now().Unix()})
	})
}

// Compact implements positions.Store.
func (b *book) Compact(_ context.Context, r event.Range) error {
	return b.owned(func() error {
		return b.journal.note(record{Partition: b.partition, Fold: true, Ranges: toDisk(r), When: time.Now().Unix()})
	})
}

// OutcomeUnknown implements positions.Store: any failure may have come after the journal
// reached the disk.
func (b *book) OutcomeUnknown(error) bool { return true }
