package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// settled is how long a file that is not the newest must have been left alone
// before its end is the end: who wrote it may still have it open after a rotation.
const settled = 5 * time.Second

func isPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

// A pattern is a source of all files that match. Each has a partition.
type pattern struct {
	path   string
	follow bool
	atOnce int
	limits source.Limits

	mu       sync.Mutex
	files    map[string]found // by partition, as last seen
	finished map[string]int64 // the size at which a partition was read to its end
}

// found is a file that matches.
type found struct {
	path   string
	size   int64
	time   time.Time
	packed bool
	newest bool
}

func newPattern(env source.Env, c Config) (*pattern, error) {
	if !filepath.IsAbs(c.Path) {
		c.Path = filepath.Join(env.Folder, c.Path)
	}
	if _, err := filepath.Match(c.Path, ""); err != nil {
		return nil, fmt.Errorf("path %q: %w", c.Path, err)
	}
	if c.AtOnce < 0 {
		return nil, errors.New("at_once must not be negative")
	}
	return &pattern{
		path: c.Path, follow: c.Follow, atOnce: cmp.Or(c.AtOnce, 4), limits: env.Limits, finished: make(map[string]int64),
	}, nil
}

// Traits implements source.Source.
func (p *pattern) Traits() source.Traits {
	return source.Traits{Growing: p.follow, Local: allLocal, Check: p.check}
}

// Close implements source.Source.
func (p *pattern) Close() error { return nil }

func (p *pattern) check(ctx context.Context) error {
	_, err := p.look(ctx)
	return err
}

// Partitions implements source.Source: the oldest files that were not read to
// their end.
func (p *pattern) Partitions(ctx context.Context) ([]string, error) {
	files, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files = files
	var names []string
	for name, f := range files {
		if size, over := p.finished[name]; !over || !f.packed && f.size > size {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(files[a].time.Compare(files[b].time), cmp.Compare(files[a].path, files[b].path))
	})
	return names[:min(len(names), p.atOnce)], nil
}

// look finds the files that match.
func (p *pattern) look(ctx context.Context) (map[string]found, error) {
	paths, err := filepath.Glob(p.path)
	if err != nil {
		return nil, err
	}
	files := make(map[string]found)
	newest := ""
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, f, err := p.inspect(path)
		if err != nil {
			return nil, err
		}
		if name == "" {
			continue
		}
		other, twice := files[name]
		switch {
		case !twice || other.packed && !f.packed:
			files[name] = f
		case !other.packed && !f.packed:
			return nil, &event.PermanentError{
				Err:  fmt.Errorf("%s and %s begin with the same line", other.path, path),
				Hint: "files of a pattern are told apart by their first lines; move the copy away",
			}
		}
		if newest == "" || files[name].time.After(files[newest].time) {
			newest = name
		}
	}
	if f, ok := files[newest]; ok {
		f.newest = true
		files[newest] = f
	}
	return files, nil
}

// inspect returns the partition of a file, or "" for one that is no file, has
// gone meanwhile or has no line yet.
func (p *pattern) inspect(path string) (string, found, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", found{}, nil
	}
	if err != nil {
		return "", found{}, fmt.Errorf("read events: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return "", found{}, err
	}
	line, grows, err := firstLine(file)
	switch {
	case err != nil && time.Since(info.ModTime()) >= settled:
		return "", found{}, &event.PermanentError{
			Err: fmt.Errorf("read %s: %w", path, err), Hint: "the file is damaged; restore it, or move it away from the others",
		}
	case err != nil && !p.follow:
		return "", found{}, fmt.Errorf("read %s: %w", path, err)
	case err != nil || grows && p.follow:
		return "", found{}, nil // still being packed, or written
	}
	packed, err := magic(file)
	return "lines-" + digest(line), found{path: path, size: info.Size(), time: info.ModTime(), packed: packed != nil}, err
}

// Open implements source.Source.
func (p *pattern) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	files, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	f, ok := files[partition]
	if !ok {
		return nil, source.ErrMoved
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return newReader(ctx, reader{
		path: f.path, limits: p.limits, name: partition, file: file,
		wait:  func() bool { return p.follow && !f.packed && p.growing(partition, file) },
		ended: func(read int64) { p.finish(partition, read) },
	}, done)
}

// growing tells whether somebody may still write to a file.
func (p *pattern) growing(partition string, file *os.File) bool {
	info, err := file.Stat()
	if err != nil || time.Since(info.ModTime()) < settled {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f, there := p.files[partition]
	return there && f.newest
}

// finish remembers how much of a file was read, and not how large it is: somebody
// may have added to it meanwhile.
func (p *pattern) finish(partition string, read int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished[partition] = read
}
