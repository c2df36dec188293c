//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	store "github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestFullDisk holds that a full disk is an error that the pipeline retries: it neither stops
// the pipeline, nor makes dead letters, nor looks like another owner.
func TestFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 8<<20)
	if disk == "" {
		return
	}
	ballast := filepath.Join(disk, "ballast")
	s, err := store.Open(filepath.Join(disk, "events"), store.Options{SegmentBytes: 64 << 10, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	made, err := newSink("p", Config{Table: "events"}, opener(s, store.TableConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := made.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	wantTransient := func(what string, err error) {
		t.Helper()
		_, rejected := errors.AsType[*sink.RowErrors](err)
		if rejected || event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) || !strings.Contains(fmt.Sprint(err), syscall.ENOSPC.Error()) {
			t.Errorf("%s on the full disk: %T, %v", what, err, err)
		}
	}
	next := uint64(0)
	write := func() error {
		err := w.Write(t.Context(), sinktest.Docs(next, fmt.Sprintf(`{"id":%d,"text":"%s"}`, next, strings.Repeat("x", 1000))))
		if err == nil {
			next++
		}
		return err
	}
	for round := range 2 {
		powercut.Fill(t, ballast, int64(round)*100<<10)
		for err = nil; err == nil && next < 100_000; {
			err = write()
		}
		wantTransient("a write", err)
		wantTransient("the same write", write())
		wantTransient("a write with a new column", w.Write(t.Context(), sinktest.Docs(next, fmt.Sprintf(`{"id":%d,"new%d":1}`, next, round))))
		if _, _, err := made.Open(t.Context(), fmt.Sprint("b", round)); err != nil {
			wantTransient("another partition", err)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if err := write(); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatalf("with room on the disk: %v", err)
			}
		}
	}
	rows, err := s.Query(context.Background(), `SELECT count(*), count(DISTINCT id) FROM events`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() || fmt.Sprint(rows.Row()...) != fmt.Sprint(int64(next), int64(next)) {
		t.Errorf("%v rows, %d were written, %v", rows.Row(), next, rows.Err())
	}
}
