package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// quietTime is how long nobody must have written to a file that is not the newest
// before its end counts as final: a writer may keep it open after a rotation.
const quietTime = 5 * time.Second

func isPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

// A patternSource reads all files that match a pattern. Each is a partition.
type patternSource struct {
	path   string
	follow bool
	atOnce int
	limits source.Limits
	format format.Format
	log    *slog.Logger
	empty  source.EmptyReason

	mu       sync.Mutex
	files    map[string]matchedFile // by partition, as last listed
	units    map[string]string      // by partition: the path at which it was listed first
	finished map[string]int64       // the size at which a partition was read to its end
}

type matchedFile struct {
	path       string
	size       int64
	modified   time.Time
	compressed bool
	newest     bool
}

func newPattern(env source.Env, c Config) (*patternSource, error) {
	if !filepath.IsAbs(c.Path) {
		c.Path = filepath.Join(env.Folder, c.Path)
	}
	if _, err := filepath.Match(c.Path, ""); err != nil {
		return nil, fmt.Errorf("path %q: %w", c.Path, err)
	}
	if c.AtOnce < 0 {
		return nil, errors.New("at_once must not be negative")
	}
	f, err := format.New(c.Settings)
	if err != nil {
		return nil, err
	}
	return &patternSource{
		path: c.Path, follow: c.Follow, atOnce: cmp.Or(c.AtOnce, 4), limits: env.Limits, format: f, log: env.Log,
		finished: make(map[string]int64), units: make(map[string]string),
	}, nil
}

// Traits implements source.Source.
func (p *patternSource) Traits() source.Traits {
	return source.Traits{Growing: p.follow, Local: isLocal, Unit: p.unit, Peek: p.peek, WhyEmpty: p.empty.Get, Check: p.check, Offline: true, Format: p.format}
}

// peek reads the files one after the other, the oldest first.
func (p *patternSource) peek(ctx context.Context, visit func(*event.Batch) error) error {
	files, err := p.listFiles(ctx)
	if err != nil {
		return err
	}
	p.noteEmpty(len(files))
	for _, name := range sortFiles(files) {
		one := &Source{limits: p.limits, path: files[name].path, format: p.format}
		if err := one.peek(ctx, visit); err != nil {
			return err
		}
	}
	return nil
}

func (p *patternSource) check(ctx context.Context) error {
	files, err := p.listFiles(ctx)
	if err == nil {
		p.noteEmpty(len(files))
	}
	return err
}

// Close implements source.Source.
func (p *patternSource) Close() error { return nil }

// Partitions implements source.Source. It lists the oldest files that were not read
// to their end.
func (p *patternSource) Partitions(ctx context.Context) ([]string, error) {
	files, err := p.listFiles(ctx)
	if err != nil {
		return nil, err
	}
	p.noteEmpty(len(files))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files = files
	for name, f := range files {
		if p.units[name] == "" {
			p.units[name] = source.UnitName(f.path)
		}
	}
	var names []string
	for _, name := range sortFiles(files) {
		f := files[name]
		if size, finished := p.finished[name]; !finished || !f.compressed && f.size > size {
			names = append(names, name)
		}
	}
	return names[:min(len(names), p.atOnce)], nil
}

// unit is the path of a file, as long as this source lives also after a rotation has renamed the
// file. Before the partition was listed it is unknown.
func (p *patternSource) unit(partition string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.units[partition], partition)
}

// sortFiles returns the partitions of files, the oldest first.
func sortFiles(files map[string]matchedFile) []string {
	return slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(files[a].modified.Compare(files[b].modified), cmp.Compare(files[a].path, files[b].path))
	})
}

// noteEmpty keeps why no file is listed.
func (p *patternSource) noteEmpty(files int) {
	reason := ""
	if files == 0 {
		reason = "no file matches " + p.path
		if paths, _ := filepath.Glob(p.path); len(paths) > 0 {
			reason = "no file that matches " + p.path + " has a complete line"
		}
	}
	p.empty.Set(reason, p.log)
}

// listFiles finds the files that match, by partition.
func (p *patternSource) listFiles(ctx context.Context) (map[string]matchedFile, error) {
	paths, err := filepath.Glob(p.path)
	if err != nil {
		return nil, err
	}
	files := make(map[string]matchedFile)
	newest := ""
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, f, err := p.identifyFile(path)
		if err != nil {
			return nil, err
		}
		if name == "" {
			continue
		}
		other, twice := files[name]
		switch {
		case !twice || other.compressed && !f.compressed:
			files[name] = f
		case !other.compressed && !f.compressed:
			return nil, &event.PermanentError{
				Err:  fmt.Errorf("%s and %s start with the same line", other.path, path),
				Hint: "files of a pattern are identified by their first lines: move the copy away",
			}
		}
		if newest == "" || files[name].modified.After(files[newest].modified) {
			newest = name
		}
	}
	if f, ok := files[newest]; ok {
		f.newest = true
		files[newest] = f
	}
	return files, nil
}

// identifyFile returns the partition of a file. It returns "" for a path that is not
// a regular file or is gone, and for a file without a complete first line.
func (p *patternSource) identifyFile(path string) (string, matchedFile, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", matchedFile{}, nil
	}
	if err != nil {
		return "", matchedFile{}, fmt.Errorf("read events: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return "", matchedFile{}, err
	}
	line, grows, err := readFirstLine(file, p.format)
	switch {
	case err != nil && time.Since(info.ModTime()) >= quietTime:
		return "", matchedFile{}, &event.PermanentError{
			Err: fmt.Errorf("read %s: %w", path, err), Hint: "the file is damaged: restore it, or move it away from the others",
		}
	case err != nil && !p.follow:
		return "", matchedFile{}, fmt.Errorf("read %s: %w", path, err)
	case err != nil || grows && p.follow:
		return "", matchedFile{}, nil // still being compressed, or written
	}
	compressed, err := isCompressed(file)
	return "lines-" + hashLine(line),
		matchedFile{path: path, size: info.Size(), modified: info.ModTime(), compressed: compressed}, err
}

// Open implements source.Source.
func (p *patternSource) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	files, err := p.listFiles(ctx)
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
		path: f.path, limits: p.limits, format: p.format, name: partition, file: file,
		mayGrow: func() bool { return p.follow && !f.compressed && p.mayGrow(partition, file) },
		onEnd:   func(read int64) { p.markFinished(partition, read) },
	}, done)
}

// mayGrow reports whether somebody may still write to the file: it is the newest, or
// was written to recently.
func (p *patternSource) mayGrow(partition string, file *os.File) bool {
	info, err := file.Stat()
	if err != nil || time.Since(info.ModTime()) < quietTime {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.files[partition]
	return ok && f.newest
}

// markFinished remembers how many bytes were read rather than the size of the file:
// somebody may have appended to it meanwhile.
func (p *patternSource) markFinished(partition string, read int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished[partition] = read
}
