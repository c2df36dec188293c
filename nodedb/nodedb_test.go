package nodedb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

func TestOpenWithoutCore(t *testing.T) {
	s, err := nodedb.Open(t.TempDir(), nodedb.Options{})
	if nodedb.Version() != "" {
		check(t, err)
		check(t, s.Close())
		return
	}
	wantError(t, err, nodedb.ErrUnavailable)
	_, err = nodedb.NewMemory()
	wantError(t, err, nodedb.ErrUnavailable)
	_, err = nodedb.ParsePath("^a")
	wantError(t, err, nodedb.ErrUnavailable)
	wantError(t, nodedb.Name("^a").Err(), nodedb.ErrUnavailable)
}

// TestRoundTrip sets values of each kind and reads them, also after the store was reopened.
func TestRoundTrip(t *testing.T) {
	folder := t.TempDir()
	values := []any{
		"", "Ada", "3", "\x00\xff\n", strings.Repeat("x", 1<<20), true, false, 0, 1, -1, 0.1, -0.5, 1e15, 1 << 53, 1<<53 + 1,
		int64(123456789012345678), 0.1 + 0.2, 1e20, int64(-9223372036854775808), uint64(18446744073709551615),
		127, 128, -128, -129, 1<<15 - 1, 1 << 15, -1 << 15, -1<<15 - 1, 1<<47 - 1, 1 << 47, -1 << 47, -1<<47 - 1, -1 << 53, // ends of what so many bytes hold
	}
	all := func(s *nodedb.Session) {
		for i, v := range values {
			want(t, s, nodedb.Name("^v").At(i), v)
		}
	}
	store := openFolder(t, folder, nodedb.Options{})
	s := session(t, store)
	for i, v := range values {
		check(t, s.Set(nodedb.Name("^v").At(i), v))
	}
	all(s)
	s.Close()
	check(t, store.Close())
	all(session(t, openFolder(t, folder, nodedb.Options{ReadOnly: true})))
}

func TestIntegersAreExact(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	for _, n := range []int64{0, -1, 1 << 53, 1<<53 + 1, -(1<<53 + 1), 999999999999999999, 1<<63 - 1, -1 << 63} {
		p := nodedb.Name("^n").At("x")
		check(t, s.Set(p, n))
		v := must(s.Get(p))
		if got, ok := v.Int(); got != n || !ok {
			t.Errorf("%d became %v %v", n, v.Kind(), v)
		}
	}
}

func TestOnePathOneNode(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	p := nodedb.Name("^n")
	for _, same := range [][]any{{3, 3.0, "3", int8(3), must(nodedb.ValueOf(3))}, {0.5, ".5"}, {"a", []byte("a")}, {1e15, "1000000000000000"}} {
		for _, one := range same[1:] {
			if p.At(one) != p.At(same[0]) {
				t.Errorf("%v and %v are two nodes", p.At(one), p.At(same[0]))
			}
		}
	}
	for _, text := range []string{`^n(3,"a""b",-.5,"")`, `^n`, `^n($C(0)_$ZCH(255)_"x")`} {
		p, err := nodedb.ParsePath(text)
		check(t, err)
		if p.String() != text {
			t.Errorf("%s is printed as %v", text, p)
		}
		back := nodedb.Name(p.Name())
		for _, subscript := range p.Subscripts() {
			back = back.At(subscript)
		}
		if back != p {
			t.Errorf("%v has the parts of %v", p, back)
		}
		check(t, s.Set(p, 1))
	}
	if parent := p.At(1, 2).Parent(); parent != p.At(1) || !p.Parent().IsZero() {
		t.Errorf("parents %v, %v", parent, p.Parent())
	}
}

func TestInvalidPaths(t *testing.T) {
	open(t, nodedb.Options{})
	deep := nodedb.Name("^a")
	for i := range nodedb.SubscriptsMax {
		deep = deep.At(i)
	}
	check(t, deep.Err())
	for name, p := range map[string]nodedb.Path{
		"no name": nodedb.Name(""), "a name with a digit first": nodedb.Name("^1"), "an empty stored name": nodedb.Name("^"),
		"32 subscripts": deep.At(1), "a boolean": nodedb.Name("^a").At(true), "nil": nodedb.Name("^a").At(nil),
		"no number": nodedb.Name("^a").At(math.NaN()), "the zero path": nodedb.Path{}.At(1),
		"a struct": nodedb.Name("^a").At(struct{}{}),
	} {
		if !errors.Is(p.Err(), nodedb.ErrArgument) {
			t.Errorf("%s: %v has the error %v", name, p, p.Err())
		}
	}
	if err := nodedb.Name("^a").At("x", 1, true).Err(); err == nil || !strings.Contains(err.Error(), "subscript 3 of ^a is true") {
		t.Errorf("a boolean behind two subscripts: %v", err)
	}
	wantError(t, nodedb.Name("^a").At(strings.Repeat("x", nodedb.PathMax)).Err(), nodedb.ErrPathTooLong)
	for _, text := range []string{"", "^", "^a(", `^a("`, "^a(1)x", "^a(,)", "^a(1e5x)"} {
		if p, err := nodedb.ParsePath(text); err == nil {
			t.Errorf("%q is read as %v", text, p)
		}
	}
}

func TestOperations(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	p := nodedb.Name("^o")
	want(t, s, p, nil)
	if done := must(s.SetNew(p, 1)); !done {
		t.Error("SetNew did not set a new node")
	}
	if done := must(s.SetNew(p, 2)); done {
		t.Error("SetNew replaced a value")
	}
	if done := must(s.CompareAndSet(p, 2, 3)); done {
		t.Error("CompareAndSet replaced another value")
	}
	if done := must(s.CompareAndSet(p, 1, 3)); !done {
		t.Error("CompareAndSet did not replace the value")
	}
	if done := must(s.CompareAndSet(p.At("x"), nil, 4)); !done {
		t.Error("CompareAndSet did not set a new node")
	}
	want(t, s, p, 3)
	if value, below, err := s.Data(p); !value || !below || err != nil {
		t.Errorf("Data: %t %t %v", value, below, err)
	}
	for range 3 {
		must(s.Increment(p.At("sum"), 0.1))
	}
	want(t, s, p.At("sum"), 0.3)
	if next := must(s.Next(p.At("sum"))); next != p.At("x") {
		t.Errorf("the node after sum is %v", next)
	}
	if first := must(s.Previous(p.At("sum"))); !first.IsZero() {
		t.Errorf("the node before sum is %v", first)
	}
	if n := must(s.Count(ctx, p)); n != 3 {
		t.Errorf("%d nodes, want 3", n)
	}
	check(t, s.Merge(ctx, nodedb.Name("^copy").At(1), p))
	want(t, s, nodedb.Name("^copy").At(1, "x"), 4)
	wantError(t, s.Merge(ctx, p.At("y"), p), nodedb.ErrMerge)
	check(t, s.KillValue(p))
	want(t, s, p, nil)
	want(t, s, p.At("x"), 4)
	check(t, s.Kill(p))
	want(t, s, p.At("x"), nil)
	want(t, s, nodedb.Name("^copy").At(1, "x"), 4)
}

// TestShortNames merges nodes with the shortest possible paths.
func TestShortNames(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	for _, names := range [][2]string{{"a", "b"}, {"^a", "^b"}, {"a", "^b"}, {"^c", "b"}} {
		to, from := nodedb.Name(names[0]), nodedb.Name(names[1])
		check(t, s.Set(from, names[0]))
		check(t, s.Merge(ctx, to, from))
		want(t, s, to, names[0])
	}
}

// TestChildrenOfPages lists children from the pages of a store, where some have descendants between
// them.
func TestChildrenOfPages(t *testing.T) {
	store := open(t, nodedb.Options{})
	s, p := session(t, store), nodedb.Name("^c")
	subscripts := []any{-1, 0, 7, 300, "a", "bb", "bba", "bbz", "bc", "c", "cccc", "d"}
	for below := range 1 << len(subscripts) {
		if below%37 != 0 {
			continue
		}
		check(t, s.Kill(p))
		for i, subscript := range subscripts {
			check(t, s.Set(p.At(subscript), i))
			if below>>i&1 == 1 {
				check(t, s.Set(p.At(subscript, "below"), "x"))
			}
		}
		check(t, store.Sync())
		for _, reverse := range []bool{false, true} {
			var got []string
			for child, err := range s.Children(ctx, p, nodedb.Range{Reverse: reverse}) {
				check(t, err)
				got = append(got, fmt.Sprint(child.Subscript, "=", child.Value))
			}
			if reverse {
				slices.Reverse(got)
			}
			for i, subscript := range subscripts {
				if expected := fmt.Sprint(subscript, "=", i); i >= len(got) || got[i] != expected || len(got) != len(subscripts) {
					t.Fatalf("descendants %b, reverse %t: the children are %v, want %s at %d", below, reverse, got, expected, i)
				}
			}
		}
	}
}

func TestTimeToLive(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	p := nodedb.Name("^t")
	if found := must(s.Expire(p, time.Hour)); found {
		t.Error("a missing node has a time to live")
	}
	check(t, s.Set(p, 1))
	must(s.Expire(p, time.Hour))
	if ttl, limited, err := s.TTL(p); !limited || ttl > time.Hour || ttl < time.Hour-time.Minute || err != nil {
		t.Errorf("TTL: %v %t %v", ttl, limited, err)
	}
	must(s.Persist(p))
	if _, limited, err := s.TTL(p); limited || err != nil {
		t.Errorf("the limit is still there: %v", err)
	}
	must(s.Expire(p, time.Millisecond))
	for end := time.Now().Add(10 * time.Second); must(s.Get(p)).Exists(); {
		if time.Now().After(end) {
			t.Fatal("the node does not expire")
		}
		time.Sleep(time.Millisecond)
	}
	_, err := s.Expire(p, -1)
	wantError(t, err, nodedb.ErrArgument)
}

func TestChildren(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	p := nodedb.Name("^c")
	subscripts := []any{"", -1.5, 0, 0.5, 2, 10, "A", "a", "é"}
	for i := len(subscripts) - 1; i >= 0; i-- {
		check(t, s.Set(p.At(subscripts[i]), i))
		check(t, s.Set(p.At(subscripts[i], "below"), i))
	}
	check(t, s.Set(p.At("b", "below"), "a child without a value"))
	list := func(r nodedb.Range) (all []string) {
		t.Helper()
		for child, err := range s.Children(ctx, p, r) {
			check(t, err)
			if r.NoValues == child.Value.Exists() && child.Subscript.String() != "b" {
				t.Errorf("child %v has the value %v", child.Subscript, child.Value)
			}
			all = append(all, child.Subscript.String())
		}
		return all
	}
	for _, test := range []struct {
		name string
		r    nodedb.Range
		want string
	}{
		{"all", nodedb.Range{}, ",-1.5,0,0.5,2,10,A,a,b,é"},
		{"reverse", nodedb.Range{Reverse: true, NoValues: true}, "é,b,a,A,10,2,0.5,0,-1.5,"},
		{"from", nodedb.Range{From: 1}, "2,10,A,a,b,é"},
		{"to", nodedb.Range{To: "9"}, ",-1.5,0,0.5,2"},
		{"both", nodedb.Range{From: 0, To: "A"}, "0,0.5,2,10,A"},
		{"both, reverse", nodedb.Range{From: "A", To: 0.5, Reverse: true}, "A,10,2,0.5"},
		{"limit", nodedb.Range{Limit: 3}, ",-1.5,0"},
		{"empty", nodedb.Range{From: 3, To: 4}, ""},
	} {
		if got := strings.Join(list(test.r), ","); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	names := 0
	for child, err := range s.Children(ctx, nodedb.Path{}, nodedb.Range{}) {
		check(t, err)
		if names++; child.Subscript.String() != "^c" {
			t.Errorf("name %q", child.Subscript)
		}
	}
	if names != 1 {
		t.Errorf("%d names", names)
	}
}

func TestWalk(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	p := nodedb.Name("^w")
	paths := []nodedb.Path{p, p.At(1, 2), p.At(1, 2, 3), p.At(3), p.At("a", "b")}
	for i, path := range paths {
		check(t, s.Set(path, i))
	}
	check(t, s.Set(nodedb.Name("^x"), "another name"))
	list := func(from nodedb.Path, r nodedb.Range) (all []nodedb.Path) {
		for node, err := range s.Walk(ctx, from, r) {
			check(t, err)
			all = append(all, node.Path)
		}
		return all
	}
	if got := list(p, nodedb.Range{}); !slices.Equal(got, paths) {
		t.Errorf("walked %v", got)
	}
	if got := list(p.At(1), nodedb.Range{}); !slices.Equal(got, paths[1:3]) {
		t.Errorf("walked %v", got)
	}
	reversed := slices.Clone(paths)
	slices.Reverse(reversed)
	if got := list(p, nodedb.Range{Reverse: true}); !slices.Equal(got, reversed) {
		t.Errorf("walked %v", got)
	}
	if got := list(nodedb.Path{}, nodedb.Range{Limit: 6}); len(got) != 6 || got[5] != nodedb.Name("^x") {
		t.Errorf("walked %v", got)
	}
}

// TestChangesDuringIteration writes after the position of an iteration, and deletes items that it
// has returned.
func TestChangesDuringIteration(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	p := nodedb.Name("^c")
	check(t, s.Set(p.At(0), 0))
	n := 0
	for child, err := range s.Children(ctx, p, nodedb.Range{}) {
		check(t, err)
		at, _ := child.Subscript.Int()
		if n++; at < 999 {
			check(t, s.Set(p.At(at+1), at))
		}
		check(t, s.Kill(p.At(at)))
	}
	if n != 1000 {
		t.Errorf("%d children, want 1000", n)
	}
}

func TestUpdate(t *testing.T) {
	store := open(t, nodedb.Options{})
	p := nodedb.Name("^u")
	failed := errors.New("failed")
	err := store.Update(ctx, func(tx *nodedb.Tx) error {
		check(t, tx.Set(p, 1))
		want(t, tx, p, 1)
		return failed
	})
	wantError(t, err, failed)
	var kept *nodedb.Tx
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		kept = tx
		want(t, tx, p, nil)
		check(t, tx.Set(p, 2))
		wantError(t, tx.Update(ctx, func(inner *nodedb.Tx) error {
			check(t, inner.Set(p, 3))
			check(t, inner.Set(p.At(1), 3))
			return failed
		}), failed)
		want(t, tx, p, 2)
		return tx.Update(ctx, func(inner *nodedb.Tx) error { return inner.Set(p.At(2), 4) })
	}))
	_, err = kept.Get(p)
	wantError(t, err, nodedb.ErrClosed)
	check(t, store.View(ctx, func(tx *nodedb.Tx) error {
		want(t, tx, p, 2)
		want(t, tx, p.At(1), nil)
		want(t, tx, p.At(2), 4)
		wantError(t, tx.Set(p, 5), nodedb.ErrReadOnly)
		wantError(t, tx.Kill(p), nodedb.ErrReadOnly)
		wantError(t, tx.Update(ctx, nil), nodedb.ErrReadOnly)
		return nil
	}))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	wantError(t, store.Update(cancelled, nil), context.Canceled)
	wantError(t, store.View(cancelled, nil), context.Canceled)
}

// TestPanicRollsBack panics in a transaction, and then uses its session again.
func TestPanicRollsBack(t *testing.T) {
	store := open(t, nodedb.Options{})
	p := nodedb.Name("^p")
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			_ = store.Update(ctx, func(tx *nodedb.Tx) error {
				check(t, tx.Set(p, 1))
				return tx.Update(ctx, func(*nodedb.Tx) error { panic("a fault of the caller") })
			})
			t.Error("the panic does not reach the caller")
		}()
	}
	check(t, store.View(ctx, func(tx *nodedb.Tx) error {
		want(t, tx, p, nil)
		return nil
	}))
}

// TestConcurrentUpdates increments nodes by read and write from several goroutines.
func TestConcurrentUpdates(t *testing.T) {
	const goroutines, each = 8, 50
	store := open(t, nodedb.Options{NoWait: true})
	p := nodedb.Name("^n")
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range each {
				err := store.Update(ctx, func(tx *nodedb.Tx) error {
					v, err := tx.Get(p)
					if err != nil {
						return err
					}
					n, _ := v.Int()
					return tx.Set(p, n+1)
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	want(t, session(t, store), p, goroutines*each)
}

func TestRestartOnRequest(t *testing.T) {
	runs := 0
	p := nodedb.Name("^r")
	store := open(t, nodedb.Options{})
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		want(t, tx, p, nil)
		check(t, tx.Set(p, runs))
		if runs++; runs < 3 {
			return fmt.Errorf("not yet: %w", nodedb.ErrConflict)
		}
		return nil
	}))
	want(t, session(t, store), p, 2)
}

func TestSnapshot(t *testing.T) {
	store := open(t, nodedb.Options{})
	s := session(t, store)
	p := nodedb.Name("^s")
	check(t, s.Set(p, 1))
	check(t, store.View(ctx, func(tx *nodedb.Tx) error {
		want(t, tx, p, 1)
		check(t, s.Set(p, 2))
		want(t, tx, p, 1)
		return nil
	}))
	want(t, s, p, 2)
}

func TestMemory(t *testing.T) {
	store := open(t, nodedb.Options{})
	one, other := session(t, store), session(t, store)
	p := nodedb.Name("local").At(1)
	check(t, one.Set(p, 1))
	want(t, one, p, 1)
	want(t, other, p, nil)
	alone, err := nodedb.NewMemory()
	check(t, err)
	defer alone.Close()
	check(t, alone.Set(p, 2))
	want(t, alone, p, 2)
	if err := alone.Set(nodedb.Name("^stored"), 1); err == nil {
		t.Error("a session without a store has set a stored node")
	}
}

func TestClosed(t *testing.T) {
	store := open(t, nodedb.Options{})
	s := session(t, store)
	if err := store.Close(); err == nil {
		t.Fatal("the store closed under an open session")
	}
	p := nodedb.Name("^c")
	check(t, s.Set(p, 1))
	for range s.Children(ctx, nodedb.Path{}, nodedb.Range{}) {
		s.Close()
	}
	s.Close()
	wantError(t, s.Set(p, 1), nodedb.ErrClosed)
	check(t, store.Close())
	wantError(t, store.Close(), nodedb.ErrClosed)
	wantError(t, store.Sync(), nodedb.ErrClosed)
	wantError(t, store.Update(ctx, nil), nodedb.ErrClosed)
	_, err := store.Session()
	wantError(t, err, nodedb.ErrClosed)
	_, err = store.Stat()
	wantError(t, err, nodedb.ErrClosed)
}

func TestLocks(t *testing.T) {
	store := open(t, nodedb.Options{})
	one, other := session(t, store), session(t, store)
	p := nodedb.Name("^l")
	check(t, one.Lock(ctx, p.At(1), p.At(2)))
	check(t, one.Lock(ctx, p.At(1)))
	soon, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	for _, busy := range []nodedb.Path{p, p.At(1), p.At(1, "below")} {
		err := other.Lock(soon, busy)
		wantError(t, err, nodedb.ErrTimeout)
		wantError(t, err, context.DeadlineExceeded)
	}
	check(t, other.Lock(ctx, p.At(3)))
	if held := must(one.Unlock(p.At(1))); !held {
		t.Error("the lock was not held")
	}
	if held := must(other.Unlock(p.At(1))); held {
		t.Error("a lock of another session was held")
	}
	cancelled, cancel := context.WithCancel(ctx)
	go func() {
		time.Sleep(20 * time.Millisecond)
		cancel()
	}()
	wantError(t, other.Lock(cancelled, p.At(1)), context.Canceled)
	one.Close()
	check(t, other.Lock(ctx, p.At(1)))
	other.UnlockAll()
}

func TestIterationEndsWithContext(t *testing.T) {
	s := session(t, open(t, nodedb.Options{}))
	p := nodedb.Name("^i")
	for i := range 1000 {
		check(t, s.Set(p.At(i), i))
	}
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	n, last := 0, error(nil)
	for _, err := range s.Walk(cancelled, p, nodedb.Range{}) {
		cancel()
		n, last = n+1, err
	}
	if n >= 1000 || !errors.Is(last, context.Canceled) {
		t.Errorf("%d nodes, then %v", n, last)
	}
	_, err := s.Count(cancelled, p)
	wantError(t, err, context.Canceled)
}

func TestLimits(t *testing.T) {
	store := open(t, nodedb.Options{TransactionBytes: 1 << 20})
	p := nodedb.Name("^l")
	s := session(t, store)
	check(t, s.Set(p, strings.Repeat("x", 1000)))
	wantError(t, s.Set(p, strings.Repeat("x", nodedb.ValueMax+1)), nodedb.ErrValueTooLong)
	wantError(t, store.Update(ctx, func(tx *nodedb.Tx) error {
		for i := range 10_000 {
			if err := tx.Set(p.At(i), strings.Repeat("x", 1000)); err != nil {
				return err
			}
		}
		return nil
	}), nodedb.ErrTransactionTooLarge)
	if n := must(s.Count(ctx, p)); n != 1 {
		t.Errorf("%d nodes of a transaction that was too large", n-1)
	}
	_, err := s.Increment(p.At("big"), "1E47")
	wantError(t, err, nodedb.ErrNumberRange)
}

// TestReadOnlyBesideWriter opens a folder read-only that the process also has open for writing. No
// operation can change nodes through the read-only store.
func TestReadOnlyBesideWriter(t *testing.T) {
	folder := t.TempDir()
	writer := openFolder(t, folder, nodedb.Options{})
	p, tree := nodedb.Name("^r"), nodedb.Name("tree")
	check(t, session(t, writer).Set(p, 1))
	reader := openFolder(t, folder, nodedb.Options{ReadOnly: true})
	s := session(t, reader)
	check(t, s.Set(tree.At(1), "mine")) // the session owns its trees in memory
	inTx := func(f func(tx *nodedb.Tx) error) func() error {
		return func() error { return s.Update(ctx, f) }
	}
	for name, change := range map[string]func() error{
		"set":             func() error { return s.Set(p, 2) },
		"merge":           func() error { return s.Merge(ctx, p, tree) },
		"update":          inTx(func(tx *nodedb.Tx) error { return tx.Set(p, 2) }),
		"merge in update": inTx(func(tx *nodedb.Tx) error { return tx.Merge(ctx, p, tree) }),
		"inner update":    inTx(func(tx *nodedb.Tx) error { return tx.Update(ctx, func(tx *nodedb.Tx) error { return tx.Kill(p) }) }),
		"store update":    func() error { return reader.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(p, 2) }) },
		"load": func() error {
			_, err := reader.Load(ctx, strings.NewReader(`^r(1)="mine"`), nil)
			return err
		},
	} {
		if err := change(); !errors.Is(err, nodedb.ErrReadOnly) {
			t.Errorf("%s: error %v, want one that is %v", name, err, nodedb.ErrReadOnly)
		}
	}
	check(t, s.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(tree, 2) }))
	want(t, s, tree, 2)
	want(t, session(t, writer), p, 1)
	want(t, session(t, writer), p.At(1), nil)
}

// TestUpdateInsideUpdate changes, in a separate transaction, a node that the enclosing transaction
// has read, so that the latter never commits. Both end soon after their context.
func TestUpdateInsideUpdate(t *testing.T) {
	store := open(t, nodedb.Options{NoWait: true})
	p := nodedb.Name("^n")
	soon, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	runs := 0
	err := store.Update(soon, func(tx *nodedb.Tx) error {
		runs++
		if _, err := tx.Get(p); err != nil {
			return err
		}
		if err := store.Update(soon, func(tx *nodedb.Tx) error { return tx.Set(p, runs) }); err != nil {
			return err
		}
		return tx.Set(p.At(1), runs)
	})
	wantError(t, err, context.DeadlineExceeded)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the update took %v after a context of 500ms", took)
	}
	if runs < 3 {
		t.Errorf("%d runs, want at least 3", runs)
	}
	check(t, store.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(p, "free") })) // no transaction runs alone any more
}

func TestReadOnly(t *testing.T) {
	folder := t.TempDir()
	openFolder(t, folder, nodedb.Options{})
	s := session(t, openFolder(t, folder, nodedb.Options{ReadOnly: true}))
	wantError(t, s.Set(nodedb.Name("^r"), 1), nodedb.ErrReadOnly)
	if _, err := nodedb.Open(folder+"/nothing", nodedb.Options{ReadOnly: true}); err == nil {
		t.Error("opened a folder that does not exist")
	}
}

func TestBackup(t *testing.T) {
	folder := t.TempDir()
	store := openFolder(t, folder+"/store", nodedb.Options{})
	s := session(t, store)
	p := nodedb.Name("^b")
	for i := range 1000 {
		check(t, s.Set(p.At(i), strings.Repeat("x", 100)))
	}
	check(t, store.Backup(folder+"/backup"))
	if err := store.Backup(folder + "/backup"); err == nil {
		t.Error("a backup replaced another")
	}
	check(t, s.Kill(p))
	check(t, nodedb.Restore(folder+"/backup", folder+"/restored"))
	restored := openFolder(t, folder+"/restored", nodedb.Options{})
	if n := must(session(t, restored).Count(ctx, p)); n != 1000 {
		t.Errorf("%d nodes after the restore", n)
	}
	faults, err := restored.Check(func(fault string) { t.Error(fault) })
	check(t, err)
	if faults != 0 {
		t.Errorf("%d faults", faults)
	}
	stat := must(restored.Stat())
	if stat.Nodes != 1000 || stat.Processes != 1 || stat.UsedBytes == 0 {
		t.Errorf("%+v", stat)
	}
	s.Close()
	check(t, store.Close())
	check(t, nodedb.Compact(folder+"/store"))
	want(t, session(t, openFolder(t, folder+"/store", nodedb.Options{})), p.At(1), nil)
}

// TestCheckOfTheLimits checks a store with the longest and deepest possible paths.
func TestCheckOfTheLimits(t *testing.T) {
	store := open(t, nodedb.Options{})
	s := session(t, store)
	name := nodedb.Name("^limits")
	room := nodedb.PathMax
	for name.At(strings.Repeat("x", room)).Err() != nil {
		room--
	}
	longest, deepest := name.At(strings.Repeat("x", room)), name
	for i := range nodedb.SubscriptsMax {
		deepest = deepest.At(i)
	}
	for _, p := range []nodedb.Path{longest, deepest} {
		check(t, s.Set(p, 1))
		if found := must(s.Expire(p, time.Hour)); !found {
			t.Errorf("%v does not exist", p)
		}
	}
	if faults := must(store.Check(func(fault string) { t.Error(fault) })); faults != 0 {
		t.Errorf("%d faults", faults)
	}
}

// TestCheckFindsDamage damages bytes of a node in the file of a store, and checks it.
func TestCheckFindsDamage(t *testing.T) {
	const second = "\xc0second\x00\x44two"
	for name, test := range map[string]struct {
		stored, spoilt string
		want           []string // prefixes of the faults
	}{
		"path":     {second, "\xc0s\x01cond\x00\x44two", []string{"a key does not decode: ", ""}},
		"order":    {second, "\xc0zecond\x00\x44two", []string{`the checksum of ^damaged("zecond") does not match`, `^damaged("third") is out of order`}},
		"type":     {second, "\xc0second\x00\x7ftwo", []string{`the value of ^damaged("second") does not decode`}},
		"value":    {second, "\xc0second\x00\x44tvo", []string{`the checksum of ^damaged("second") does not match`}},
		"checksum": {second, "\xc0second\x00\x04two", []string{`the checksum of ^damaged("second") does not match`}},
	} {
		folder := t.TempDir()
		store := openFolder(t, folder, nodedb.Options{})
		s := session(t, store)
		for subscript, value := range map[string]string{"first": "one", "second": "two", "third": "three"} {
			check(t, s.Set(nodedb.Name("^damaged").At(subscript), value))
		}
		s.Close()
		check(t, store.Close())
		file := filepath.Join(folder, "data.mdb")
		content := must(os.ReadFile(file))
		if !bytes.Contains(content, []byte(test.stored)) {
			t.Fatalf("%s: %q is not in the file", name, test.stored)
		}
		check(t, os.WriteFile(file, bytes.ReplaceAll(content, []byte(test.stored), []byte(test.spoilt)), 0o600))
		var found []string
		spoilt := openFolder(t, folder, nodedb.Options{})
		faults := must(spoilt.Check(func(fault string) { found = append(found, fault) }))
		if faults != len(test.want) || !slices.EqualFunc(found, test.want, strings.HasPrefix) {
			t.Errorf("%s: %d faults, %q; want %q", name, faults, found, test.want)
		}
		check(t, spoilt.Close())
		verified := openFolder(t, folder, nodedb.Options{Verify: true, ReadOnly: true})
		s = session(t, verified)
		_, err := s.Get(nodedb.Name("^damaged").At("second"))
		for _, e := range s.Walk(ctx, nodedb.Name("^damaged"), nodedb.Range{}) {
			err = errors.Join(err, e)
		}
		for _, e := range s.Children(ctx, nodedb.Name("^damaged"), nodedb.Range{}) {
			err = errors.Join(err, e)
		}
		if !errors.Is(err, nodedb.ErrCorrupt) {
			t.Errorf("%s, read with Verify: %v, want ErrCorrupt", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	open(t, nodedb.Options{})
	for _, good := range []string{"a", "z", "A", "Z", "^a", "^Z", "%", "^%a", "aZ09", "zz9"} {
		if err := nodedb.Name(good).Err(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"0", "9a", "a_", "a-b", "^^a", "a%", "a@", "a[", "a`", "a{", "a/", "a:", "é", "a b", "@", "[", "`", "{"} {
		if err := nodedb.Name(bad).Err(); !errors.Is(err, nodedb.ErrArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
