//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/perigeedb/perigee/internal/powercut"
)

// powercutFolder makes the test's process a program that is recorded.
const powercutFolder = "EVENTSTORE_POWERCUT"

// appendAndGrow appends batches that bring new columns now and then, in runs that end with
// and without Close. It prints each batch once Append has returned.
func appendAndGrow(folder string) error {
	runtime.LockOSThread()
	next := uint64(0)
	for run := range 3 {
		s, err := Open(filepath.Join(folder, "made", "events"), Options{Threads: 1})
		if err != nil {
			return err
		}
		table, err := s.Table("events", TableConfig{})
		if err != nil {
			return err
		}
		p, done, err := table.TakeOver(context.Background(), "pipe", "part")
		if err != nil {
			return err
		}
		if run > 0 && done.Next(0) != next {
			return fmt.Errorf("run %d begins with %v, want %d", run, done, next)
		}
		for range 8 {
			if err := p.Append(context.Background(), output(next, crashDocs(next)...)); err != nil {
				return err
			}
			fmt.Println("stored", next)
			next += crashBatch
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestPowerCut cuts the power while batches are appended to a log, with new versions of the
// schema, and while the store is opened.
func TestPowerCut(t *testing.T) {
	folder := t.TempDir()
	powercut.Record(t, folder, powercut.SelfRun("", powercutFolder+"="+folder)).EachCut(t, 40, checkStore)
}

// checkStore opens the store that a power cut has left: what was stored is there, and each
// event once.
func checkStore(t *testing.T, folder string, said []string) {
	s, err := Open(filepath.Join(folder, "made", "events"), Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := openTable(t, s, TableConfig{})
	done, err := committedRanges(table, "pipe", "part")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range said {
		var first uint64
		if n, _ := fmt.Sscanf(line, "stored %d", &first); n == 1 && !done.Covers(first, first+crashBatch) {
			t.Errorf("batch %d was stored, and the store has %v", first, done)
		}
	}
	var events uint64
	for _, d := range done {
		events += d.Count
	}
	if events == 0 {
		return // there may be no table
	}
	want := fmt.Sprintf("%d,%d", events, events)
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != want {
		t.Errorf("rows and distinct ids are %s, the ranges say %s", got, want)
	}
}
