//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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
			if err := p.Append(context.Background(), outputOf(0, `{"id":1}`)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := ask(t, s, `SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM audit)`); got != "1,1" {
		t.Errorf("rows of the tables: %s, want 1,1", got)
	}
}

// TestRangesOutOfOrder appends ranges out of order, with positions in the log, in the
// manifest, and in both after a restart.
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

// TestSetPosition forgets positions in each place that stores them, and checks that their
// rows are stored again.
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
	if err := old.Append(context.Background(), outputOf(4, `{}`)); !errors.Is(err, ErrFenced) {
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

// isAppending reports whether appends to a partition have reserved positions.
func isAppending(t *Table, key partKey) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return t.ledger(key).Drain(ended) != nil
}

// TestTakeOverWaits checks that a new owner sees everything that the previous one has
// committed, including a running append.
func TestTakeOverWaits(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	old := take(t, table)
	s.appends.mu.Lock() // delays the append once it has its reservation
	appended := make(chan error, 1)
	go func() { appended <- old.Append(context.Background(), outputOf(0, `{"id":1}`)) }()
	await(t, "the append has its reservation", func() bool { return isAppending(table, old.key) })
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
		t.Errorf("ranges of the new owner: got %v, want that they cover position 0", have)
	}
	if err := old.Append(context.Background(), outputOf(1, `{}`)); !errors.Is(err, ErrFenced) {
		t.Errorf("the owner before: %v, want ErrFenced", err)
	}
}

// TestOverlappingAppends appends the same positions concurrently.
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
			if err := p.Append(context.Background(), outputOf(first, docs...)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id), count(*) FILTER (text = 'number ' || id) FROM events`); got != "49,49,49" {
		t.Errorf("got %s", got)
	}
}

// withoutFingerprints returns the ranges without their fingerprints.
func withoutFingerprints(done event.Ranges) event.Ranges {
	var set event.Ranges
	for _, r := range done {
		set.Add(event.Range{First: r.First, Count: r.Count})
	}
	return set
}

// fingerprinted returns the store's positions with and without fingerprints.
func fingerprinted(t *testing.T, table *Table) (with, without event.Ranges) {
	t.Helper()
	have, err := committedRanges(table, "pipe", "part")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range have {
		if len(r.Fingerprints) > 0 {
			with = append(with, event.Range{First: r.First, Count: r.Count})
		} else {
			without = append(without, r)
		}
	}
	return with, without
}

// appendFingerprinted appends a range without rows but with fingerprints.
func appendFingerprinted(t *testing.T, p *Partition, first, count uint64) {
	t.Helper()
	out := &event.Output{Range: event.Range{First: first, Count: count, Fingerprints: make([]uint32, count)}}
	if err := p.Append(context.Background(), out); err != nil {
		t.Fatal(err)
	}
}

func TestOldFingerprintsGo(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	appendFingerprinted(t, p, 0, 100)
	seal(t, s)
	if with, _ := fingerprinted(t, table); !cmp.Equal(event.Ranges{{Count: 100}}, with) {
		t.Errorf("ranges with fingerprints after sealing: got %v, want 0 to 100", with)
	}
	err := s.change(func(next *manifest.Manifest) error {
		old := *next.Tables[0].Fingerprints[0]
		old.Written = old.Written.Add(-fingerprintAge)
		next.Tables[0].Fingerprints[0] = &old
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	appendFingerprinted(t, p, 100, 10)
	seal(t, s)
	with, without := fingerprinted(t, table)
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
	appendFingerprinted(t, p, 0, 10)
	out := &event.Output{Range: event.Range{First: 10, Count: fingerprintEvents}}
	if err := p.Append(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	appendFingerprinted(t, p, 10+fingerprintEvents, 10)
	with, without := fingerprinted(t, table)
	if diff := cmp.Diff(event.Ranges{{First: 10 + fingerprintEvents, Count: 10}}, with); diff != "" {
		t.Errorf("with fingerprints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(event.Ranges{{Count: 10 + fingerprintEvents}}, without); diff != "" {
		t.Errorf("without fingerprints (-want +got):\n%s", diff)
	}
}

func TestRecentFingerprints(t *testing.T) {
	now := time.Now()
	file := func(number, events uint64, age time.Duration) *manifest.FingerprintsFile {
		return &manifest.FingerprintsFile{Number: number, Events: events, Written: now.Add(-age)}
	}
	all := []*manifest.FingerprintsFile{
		file(1, 1, fingerprintAge+1), file(2, 5, fingerprintAge), file(3, 1, time.Hour), file(4, fingerprintEvents-1, time.Minute), file(5, 1, 0),
	}
	for from, want := range [][]uint64{{4, 5}, {4, 5}, {4, 5}, {4, 5}, {5}} {
		var got []uint64
		for _, f := range recentFingerprints(all[from:], now) {
			got = append(got, f.Number)
		}
		if !slices.Equal(want, got) {
			t.Errorf("of those from %d on: %v, want %v", from+1, got, want)
		}
	}
	if got := recentFingerprints(all[:3], now); len(got) != 2 || got[0].Number != 2 {
		t.Errorf("by age: %v", got)
	}
}

// TestNewestEvents checks which fingerprints belong to the newest events.
func TestNewestEvents(t *testing.T) {
	have := event.Ranges{{First: 2, Count: 8}, {First: 20, Count: 5}}
	for n, want := range map[uint64]uint64{1: 24, 5: 20, 6: 9, 13: 2, 14: 0, 1 << 40: 0} {
		if got := newest(have, n); got != want {
			t.Errorf("the last %d events of %v begin at %d, want %d", n, have, got, want)
		}
	}
	committed := event.Ranges{{First: 0, Count: fingerprintEvents + 10}}
	fingerprints := func(first, count uint64) event.Range {
		return event.Range{First: first, Count: count, Fingerprints: make([]uint32, count)}
	}
	for end, kept := range map[uint64]bool{9: false, 10: false, 11: true} {
		done := withRecentFingerprints(event.Ranges{fingerprints(0, end)}, committed)
		if got := len(done[0].Fingerprints) > 0; got != kept || !done.Covers(0, fingerprintEvents+10) || done.Covers(0, fingerprintEvents+11) {
			t.Errorf("fingerprints up to %d, of events up to %d: kept %v", end, fingerprintEvents+10, got)
		}
	}
}

// TestFilesOfFingerprints checks when sealing a log file writes fingerprints: if the file has
// some, or if positions were forgotten that have fingerprints in an older file. Each
// partition gets its own back, in commit order.
func TestFilesOfFingerprints(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	other, _, err := table.TakeOver(t.Context(), "pipe", "other")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	sealed := func(what string, more int) {
		t.Helper()
		seal(t, s)
		files += more
		if got := len(s.current().Table("events").Fingerprints); got != files {
			t.Errorf("after %s there are %d files of fingerprints, want %d", what, got, files)
		}
	}
	setPosition := func(next uint64) {
		t.Helper()
		if err := table.SetPosition(t.Context(), "pipe", "part", next); err != nil {
			t.Fatal(err)
		}
		p = take(t, table)
	}
	appendDocs(t, p, 0, `{"a":1}`)
	sealed("rows without fingerprints", 0)
	setPosition(0)
	sealed("a position that was set where no fingerprints are", 0)
	appendFingerprinted(t, p, 0, 10)
	appendFingerprinted(t, other, 5, 10)
	sealed("fingerprints", 1)
	appendDocs(t, p, 10, `{"a":1}`)
	sealed("rows behind fingerprints", 0)
	setPosition(4)
	sealed("a position that was set back", 1)
	for range 2 {
		mine, err := committedRanges(table, "pipe", "part")
		if diff := cmp.Diff(event.Ranges{{Count: 4}}, withoutFingerprints(mine)); err != nil || diff != "" {
			t.Errorf("%v (-want +got)\n%s", err, diff)
		}
		theirs, err := committedRanges(table, "pipe", "other")
		if err != nil || len(theirs) != 1 || theirs[0].First != 5 || len(theirs[0].Fingerprints) != 10 {
			t.Errorf("the other partition has %v, %v", theirs, err)
		}
		s.Close()
		s = openStore(t, folder)
		table = openTable(t, s, TableConfig{})
	}
	if err := os.Remove(s.current().Table("events").Path(folder, manifest.FingerprintsName(s.current().Table("events").Fingerprints[0].Number))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := table.TakeOver(t.Context(), "pipe", "part"); err == nil || !strings.Contains(err.Error(), "read fingerprints of table events") {
		t.Errorf("without a file of fingerprints: %v", err)
	}
}

// TestManifestNamesPartitions checks that sealing a file records the committed positions in
// the manifest, sorted, and only for partitions that have some.
func TestManifestNamesPartitions(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	for _, key := range []partKey{{"b", "1"}, {"a", "2"}, {"b", "0"}, {"a", "1"}, {"empty", ""}} {
		p, _, err := table.TakeOver(t.Context(), key.pipeline, key.partition)
		if err != nil {
			t.Fatal(err)
		}
		if key.pipeline != "empty" {
			appendDocs(t, p, 7, `{}`, `{}`)
		}
	}
	seal(t, s)
	want := []*manifest.Partition{
		{Pipeline: "a", Partition: "1", Ranges: [][2]uint64{{7, 2}}}, {Pipeline: "a", Partition: "2", Ranges: [][2]uint64{{7, 2}}},
		{Pipeline: "b", Partition: "0", Ranges: [][2]uint64{{7, 2}}}, {Pipeline: "b", Partition: "1", Ranges: [][2]uint64{{7, 2}}},
	}
	if diff := cmp.Diff(want, s.current().Table("events").Partitions); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	positions, err := table.Positions(t.Context(), "b")
	if diff := cmp.Diff(map[string]event.Ranges{"0": {{First: 7, Count: 2}}, "1": {{First: 7, Count: 2}}}, positions); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// TestJoinedChanges checks which changes of a partition are merged.
func TestJoinedChanges(t *testing.T) {
	plain := func(first, count uint64) manifest.RangeChange {
		return manifest.RangeChange{Range: event.Range{First: first, Count: count}}
	}
	fingerprinted := manifest.RangeChange{Range: event.Range{First: 10, Count: 1, Fingerprints: []uint32{1}}}
	reset := manifest.RangeChange{Reset: true, Range: event.Range{Count: 10}}
	for i, test := range []struct {
		file, nextFile uint64
		change, next   manifest.RangeChange
		want           bool
	}{
		{3, 3, plain(5, 5), plain(10, 2), true},
		{3, 4, plain(5, 5), plain(10, 2), false},
		{3, 3, plain(5, 5), plain(11, 2), false},
		{3, 3, plain(5, 5), plain(9, 2), false},
		{3, 3, plain(5, 5), fingerprinted, false},
		{3, 3, fingerprinted, plain(11, 1), false},
		{3, 3, reset, plain(10, 1), false},
		{3, 3, plain(0, 0), reset, false},
	} {
		c := logChange{test.file, test.change}
		if got := c.joins(test.nextFile, &test.next); got != test.want {
			t.Errorf("%d: %+v and %+v are one: %v", i, test.change, test.next, got)
		}
	}
}

// TestFailedAppendEndsItsReservation repeats a canceled append and takes the partition over.
// With a leaked reservation, both would wait forever.
func TestFailedAppendEndsItsReservation(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	appendDocs(t, p, 0, `{"id":0}`)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Append(canceled, outputOf(1, `{"id":1}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled append: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := p.Append(ctx, outputOf(0, `{"id":0}`, `{"id":1}`)); err != nil {
		t.Fatal(err)
	}
	_, have, err := table.TakeOver(ctx, "pipe", "part")
	if err != nil || !cmp.Equal(event.Ranges{{Count: 2}}, withoutFingerprints(have)) {
		t.Errorf("the new owner has %v, %v", have, err)
	}
	if got := ask(t, s, `SELECT string_agg(id, ' ' ORDER BY id) FROM events`); got != "0 1" {
		t.Errorf("rows %s", got)
	}
}
