//go:build cgo && luajit && lmdb

package pipeline

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// A keyedSource distributes keys over its partitions.
type keyedSource struct{ *memorySource }

func (s keyedSource) Traits() source.Traits {
	t := s.memorySource.Traits()
	t.Growing, t.KeySet = true, func(string) string { return "topic" }
	return t
}

// TestPartitionsAdded adds a partition to a source that distributes keys: the pipeline refuses it,
// while it runs and when it starts, and reads nothing from it.
func TestPartitionsAdded(t *testing.T) {
	docs, rows := countDocs(3, 10)
	r := newStateRig(t, countLua, docs, filepath.Join(t.TempDir(), "users"))
	r.config.Source = keyedSource{r.source}
	p, ended := New(r.config), make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	for end := time.Now().Add(20 * time.Second); len(r.table.allRows()) < len(rows) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	r.source.add(&memoryPartition{name: "b", docs: docs})
	check := func(err error) {
		t.Helper()
		if err == nil || !event.IsPermanent(err) || !strings.Contains(err.Error(), "topic has 2 partitions, and state users was made for 1") {
			t.Errorf("the pipeline ended with %v", err)
		}
		if hint := event.HintOf(err); !strings.Contains(hint, "set version: 2") {
			t.Errorf("the hint is %q", hint)
		}
		if got := r.table.allRows(); len(got) != len(rows) {
			t.Errorf("%d rows, want %d", len(got), len(rows))
		}
	}
	check(<-ended)
	check(New(r.config).Run(t.Context()))
	r.config.State.Shared = true
	if err := New(r.config).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "scope: partition in sink changelog, with unit a, and scope: pipeline") {
		t.Errorf("with another scope the pipeline ended with %v", err)
	}
}
