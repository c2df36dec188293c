//go:build linux && cgo

package fileimport

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/eventstoretest"
)

// TestImport imports a file in parts, across a restart, with overlaps and with omitted rows.
// Each row must be stored once.
func TestImport(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	open := func() *eventstore.Store {
		t.Helper()
		s, err := eventstore.Open(folder, eventstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	begin := func(next uint64) *Import {
		t.Helper()
		i, done, err := Begin(t.Context(), s, "events", "sha256:1", eventstore.TableConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if got := done.Next(0); got != next {
			t.Errorf("goes on at %d, not %d", got, next)
		}
		return i
	}
	docs := func(first, n int) (all [][]byte) {
		for id := first; id < first+n; id++ {
			all = append(all, fmt.Appendf(nil, `{"id":%d}`, id))
		}
		return all
	}
	first := begin(0)
	if err := first.Append(t.Context(), 0, 100, docs(0, 100), nil); err != nil {
		t.Fatal(err)
	}
	second := begin(100)
	if err := first.Append(t.Context(), 100, 100, docs(100, 100), nil); !errors.Is(err, eventstore.ErrFenced) {
		t.Errorf("the import before: %v", err)
	}
	s.Close()
	if err := second.Append(t.Context(), 100, 100, docs(100, 100), nil); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	s = open()
	third := begin(100)
	if err := third.Append(t.Context(), 50, 100, docs(50, 100), nil); err != nil {
		t.Fatal(err)
	}
	bad := append(docs(150, 2), []byte(`[3]`), []byte(`{"id":153}`))
	rejected, ok := errors.AsType[*eventstore.RejectedRows](third.Append(t.Context(), 150, 4, bad, nil))
	if !ok || len(rejected.Rows) != 1 || rejected.Rows[0].Row != 2 {
		t.Fatalf("rejected: %+v", rejected)
	}
	if err := third.Append(t.Context(), 150, 4, append(bad[:2:2], bad[3]), []uint32{2}); err != nil {
		t.Fatal(err)
	}
	if got := eventstoretest.Ask(t, s, "SELECT count(*), count(DISTINCT id), max(id) FROM events"); got != "153,153,153" {
		t.Errorf("the table has %s", got)
	}
	begin(154)
	if err := Forget(t.Context(), s, "events", "sha256:1"); err != nil {
		t.Fatal(err)
	}
	begin(0)
}
