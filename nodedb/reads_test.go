package nodedb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// runsOf returns how often a transaction that reads runs, if other sessions change a node between
// its first reads and its commit.
func runsOf(t *testing.T, store *nodedb.Store, read func(tx *nodedb.Tx) error, change func(s *nodedb.Session) error) (runs int) {
	t.Helper()
	other := session(t, store)
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		if err := read(tx); err != nil {
			return err
		}
		if runs++; runs == 1 {
			if err := change(other); err != nil {
				return err
			}
		}
		return tx.Set(nodedb.Name("^written"), runs)
	}))
	return runs
}

// TestConflictsOfManyReads changes one of the many nodes that a transaction has read, and other
// nodes. Only the former makes it run again.
func TestConflictsOfManyReads(t *testing.T) {
	store := open(t, nodedb.Options{NoWait: true})
	p := nodedb.Name("^c")
	for _, reads := range []int{1, 127, 128, 129, 255, 256, 257, 1000} {
		read := func(tx *nodedb.Tx) error {
			for i := range reads {
				if _, err := tx.Get(p.At(i, strings.Repeat("x", i%40))); err != nil {
					return err
				}
			}
			return nil
		}
		for _, i := range []int{0, 1, reads / 2, reads - 1} {
			if i >= reads {
				continue
			}
			at := p.At(i, strings.Repeat("x", i%40))
			for what, change := range map[string]func(s *nodedb.Session) error{
				"set": func(s *nodedb.Session) error { return s.Set(at, time.Now().UnixNano()) }, "killed": func(s *nodedb.Session) error { return s.Kill(at) },
				"killed above": func(s *nodedb.Session) error { return s.Kill(p.At(i)) },
			} {
				if what != "set" {
					check(t, session(t, store).Set(at, 1))
				}
				if runs := runsOf(t, store, read, change); runs != 2 {
					t.Errorf("node %d of %d that were read was %s: %d runs", i, reads, what, runs)
				}
			}
		}
		for _, other := range []nodedb.Path{p.At(reads), p, p.At(0), nodedb.Name("^d").At(0)} {
			if runs := runsOf(t, store, read, func(s *nodedb.Session) error { return s.Set(other, 1) }); runs != 1 {
				t.Errorf("%v, which was not among the %d nodes that were read: %d runs", other, reads, runs)
			}
		}
	}
}

// TestConflictsAreNamed nests transactions without a context that ends: the inner one fails with a
// reason.
func TestConflictsAreNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 10 s")
	}
	t.Parallel()
	store := open(t, nodedb.Options{NoWait: true})
	p := nodedb.Name("^c")
	runs := 0
	err := store.Update(ctx, func(tx *nodedb.Tx) error {
		runs++
		if _, err := tx.Get(p); err != nil {
			return err
		}
		if err := store.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(p, runs) }); err != nil {
			return err
		}
		return tx.Set(p.At(1), runs)
	})
	wantError(t, err, nodedb.ErrTimeout)
	if err == nil || !strings.Contains(err.Error(), "make it in that transaction") || runs != 3 {
		t.Errorf("after %d runs: %v, want 3 and what to do", runs, err)
	}
}

// TestConflictsOfRanges does the same for ranges that a transaction walks. Nodes before a range do
// not conflict; nodes after it may.
func TestConflictsOfRanges(t *testing.T) {
	store := open(t, nodedb.Options{NoWait: true})
	p := nodedb.Name("^r")
	s := session(t, store)
	for i := range 100 {
		check(t, s.Set(p.At(i*10), i))
	}
	walk := func(r nodedb.Range) func(tx *nodedb.Tx) error {
		return func(tx *nodedb.Tx) error {
			for _, err := range tx.Children(ctx, p, r) {
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	for i, test := range []struct {
		read  func(tx *nodedb.Tx) error
		other nodedb.Path
		runs  int
	}{
		{walk(nodedb.Range{From: 200, To: 300}), p.At(250), 2},
		{walk(nodedb.Range{From: 200, To: 300}), p.At(205), 2},
		{walk(nodedb.Range{From: 200, To: 300}), p.At(150), 1},
		{walk(nodedb.Range{From: 300, To: 200, Reverse: true}), p.At(255), 2},
		{walk(nodedb.Range{From: 300, To: 200, Reverse: true}), p.At(355), 1},
		{walk(nodedb.Range{}), p.At(995), 2},
		{walk(nodedb.Range{}), nodedb.Name("^s"), 1},
	} {
		runs := runsOf(t, store, test.read, func(s *nodedb.Session) error { return s.Set(test.other, time.Now().UnixNano()) })
		if runs != test.runs {
			t.Errorf("%d: %v changed: %d runs, want %d", i, test.other, runs, test.runs)
		}
		check(t, s.Kill(test.other))
		for k := range 100 {
			check(t, s.Set(p.At(k*10), k))
		}
	}
	many := func(tx *nodedb.Tx) error { // more ranges than the initial capacity, none adjacent
		for i := range 40 {
			if err := walk(nodedb.Range{From: (i * 7 % 40) * 20, To: (i*7%40)*20 + 10})(tx); err != nil {
				return err
			}
		}
		return nil
	}
	for _, at := range []int{5, 281, 405, 785} {
		if runs := runsOf(t, store, many, func(s *nodedb.Session) error { return s.Set(p.At(at), time.Now().UnixNano()) }); runs != 2 {
			t.Errorf("of 40 ranges, node %d changed: %d runs, want 2", at, runs)
		}
	}
	if runs := runsOf(t, store, many, func(s *nodedb.Session) error { return s.Set(nodedb.Name("^s"), 1) }); runs != 1 {
		t.Errorf("of 40 ranges, another tree changed: %d runs", runs)
	}
}

// TestConflictsEnd sets the node that a transaction has read, from another session, in each of its
// runs. After two conflicts it runs alone, and the other session waits for its commit.
func TestConflictsEnd(t *testing.T) {
	store := open(t, nodedb.Options{NoWait: true})
	other := session(t, store)
	p := nodedb.Name("^r")
	runs, set := 0, make(chan error, 1)
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		if _, err := tx.Get(p); err != nil {
			return err
		}
		switch runs++; runs {
		case 1, 2:
			check(t, other.Set(p, runs))
		case 3:
			go func() { set <- other.Set(p, 3) }()
			select {
			case err := <-set:
				t.Errorf("another session has set the node meanwhile: %v", err)
				set <- err
			case <-time.After(50 * time.Millisecond):
			}
		}
		return tx.Set(p, "alone")
	}))
	if runs != 3 {
		t.Fatalf("%d runs, want 3", runs)
	}
	check(t, <-set)
	want(t, other, p, 3)
}

// TestMergeIsBounded merges a tree below a path that is too long for it: nothing is merged.
func TestMergeIsBounded(t *testing.T) {
	store := open(t, nodedb.Options{NoWait: true})
	s := session(t, store)
	from := nodedb.Name("^from")
	long := strings.Repeat("x", 900)
	check(t, s.Set(from.At("a"), 1))
	check(t, s.Set(from.At("b", long), 2))
	deep := nodedb.Name("^deep")
	var many []any
	for i := range 20 {
		many = append(many, i)
	}
	check(t, s.Set(deep.At("a"), 1))
	check(t, s.Set(deep.At(many...), 2))
	for _, test := range []struct {
		to, from nodedb.Path
		want     error
	}{
		{nodedb.Name("^to").At(strings.Repeat("y", 1000)), from, nodedb.ErrPathTooLong},
		{nodedb.Name("to").At(strings.Repeat("y", 1000)), from, nodedb.ErrPathTooLong},
		{nodedb.Name("^to").At(many[:12]...), deep, nodedb.ErrArgument},
		{nodedb.Name("^to").At(many[:11]...), deep, nil},
		{nodedb.Name("^to").At(strings.Repeat("y", 900)), from, nil},
	} {
		err := s.Merge(ctx, test.to, test.from)
		if !errors.Is(err, test.want) {
			t.Errorf("%.40v: %v, want %v", test.to, err, test.want)
		}
		failed := errors.New("failed")
		inTx := store.Update(ctx, func(tx *nodedb.Tx) error {
			if err := tx.Merge(ctx, test.to, test.from); !errors.Is(err, test.want) {
				t.Errorf("in a transaction, %.40v: %v, want %v", test.to, err, test.want)
			}
			_, below, err := tx.Data(test.to)
			if err != nil || strings.HasPrefix(test.to.String(), "^") && below != (test.want == nil) {
				t.Errorf("in a transaction, %.40v has something below: %v, %v", test.to, below, err)
			}
			return failed
		})
		wantError(t, inTx, failed)
		count, err := s.Count(ctx, test.to)
		if want := uint64(2); err != nil || test.want == nil && count != want || test.want != nil && strings.HasPrefix(test.to.String(), "^") && count != 0 {
			t.Errorf("%.40v has %d nodes, %v", test.to, count, err)
		}
		check(t, s.Kill(test.to))
	}
}

// TestStoreGrows writes more than fits a new store while a snapshot is read, and reopens it.
func TestStoreGrows(t *testing.T) {
	folder := t.TempDir()
	store := openFolder(t, folder, nodedb.Options{NoWait: true})
	p := nodedb.Name("^g")
	value := strings.Repeat("v", 60_000)
	before := must(store.Stat()).MapBytes
	const nodes = 500 // 30 MB
	set := func(i int, value string) {
		check(t, store.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(p.At(i), value) }))
	}
	set(-1, "first")
	check(t, store.Sync())
	check(t, store.View(ctx, func(tx *nodedb.Tx) error {
		want(t, tx, p.At(-1), "first")
		for i := range nodes {
			set(i, fmt.Sprint(i, value))
			if i%100 == 99 {
				check(t, store.Sync())
			}
		}
		want(t, tx, p.At(-1), "first")
		want(t, tx, p.At(0), nil)
		return nil
	}))
	if after := must(store.Stat()).MapBytes; after <= before {
		t.Errorf("there is room for %d bytes, as before", after)
	}
	for range 2 {
		s := must(store.Session())
		for _, i := range []int{0, 1, nodes / 2, nodes - 1} {
			want(t, s, p.At(i), fmt.Sprint(i, value))
		}
		if n := must(s.Count(ctx, p)); n != nodes+1 {
			t.Errorf("%d nodes, want %d", n, nodes+1)
		}
		if faults := must(store.Check(func(fault string) { t.Error(fault) })); faults > 0 {
			t.Errorf("%d faults", faults)
		}
		s.Close()
		check(t, store.Close())
		store = openFolder(t, folder, nodedb.Options{NoWait: true})
	}
}

// TestReadersAreCounted counts readers while snapshots of twelve commits are open.
func TestReadersAreCounted(t *testing.T) {
	store := open(t, nodedb.Options{})
	const snapshots = 12
	var read func(i int)
	read = func(i int) {
		if i == snapshots {
			// The snapshot before the last commit may briefly remain.
			got := 0
			for until := time.Now().Add(10 * time.Second); got != snapshots && time.Now().Before(until); time.Sleep(time.Millisecond) {
				got = must(store.Stat()).Readers
			}
			if got != snapshots {
				t.Errorf("%d readers, want %d", got, snapshots)
			}
			return
		}
		check(t, store.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(nodedb.Name("^a"), i) }))
		check(t, store.Sync())
		check(t, store.View(ctx, func(tx *nodedb.Tx) error {
			read(i + 1)
			want(t, tx, nodedb.Name("^a"), i)
			return nil
		}))
	}
	read(0)
}
