//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

// TestSetPositionForgetsFingerprints checks that forgotten positions do not return from the
// fingerprints in a file.
func TestSetPositionForgetsFingerprints(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	appendFingerprinted(t, take(t, table), 0, 100)
	seal(t, s)
	if err := table.SetPosition(t.Context(), "pipe", "part", 50); err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		have, err := committedRanges(table, "pipe", "part")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(event.Ranges{{Count: 50}}, withoutFingerprints(have)); diff != "" {
			t.Errorf("step %d: committed (-want +got):\n%s", step, diff)
		}
		if step == 0 {
			seal(t, s)
		}
		if step == 1 {
			s.Close()
			s = openStore(t, folder)
			table = openTable(t, s, TableConfig{})
		}
	}
}

// TestTakeOverDuringSetPosition checks that an owner who is not fenced has read the position
// that was set, whether it takes over before or after.
func TestTakeOverDuringSetPosition(t *testing.T) {
	table := openTable(t, openStore(t, t.TempDir()), TableConfig{})
	for round := range uint64(300) {
		set := make(chan error, 1)
		go func() { set <- table.SetPosition(context.Background(), "pipe", "part", round+1) }()
		p, done, err := table.TakeOver(t.Context(), "pipe", "part")
		if err := errors.Join(err, <-set); err != nil {
			t.Fatal(err)
		}
		have, err := table.Positions(t.Context(), "pipe")
		if err != nil {
			t.Fatal(err)
		}
		err = p.Append(t.Context(), &event.Output{Range: event.Range{First: 1000 + round, Count: 1}})
		if errors.Is(err, ErrFenced) {
			continue
		}
		if diff := cmp.Diff(have["part"], done); diff != "" || err != nil {
			t.Fatalf("round %d: the owner has other positions than the store: %v (-want +got)\n%s", round, err, diff)
		}
	}
}
