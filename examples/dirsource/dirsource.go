// Package dirsource is an example of a source: a folder of files, each of which is one
// event. File N.json is the event at position N; the program that writes them renames
// each into its place when it is complete. Acknowledged events are removed.
package dirsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// Config are the settings below "dir".
type Config struct {
	Path string `yaml:"path,required" help:"folder with the files 0.json, 1.json, …"`
	Once bool   `yaml:"once" help:"end at the first file that does not exist, instead of waiting for it"`
}

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name: "dir", Doc: "Reads a folder of numbered files, each with one event.", Config: &Config{},
		New: func(env source.Env, decode func(any) error) (source.Source, error) {
			d := &dir{limits: env.Limits}
			return d, decode(&d.config)
		},
	}
}

type dir struct {
	config Config
	limits source.Limits
}

func (d *dir) name() string                                 { return "dir:" + d.config.Path }
func (d *dir) file(n uint64) string                         { return filepath.Join(d.config.Path, fmt.Sprint(n, ".json")) }
func (d *dir) Partitions(context.Context) ([]string, error) { return []string{d.name()}, nil }
func (d *dir) Traits() source.Traits                        { return source.Traits{} }
func (d *dir) Close() error                                 { return nil }

func (d *dir) Open(_ context.Context, partition string, done event.Ranges) (source.Reader, error) {
	if partition != d.name() {
		return nil, source.ErrMoved
	}
	return &reader{dir: d, done: done, next: done.Next(0)}, nil
}

type reader struct {
	*dir
	done event.Ranges // committed before
	next uint64       // position to read
}

// Read waits for an event, and returns it with those that follow it.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	r.next = r.done.Next(r.next)
	b.Partition, b.Range.First = r.name(), r.next
	for b.Len() < r.limits.Events && !r.done.Has(r.next) {
		doc, err := os.ReadFile(r.file(r.next))
		missing := errors.Is(err, fs.ErrNotExist)
		switch {
		case err != nil && !missing:
			return fmt.Errorf("read event %d: %w", r.next, err)
		case b.Len() > 0 && (missing || len(b.Data)+len(doc) > r.limits.Bytes):
			return nil
		case missing && r.config.Once:
			return io.EOF
		case ctx.Err() != nil:
			return ctx.Err()
		case missing:
			time.Sleep(50 * time.Millisecond)
		default:
			b.Append(doc)
			b.Range.Count++
			r.next++
		}
	}
	return nil
}

// Ack removes the events of a range.
func (r *reader) Ack(_ context.Context, done event.Range) error {
	for n := done.First; n < done.End(); n++ {
		if err := os.Remove(r.file(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
func (r *reader) Lag() uint64                 { return 0 }
func (r *reader) Close(context.Context) error { return nil }
