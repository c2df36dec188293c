//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

func TestTwoTablesGrowAtOnce(t *testing.T) {
	s := openStore(t, t.TempDir())
	var group sync.WaitGroup
	for _, name := range []string{"events", "audit"} {
		table, err := s.Table(name, TableConfig{})
		if err != nil {
			t.Fatal(err)
		}
		p := take(t, table)
		group.Go(func() {
			if err := p.Append(context.Background(), output(0, `{"id":1}`)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := ask(t, s, `SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM audit)`); got != "1,1" {
		t.Errorf("rows of the tables: %s, want 1,1", got)
	}
}

// TestRangesOutOfOrder has ranges come out of order, in the log, in the manifest, and in
// both after the store was opened again.
func TestRangesOutOfOrder(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	want := event.Ranges{{First: 0, Count: 1}, {First: 2, Count: 6}, {First: 10, Count: 2}}
	check := func() {
		t.Helper()
		if have, err := committedRanges(table, "pipe", "part"); err != nil || !cmp.Equal(want, have) {
			t.Errorf("committed: %v, %v, want %v", have, err, want)
		}
		all, err := table.Positions(context.Background(), "pipe")
		if diff := cmp.Diff(map[string]event.Ranges{"part": want}, all); err != nil || diff != "" {
			t.Errorf("positions (-want +got): %v\n%s", err, diff)
		}
	}
	for i, first := range []uint64{0, 2, 6, 4, 10} {
		docs := []string{`{"id":1}`, `{"id":2}`}[:min(2, 1+i)]
		appendDocs(t, p, first, docs...)
		if i == 2 {
			seal(t, s)
		}
	}
	check()
	seal(t, s)
	check()
	s.Close()
	s = openStore(t, folder)
	table = openTable(t, s, TableConfig{})
	check()
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "9" {
		t.Errorf("%s rows, want 9", got)
	}
}

// TestSetPosition forgets positions, which then are stored again, in each place that
// remembers them.
func TestSetPosition(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	old := take(t, table)
	appendDocs(t, old, 0, `{"id":0}`, `{"id":1}`, `{"id":2}`)
	seal(t, s)
	appendDocs(t, old, 3, `{"id":3}`)
	if err := table.SetPosition(context.Background(), "pipe", "part", 2); err != nil {
		t.Fatal(err)
	}
	if err := old.Append(context.Background(), output(4, `{}`)); !errors.Is(err, ErrFenced) {
		t.Errorf("the owner before: %v, want ErrFenced", err)
	}
	want := event.Ranges{{First: 0, Count: 2}}
	for step := range 3 {
		have, err := committedRanges(table, "pipe", "part")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", step, diff)
		}
		switch step {
		case 0:
			s.Close()
			s = openStore(t, folder)
			table = openTable(t, s, TableConfig{})
		case 1:
			seal(t, s)
		}
	}
	appendDocs(t, take(t, table), 2, `{"id":2}`)
	if got := ask(t, s, `SELECT string_agg(id, ' ' ORDER BY id) FROM events`); got != "0 1 2 2 3" {
		t.Errorf("rows %s", got)
	}
}

// TestTakeOverWaits holds that a new owner hears of all that the one before has committed,
// also of an append that is under way.
func TestTakeOverWaits(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	old := take(t, table)
	s.appends.mu.Lock() // holds the append back when it has its reservation
	appended := make(chan error, 1)
	go func() { appended <- old.Append(context.Background(), output(0, `{"id":1}`)) }()
	reserved := func() bool {
		table.mu.Lock()
		defer table.mu.Unlock()
		return len(table.state(old.key).appending) > 0
	}
	await(t, "the append has its reservation", reserved)
	taken := make(chan event.Ranges, 1)
	go func() {
		_, have, err := table.TakeOver(context.Background(), "pipe", "part")
		if err != nil {
			t.Error(err)
		}
		taken <- have
	}()
	select {
	case have := <-taken:
		t.Errorf("the new owner does not wait, and has %v", have)
		taken <- have
	case <-time.After(100 * time.Millisecond):
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, _, err := table.TakeOver(ctx, "pipe", "part"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a take-over with a deadline: %v", err)
	}
	s.appends.mu.Unlock()
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	if have := <-taken; !have.Covers(0, 1) {
		t.Errorf("the new owner has %v", have)
	}
	if err := old.Append(context.Background(), output(1, `{}`)); !errors.Is(err, ErrFenced) {
		t.Errorf("the owner before: %v, want ErrFenced", err)
	}
}

// TestOverlappingAppends has appends of the same positions run at the same time.
func TestOverlappingAppends(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	var group sync.WaitGroup
	for first := range uint64(40) {
		group.Go(func() {
			docs := make([]string, 10)
			for i := range docs {
				docs[i] = fmt.Sprintf(`{"id":%d,"text":"number %d"}`, first+uint64(i), first+uint64(i))
			}
			if err := p.Append(context.Background(), output(first, docs...)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id), count(*) FILTER (text = 'number ' || id) FROM events`); got != "49,49,49" {
		t.Errorf("got %s", got)
	}
}

// printed returns the positions that the store has with and without fingerprints.
func printed(t *testing.T, table *Table) (with, without event.Ranges) {
	t.Helper()
	have, err := committedRanges(table, "pipe", "part")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range have {
		if len(r.Prints) > 0 {
			with = append(with, event.Range{First: r.First, Count: r.Count})
		} else {
			without = append(without, r)
		}
	}
	return with, without
}

// appendPrinted appends a range without rows, which then has fingerprints.
func appendPrinted(t *testing.T, p *Partition, first, count uint64) {
	t.Helper()
	out := &event.Output{Range: event.Range{First: first, Count: count, Prints: make([]uint32, count)}}
	if err := p.Append(context.Background(), out); err != nil {
		t.Fatal(err)
	}
}

func TestOldFingerprintsGo(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	appendPrinted(t, p, 0, 100)
	seal(t, s)
	if with, _ := printed(t, table); !cmp.Equal(event.Ranges{{Count: 100}}, with) {
		t.Errorf("with fingerprints after sealing: %v", with)
	}
	err := s.change(func(next *manifest.Manifest) error {
		old := *next.Tables[0].Prints[0]
		old.Written = old.Written.Add(-printAge)
		next.Tables[0].Prints[0] = &old
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	appendPrinted(t, p, 100, 10)
	seal(t, s)
	with, without := printed(t, table)
	if diff := cmp.Diff(event.Ranges{{First: 100, Count: 10}}, with); diff != "" {
		t.Errorf("with fingerprints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(event.Ranges{{Count: 100}}, without); diff != "" {
		t.Errorf("without fingerprints (-want +got):\n%s", diff)
	}
}

func TestFingerprintsOfTooManyEventsGo(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	appendPrinted(t, p, 0, 10)
	out := &event.Output{Range: event.Range{First: 10, Count: printEvents}}
	if err := p.Append(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	appendPrinted(t, p, 10+printEvents, 10)
	with, without := printed(t, table)
	if diff := cmp.Diff(event.Ranges{{First: 10 + printEvents, Count: 10}}, with); diff != "" {
		t.Errorf("with fingerprints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(event.Ranges{{Count: 10 + printEvents}}, without); diff != "" {
		t.Errorf("without fingerprints (-want +got):\n%s", diff)
	}
}

func TestRecentPrints(t *testing.T) {
	now := time.Now()
	file := func(number, events uint64, age time.Duration) *manifest.PrintsFile {
		return &manifest.PrintsFile{Number: number, Events: events, Written: now.Add(-age)}
	}
	all := []*manifest.PrintsFile{
		file(1, 1, printAge+1), file(2, 5, printAge), file(3, 1, time.Hour), file(4, printEvents-1, time.Minute), file(5, 1, 0),
	}
	for from, want := range [][]uint64{{4, 5}, {4, 5}, {4, 5}, {4, 5}, {5}} {
		var got []uint64
		for _, f := range recentPrints(all[from:], now) {
			got = append(got, f.Number)
		}
		if !slices.Equal(want, got) {
			t.Errorf("of those from %d on: %v, want %v", from+1, got, want)
		}
	}
	if got := recentPrints(all[:3], now); len(got) != 2 || got[0].Number != 2 {
		t.Errorf("by age: %v", got)
	}
}
