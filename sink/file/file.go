// Package file is a sink of files with one document per line. Files are rotated by
// size and age, and compressed if the configuration says so. It delivers exactly
// once.
//
// The file that is being written has the suffix ".open". Sealing a file removes
// the suffix; a sealed file never changes. A file is sealed when it is full, when
// its first row reaches the age, also while nothing arrives, and when the run ends.
//
// A journal beside the files says how many bytes of the open file count and which
// ranges are in it. Rows reach the disk before the journal does, so the next writer
// cuts off what a killed process left behind the last entry. Each batch is
// compressed by itself: what counts can always be decompressed.
//
// Writers take turns by a lock on a file, also across processes. A Sink and its
// writers are safe for concurrent use.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// Config are the settings below "file".
type Config struct {
	Folder string        `yaml:"folder,required" example:"archive" help:"folder of the files; created if it does not exist"`
	Name   string        `yaml:"name" default:"(the pipeline's name, followed by the sink's if it has several)" example:"emails" help:"prefix of the files' names"`
	Pack   string        `yaml:"pack" default:"none" choices:"none,gzip,zstd" example:"zstd" help:"compression: none, gzip or zstd"`
	Bytes  int           `yaml:"bytes,size" default:"128MiB" example:"1GiB" help:"rotate files of this size, after compression"`
	Age    time.Duration `yaml:"age" default:"1h" example:"15m" help:"rotate files after this age, counted from the first row"`
	Access string        `yaml:"access" default:"\"0640\"" example:"\"0600\"" help:"permissions of the files, in octal; the folder gets those plus the right to enter"`
	Order  string        `yaml:"order" default:"source" choices:"source,any" help:"order of the lines of a partition: source, or any, which lets lanes write without waiting for each other"`
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "file",
		Doc:       "Writes documents to files, one per line, rotated and compressed.",
		Guarantee: sink.ExactlyOnce,
		Place:     &sink.Place{Keys: []string{"folder"}, Identity: identity},
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

// identity returns the path of a folder, which may not exist, without symbolic links.
func identity(env sink.Env, folder string) (string, error) {
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(env.Folder, folder)
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return folder, err
	}
	for missing, above := "", folder; ; above = filepath.Dir(above) {
		real, err := filepath.EvalSymlinks(above)
		switch {
		case err == nil:
			return filepath.Join(real, missing), nil
		case !errors.Is(err, os.ErrNotExist) || above == filepath.Dir(above):
			return folder, err
		}
		missing = filepath.Join(filepath.Base(above), missing)
	}
}

// A Sink is the files of one pipeline in a folder.
type Sink struct {
	files       fileSet
	compression compression
	order       sink.Order
	log         *slog.Logger

	mu      sync.Mutex
	journal *journal       // nil until the first use
	sealing sync.WaitGroup // the goroutine that seals files by age
	stop    chan struct{}  // ends it; nil before the first Open
}

// New makes a sink. It touches no file.
func New(env sink.Env, c Config) (*Sink, error) {
	if c.Folder == "" {
		return nil, errors.New("folder is empty")
	}
	if !filepath.IsAbs(c.Folder) {
		c.Folder = filepath.Join(env.Folder, c.Folder)
	}
	if err := durable.CheckDir(c.Folder); err != nil {
		return nil, err
	}
	if c.Name == "" {
		c.Name = strings.ReplaceAll(env.Pipeline, "/", "-") // PIPELINE/SINK if the pipeline has several
	}
	if c.Bytes == 0 {
		c.Bytes = 128 << 20
	}
	if c.Age == 0 {
		c.Age = time.Hour
	}
	access, err := parseAccess(c.Access)
	if err != nil {
		return nil, err
	}
	compression, err := newCompression(c.Pack)
	if err != nil {
		return nil, err
	}
	order, err := sink.ParseOrder(c.Order)
	switch {
	case err != nil:
		return nil, err
	case !validName.MatchString(c.Name):
		return nil, fmt.Errorf("invalid name %q: use up to 100 letters, digits, _ . and -", c.Name)
	case c.Bytes < 0 || c.Age < 0:
		return nil, errors.New("bytes and age must not be negative")
	}
	log := env.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Sink{
		files: fileSet{
			folder: c.Folder, name: c.Name, pipeline: env.Pipeline, suffix: compression.suffix,
			bytesMax: int64(c.Bytes), ageMax: c.Age, access: access,
		},
		compression: compression, order: order, log: log,
	}, nil
}

// parseAccess parses permissions. The engine itself must be able to read and write.
func parseAccess(text string) (os.FileMode, error) {
	bits, err := strconv.ParseUint(cmp.Or(text, "0640"), 8, 32)
	if err != nil || bits > 0o777 || bits&0o600 != 0o600 || bits&0o111 != 0 {
		return 0, fmt.Errorf(`invalid access %q: write it in octal, from "0600" to "0666"`, text)
	}
	return os.FileMode(bits), nil
}

func (s *Sink) openJournal() (*journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		j, err := openJournal(s.files, s.compression)
		if err != nil {
			return nil, err
		}
		s.journal = j
	}
	return s.journal, nil
}

// Open implements sink.Sink.
func (s *Sink) Open(_ context.Context, partition string) (sink.Writer, event.Ranges, error) {
	j, err := s.openJournal()
	if err != nil {
		return nil, nil, err
	}
	p := &partitionStore{journal: j, partition: partition}
	entries, err := p.takeOver()
	if err != nil {
		return nil, nil, err
	}
	s.sealByAge(j)
	w, done := positions.NewWriter(p, entries, s.log)
	return w, done, nil
}

// sealByAge starts the goroutine that seals the open file when it is old enough and
// nothing is written.
func (s *Sink) sealByAge(j *journal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return
	}
	stop := make(chan struct{})
	s.stop = stop
	s.sealing.Go(func() {
		for {
			next, err := j.sealIfAged()
			if err != nil {
				s.log.Warn("sealing a file by its age failed, will retry", "folder", s.files.folder, "error", err)
				next = min(s.files.ageMax, time.Minute)
			}
			select {
			case <-time.After(max(next, 10*time.Millisecond)):
			case <-stop:
				return
			}
		}
	})
}

func (s *Sink) stopSealing() {
	if s.stop != nil {
		close(s.stop)
		s.sealing.Wait()
	}
}

// Traits implements sink.Sink.
func (s *Sink) Traits() sink.Traits {
	return sink.Traits{Order: s.order, Positions: s, Check: s.check}
}

// check finds out whether the folder exists, or can be made in one that does.
func (s *Sink) check(ctx context.Context) error {
	for path := s.files.folder; ctx.Err() == nil; path = filepath.Dir(path) {
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
	j, err := s.openJournal()
	if err != nil {
		return nil, err
	}
	all := make(map[string]event.Ranges)
	err = j.withLock(func() error {
		for partition, p := range j.state.Partitions {
			for _, e := range p.Entries {
				done := all[partition]
				done.Add(e.toRange())
				all[partition] = done
			}
		}
		return nil
	})
	return all, err
}

// SetPosition implements sink.PositionStore.
func (s *Sink) SetPosition(_ context.Context, partition string, next uint64) error {
	j, err := s.openJournal()
	if err != nil {
		return err
	}
	return j.withLock(func() error { return j.append(record{Partition: partition, Set: &next}) })
}

// Close implements sink.Sink. It seals the open file if this Sink could have
// written to it.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return nil
	}
	s.stopSealing()
	var err error
	if s.stop != nil {
		err = s.journal.sealAtEnd()
	}
	return errors.Join(err, s.journal.close())
}

// A partitionStore is what the journal holds of one partition, for its owner.
type partitionStore struct {
	journal   *journal
	partition string
	epoch     uint64
}

func (p *partitionStore) takeOver() (entries []positions.Entry, err error) {
	err = p.journal.withLock(func() error {
		if err := p.journal.checkPipeline(); err != nil {
			return err
		}
		p.epoch = p.journal.state.partition(p.partition).Epoch + 1
		if err := p.journal.append(record{Partition: p.partition, Own: p.epoch, Pipeline: p.journal.files.pipeline}); err != nil {
			return err
		}
		entries = p.journal.state.partition(p.partition).toEntries()
		return nil
	})
	return entries, err
}

// whileOwner runs f unless another writer has taken over the partition.
func (p *partitionStore) whileOwner(f func() error) error {
	return p.journal.withLock(func() error {
		if p.journal.state.partition(p.partition).Epoch != p.epoch {
			return sink.ErrFenced
		}
		return f()
	})
}

// Renew implements positions.Store.
func (p *partitionStore) Renew(context.Context) (entries []positions.Entry, err error) {
	err = p.whileOwner(func() error {
		entries = p.journal.state.partition(p.partition).toEntries()
		return nil
	})
	return entries, err
}

// IsCommitted implements positions.Store.
func (p *partitionStore) IsCommitted(_ context.Context, r event.Range) (committed bool, err error) {
	err = p.whileOwner(func() error {
		committed = slices.ContainsFunc(p.journal.state.partition(p.partition).Entries, func(e entry) bool {
			return e.First <= r.First && r.End() <= e.end()
		})
		return nil
	})
	return committed, err
}

// Commit implements positions.Store.
func (p *partitionStore) Commit(_ context.Context, rows *positions.Rows, ranges []event.Range) error {
	return p.whileOwner(func() error {
		size, err := p.journal.appendRows(rows)
		if err != nil {
			return err
		}
		return p.journal.append(record{Partition: p.partition, Ranges: toDisk(ranges...), Size: &size, When: time.Now().Unix()})
	})
}

// Compact implements positions.Store.
func (p *partitionStore) Compact(_ context.Context, r event.Range) error {
	return p.whileOwner(func() error {
		return p.journal.append(record{Partition: p.partition, Ranges: toDisk(r), When: time.Now().Unix()})
	})
}

// OutcomeUnknown implements positions.Store: any failure may have come after the
// journal reached the disk.
func (p *partitionStore) OutcomeUnknown(error) bool { return true }
