//go:build cgo

package eventstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

// together runs appends so that one commit takes them all, in their order.
func together(t *testing.T, s *Store, appends ...func() error) {
	t.Helper()
	began, more := make(chan struct{}), make(chan struct{})
	held := make(chan error)
	go func() {
		held <- s.inTransaction(context.Background(), func(*conn) (func(), error) {
			close(began)
			<-more
			return func() {}, nil
		})
	}()
	<-began
	results := make([]chan error, len(appends))
	for i, f := range appends {
		results[i] = make(chan error, 1)
		go func() { results[i] <- f() }()
		time.Sleep(50 * time.Millisecond) // until it waits for the writer
	}
	close(more)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		if err := <-result; err != nil {
			t.Errorf("append %d: %v", i, err)
		}
	}
}

func TestTwoTablesGrowInOneCommit(t *testing.T) {
	s := openStore(t, t.TempDir())
	var appends []func() error
	for _, name := range []string{"events", "audit"} {
		table, err := s.Table(name, TableConfig{})
		if err != nil {
			t.Fatal(err)
		}
		p := take(t, table)
		appends = append(appends, func() error { return p.Append(context.Background(), output(0, `{"id":1}`)) })
	}
	together(t, s, appends...)
	if got := ask(t, s, `SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM audit)`); got != "1,1" {
		t.Errorf("rows of the tables: %s, want 1,1", got)
	}
}

// TestJoiningForgetsNothing has ranges joined in the commit that adds others,
// which come out of order.
func TestJoiningForgetsNothing(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	appendDocs(t, take(t, table), 0, `{"id":0}`)
	p := take(t, table) // the next commit joins
	var appends []func() error
	for _, first := range []uint64{2, 6, 4, 10} {
		appends = append(appends, func() error {
			return p.Append(context.Background(), output(first, fmt.Sprintf(`{"id":%d}`, first), fmt.Sprintf(`{"id":%d}`, first+1)))
		})
	}
	together(t, s, appends...)
	var have event.Ranges
	err := s.inTransaction(context.Background(), func(*conn) (func(), error) {
		have = table.partitions[p.key].committed
		return func() {}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(event.Ranges{{First: 0, Count: 1}, {First: 2, Count: 6}, {First: 10, Count: 2}}, have); diff != "" {
		t.Errorf("what the writer knows (-want +got):\n%s", diff)
	}
}

// printed returns the positions that the store has with and without fingerprints.
func printed(t *testing.T, table *Table, p *Partition) (with, without event.Ranges) {
	t.Helper()
	have, err := committedRanges(table, p.key.pipeline, p.key.partition)
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
	appendPrinted(t, take(t, table), 0, joinedMin+1)
	appendPrinted(t, take(t, table), joinedMin+1, 10)
	err := s.inTransaction(context.Background(), func(tx *conn) (func(), error) {
		_, err := tx.run(`UPDATE perigee.ranges SET committed = committed - ?`, uint64(printAge.Seconds())+1)
		return func() {}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	p := take(t, table)
	appendPrinted(t, p, joinedMin+11, 10)
	with, without := printed(t, table, p)
	if diff := cmp.Diff(event.Ranges{{First: joinedMin + 11, Count: 10}}, with); diff != "" {
		t.Errorf("with fingerprints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(event.Ranges{{Count: joinedMin + 11}}, without); diff != "" {
		t.Errorf("without fingerprints (-want +got):\n%s", diff)
	}
}

func TestFingerprintsOfTooManyEventsGo(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	appendPrinted(t, take(t, table), 0, 10)
	out := &event.Output{Range: event.Range{First: 10, Count: printEvents}}
	if err := take(t, table).Append(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	p := take(t, table)
	appendPrinted(t, p, 10+printEvents, 10)
	with, without := printed(t, table, p)
	if diff := cmp.Diff(event.Ranges{{First: 10 + printEvents, Count: 10}}, with); diff != "" {
		t.Errorf("with fingerprints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(event.Ranges{{Count: 10 + printEvents}}, without); diff != "" {
		t.Errorf("without fingerprints (-want +got):\n%s", diff)
	}
}
