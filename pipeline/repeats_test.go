//go:build cgo && luajit && lmdb

package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/source"
)

// An originSource knows the origins of its events, which are in the documents.
type originSource struct{ *memorySource }

func (s originSource) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	r, err := s.memorySource.Open(ctx, partition, done)
	return originReader{r}, err
}

type originReader struct{ source.Reader }

func (r originReader) Read(ctx context.Context, b *event.Batch) error {
	if err := r.Reader.Read(ctx, b); err != nil {
		return err
	}
	b.Origins = b.Origins[:0]
	for i := range b.Len() {
		var doc struct{ Origin event.Origin }
		if err := json.Unmarshal(b.Doc(i), &doc); err != nil {
			return err
		}
		b.Origins = append(b.Origins, doc.Origin)
	}
	return nil
}

// TestRepeats reads rows of two pipelines, one of which has written some again after a crash: the
// script sees each once, also when they come in several batches, runs and starts.
func TestRepeats(t *testing.T) {
	var docs, want []string
	add := func(origin string, position, number int, again bool) {
		docs = append(docs, fmt.Sprintf(`{"origin":{"Name":%q,"Position":%d,"Number":%d}}`, origin, position, number))
		if !again {
			row := fmt.Sprintf(`{"origin":{"Name":%q,"Position":%d,"Number":%d},"n":%d}`, origin, position, number, len(want)+1)
			want = append(want, row)
		}
	}
	add("", 0, 0, false) // of another producer
	for i := range 20 {
		add("one/a", i, 0, false)
		add("one/a", i, 1, false)
		if i < 10 {
			add("two/b", i, 0, false)
		}
	}
	for i := 15; i < 20; i++ { // written again
		add("one/a", i, 0, true)
		add("one/a", i, 1, true)
	}
	add("two/b", 9, 0, true)
	add("two/b", 9, 1, false)
	add("one/a", 20, 0, false)
	add("", 0, 0, false)
	for _, size := range []int{1, 7, len(docs)} {
		t.Run(fmt.Sprint("batches of ", size), func(t *testing.T) {
			r := newStateRig(t, `
				local nodedb = require "nodedb"
				function main(e)
					e.n = nodedb.node("^n"):incr()
					return e
				end`, docs, filepath.Join(t.TempDir(), "users"))
			r.source.batch = func() int { return size }
			r.config.Source = originSource{r.source}
			p := New(r.config)
			if err := p.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := r.table.allRows(); !slices.Equal(got, want) {
				t.Errorf("the rows are %q, want %q", got, want)
			}
			if dead := r.deadLetters(); len(dead) > 0 {
				t.Errorf("the dead letters are %v, want none", dead)
			}
			if got := p.Stats(); got.Units.Repeated != 11 || got.Dropped != 11 {
				t.Errorf("%d events were repeated, and %d dropped, want 11", got.Units.Repeated, got.Dropped)
			}
			if got := r.get(nodedb.Name("^n")); got != fmt.Sprint(len(want)) {
				t.Errorf("the state has counted %s events, want %d", got, len(want))
			}
		})
	}
}
