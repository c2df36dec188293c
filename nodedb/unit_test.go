package nodedb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// openUnit opens a unit for a test, which it skips in a build without the database.
func openUnit(t testing.TB, folder string, o nodedb.UnitOptions) *nodedb.Unit {
	t.Helper()
	u, err := nodedb.OpenUnit(folder, o)
	return closeAfter(t, u, err)
}

// openUnitInSlices opens a unit that writes small slices in one transaction of LMDB, so that tests
// with few nodes see parts of a delta in the file.
func openUnitInSlices(t testing.TB, folder string, o nodedb.UnitOptions, nodes int) *nodedb.Unit {
	t.Helper()
	u, err := nodedb.OpenUnitInSlices(folder, o, nodes)
	return closeAfter(t, u, err)
}

func closeAfter(t testing.TB, u *nodedb.Unit, err error) *nodedb.Unit {
	t.Helper()
	if errors.Is(err, nodedb.ErrUnavailable) {
		t.Skip("needs cgo and the build tag lmdb")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil && !errors.Is(err, nodedb.ErrClosed) {
			t.Error(err)
		}
	})
	return u
}

var lazy = nodedb.UnitOptions{NoSync: true, FlushAge: time.Hour}

var start = time.UnixMilli(1_700_000_000_000)

// freeze makes a delta with the changes of f.
func freeze(t testing.TB, u *nodedb.Unit, clock time.Time, f func(tx *nodedb.Tx)) *nodedb.Delta {
	t.Helper()
	d, err := u.Begin(clock)
	check(t, err)
	f(d.Tx())
	check(t, d.Freeze())
	return d
}

func commit(t testing.TB, u *nodedb.Unit, d *nodedb.Delta) {
	t.Helper()
	check(t, u.Commit(d, u.Last()+1, 0))
}

func wantCommitted(t testing.TB, u *nodedb.Unit, p nodedb.Path, value any) {
	t.Helper()
	check(t, u.View(ctx, func(tx *nodedb.Tx) error {
		want(t, tx, p, value)
		return nil
	}))
}

// TestManyChangesWait changes and kills so many nodes in memory that their index grows and has
// collisions: later deltas read the changes, and not what is on the disk.
func TestManyChangesWait(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	const nodes = 5000
	p := nodedb.Name("^p")
	setAll := func(value int) {
		commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) {
			for i := range nodes {
				check(t, tx.Set(p.At(i, "x"), value))
			}
		}))
	}
	setAll(1)
	check(t, u.Sync(ctx))
	for round := range 3 {
		setAll(2 + round)
		commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) {
			for i := round; i < nodes; i += 3 {
				check(t, tx.Kill(p.At(i)))
			}
		}))
		commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) {
			for i := range nodes {
				var value any
				if i%3 != round {
					value = 2 + round
				}
				want(t, tx, p.At(i, "x"), value)
			}
		}))
	}
}

func TestDeltasInFlight(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	p, list := nodedb.Name("^p"), nodedb.Name("^list")
	commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) {
		check(t, tx.Set(p, "committed"))
		for i := range 10 {
			check(t, tx.Set(list.At(i), i))
		}
	}))
	first := freeze(t, u, start, func(tx *nodedb.Tx) {
		want(t, tx, p, "committed")
		check(t, tx.Set(p, "first"))
		check(t, tx.Kill(list.At(3)))
	})
	second := freeze(t, u, start, func(tx *nodedb.Tx) {
		want(t, tx, p, "first")
		want(t, tx, list.At(3), nil)
		check(t, tx.Kill(list))
		check(t, tx.Set(list.At(20), "second"))
	})
	third, err := u.Begin(start)
	check(t, err)
	var found []string
	for node, err := range third.Tx().Walk(ctx, list, nodedb.Range{}) {
		check(t, err)
		found = append(found, node.Path.String())
	}
	if got := strings.Join(found, " "); got != "^list(20)" {
		t.Errorf("the third delta sees %s, want ^list(20)", got)
	}
	wantCommitted(t, u, p, "committed")
	wantError(t, u.Commit(second, 2, 0), nodedb.ErrLevel)
	wantError(t, u.Commit(third, 2, 0), nodedb.ErrLevel)
	wantError(t, u.Commit(first, 3, 0), nodedb.ErrArgument)
	_, err = u.Begin(start)
	wantError(t, err, nodedb.ErrLevel)
	check(t, u.Commit(first, 2, 0))
	wantCommitted(t, u, p, "first")
	want(t, third.Tx(), list.At(4), nil)
	check(t, u.Commit(second, 3, 0))
	want(t, third.Tx(), list.At(20), "second")
	wantError(t, u.Commit(second, 4, 0), nodedb.ErrClosed)
	check(t, third.Tx().Set(p, "third"))
	if third.Bytes() == 0 || third.Session() == nil {
		t.Errorf("an open delta has %d bytes, session %v", third.Bytes(), third.Session())
	}
	u.Drop()
	if third.Session() != nil || third.Bytes() != 0 {
		t.Errorf("a dropped delta has %d bytes, session %v", third.Bytes(), third.Session())
	}
	wantError(t, third.Tx().Set(p, 1), nodedb.ErrClosed)
	wantError(t, third.Freeze(), nodedb.ErrClosed)
	wantError(t, u.Commit(third, 4, 0), nodedb.ErrClosed)
	wantCommitted(t, u, p, "first")
	for range 16 {
		freeze(t, u, start, func(tx *nodedb.Tx) { must(tx.Increment(p.At("n"), 1)) })
	}
	_, err = u.Begin(start)
	wantError(t, err, nodedb.ErrLevel)
	if s := must(u.Stats()); s.InFlight != 16 || s.Last != 3 || s.WaitingNodes == 0 {
		t.Errorf("statistics %+v, want 16 deltas in flight after number 3", s)
	}
}

// TestKillInEachLayer kills a tree on disk in a delta that is then covered by more and more others, is
// committed, and is written to disk.
func TestKillInEachLayer(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	list, other := nodedb.Name("^list"), nodedb.Name("^other")
	commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) {
		for i := range 5 {
			check(t, tx.Set(list.At(i), i))
		}
	}))
	check(t, u.Sync(ctx))
	deltas := []*nodedb.Delta{freeze(t, u, start, func(tx *nodedb.Tx) {
		check(t, tx.Kill(list))
		check(t, tx.Set(list.At(2), "again"))
	})}
	look := func(tx *nodedb.Tx) {
		t.Helper()
		for _, reverse := range []bool{false, true} {
			var found []string
			for child, err := range tx.Children(ctx, list, nodedb.Range{Reverse: reverse}) {
				check(t, err)
				found = append(found, child.Subscript.String())
			}
			if got := strings.Join(found, " "); got != "2" {
				t.Errorf("%d deltas in flight, reverse %t: the children are %s, want 2", len(deltas), reverse, got)
			}
		}
		for i := range 5 {
			want(t, tx, list.At(i), map[int]any{2: "again"}[i])
		}
		if count := must(tx.Count(ctx, list)); count != 1 {
			t.Errorf("%d deltas in flight: %d nodes, want 1", len(deltas), count)
		}
	}
	for i := range 15 {
		deltas = append(deltas, freeze(t, u, start, func(tx *nodedb.Tx) {
			look(tx)
			check(t, tx.Set(other.At(i), i))
			check(t, tx.Kill(other.At(i-1)))
		}))
	}
	last := deltas[15]
	for len(deltas) > 0 {
		commit(t, u, deltas[0])
		deltas = deltas[1:]
		if len(deltas)%4 == 0 {
			check(t, u.Sync(ctx))
		}
		check(t, u.View(ctx, func(tx *nodedb.Tx) error {
			look(tx)
			return nil
		}))
	}
	wantError(t, u.Commit(last, 18, 0), nodedb.ErrClosed)
}

func TestDeltaLevels(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	p := nodedb.Name("^p")
	d := must(u.Begin(start))
	tx := d.Tx()
	check(t, tx.Set(p, 1))
	failed := errors.New("failed")
	wantError(t, tx.Update(ctx, func(tx *nodedb.Tx) error {
		check(t, tx.Set(p, 2))
		check(t, tx.Kill(p))
		check(t, tx.Set(p.At(1), 1))
		wantError(t, d.Freeze(), nodedb.ErrLevel)
		return failed
	}), failed)
	want(t, tx, p, 1)
	want(t, tx, p.At(1), nil)
	for range 3 { // then a set changes the value in place
		check(t, tx.Set(p, "often"))
	}
	for range 2 {
		wantError(t, tx.Update(ctx, func(tx *nodedb.Tx) error { return errors.Join(tx.Set(p, "else"), failed) }), failed)
		want(t, tx, p, "often")
	}
	check(t, tx.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(p, 3) }))
	_, err := d.AppendTo(nil)
	wantError(t, err, nodedb.ErrLevel)
	check(t, d.Freeze())
	wantError(t, tx.Set(p, 4), nodedb.ErrClosed)
	wantError(t, d.Freeze(), nodedb.ErrClosed)
	commit(t, u, d)
	wantCommitted(t, u, p, 3)
	wantError(t, u.View(ctx, func(tx *nodedb.Tx) error { return tx.Set(p, 1) }), nodedb.ErrReadOnly)
}

// TestIterationOverCommit commits a delta, and writes it to disk, between the batches of an
// iteration in a later one.
func TestIterationOverCommit(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	p := nodedb.Name("^p")
	const nodes = 3000
	fill := func(from int) func(tx *nodedb.Tx) {
		return func(tx *nodedb.Tx) {
			for i := from; i < nodes; i += 3 {
				check(t, tx.Set(p.At(i), i))
			}
		}
	}
	commit(t, u, freeze(t, u, start, fill(0)))
	check(t, u.Sync(ctx))
	commit(t, u, freeze(t, u, start, fill(1)))
	waiting := freeze(t, u, start, fill(2))
	d := must(u.Begin(start))
	for _, reverse := range []bool{false, true} {
		next := 0
		for child, err := range d.Tx().Children(ctx, p, nodedb.Range{Reverse: reverse}) {
			check(t, err)
			expected := next
			if reverse {
				expected = nodes - 1 - next
			}
			if child.Value != must(nodedb.ValueOf(expected)) {
				t.Fatalf("child %d is %v, want %d", next, child.Value, expected)
			}
			if next++; next == 700 && waiting != nil {
				commit(t, u, waiting)
				waiting = nil
			}
			if next == 1500 {
				check(t, u.Sync(ctx))
			}
		}
		if next != nodes {
			t.Errorf("%d children, want %d", next, nodes)
		}
	}
}

func TestDeltaClock(t *testing.T) {
	u := openUnit(t, t.TempDir(), nodedb.UnitOptions{NoSync: true, FlushAge: time.Millisecond})
	p := nodedb.Name("^p")
	commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) {
		for i := range 3 {
			check(t, tx.Set(p.At(i), i))
			must(tx.Expire(p.At(i), time.Duration(i+1)*time.Second))
		}
	}))
	check(t, u.Sync(ctx))
	wantCommitted(t, u, p.At(0), 0)
	later := freeze(t, u, start.Add(time.Second), func(tx *nodedb.Tx) {
		want(t, tx, p.At(0), nil)
		want(t, tx, p.At(1), 1)
		if ttl, limited, err := tx.TTL(p.At(1)); ttl != time.Second || !limited || err != nil {
			t.Errorf("time to live %v %t, want 1 s (%v)", ttl, limited, err)
		}
	})
	wantCommitted(t, u, p.At(0), 0)
	back := must(u.Begin(start))
	if !back.Clock().Equal(start.Add(time.Second)) {
		t.Errorf("the clock went back to %v", back.Clock())
	}
	want(t, back.Tx(), p.At(0), nil)
	check(t, back.Freeze())
	commit(t, u, later)
	check(t, u.Sync(ctx))
	if s := must(u.Stats()); s.Nodes != 2 || !s.Clock.Equal(start.Add(time.Second)) {
		t.Errorf("%d nodes on disk at %v, want the one that expired deleted", s.Nodes, s.Clock)
	}
	wantCommitted(t, u, p.At(1), 1)
}

// TestApply applies encoded deltas to another unit, and damaged ones.
func TestApply(t *testing.T) {
	u, copied := openUnit(t, t.TempDir(), lazy), openUnit(t, t.TempDir(), lazy)
	p := nodedb.Name("^p")
	values := []any{"text", "", 1, -7, 0.1, 1 << 40, true, false, must(nodedb.ValueOf("123456789.123456789")), strings.Repeat("x", 5000)}
	first := freeze(t, u, start, func(tx *nodedb.Tx) {
		for i, v := range values {
			check(t, tx.Set(p.At("values", i), v))
		}
		check(t, tx.Set(p.At("gone", 1, 2), 1))
		check(t, tx.Set(p.At("expires"), 1))
		must(tx.Expire(p.At("expires"), time.Minute))
	})
	encoded := must(first.AppendTo([]byte("before")))
	if string(encoded[:6]) != "before" {
		t.Errorf("AppendTo has overwritten %q", encoded[:6])
	}
	encoded = encoded[6:]
	commit(t, u, first)
	for i := range encoded {
		damaged := slices.Clone(encoded)
		damaged[i] ^= 0x40
		wantError(t, copied.Apply(1, 0, damaged), nodedb.ErrCorrupt)
		wantError(t, copied.Apply(1, 0, encoded[:i]), nodedb.ErrCorrupt)
	}
	wantError(t, copied.Apply(2, 0, encoded), nodedb.ErrArgument)
	if last := copied.Last(); last != 0 {
		t.Fatalf("number %d after deltas that were refused", last)
	}
	check(t, copied.Apply(1, 0, encoded))
	second := freeze(t, u, start.Add(time.Second), func(tx *nodedb.Tx) {
		check(t, tx.Kill(p.At("gone")))
		check(t, tx.Set(p.At("gone", 1), "again"))
		check(t, tx.KillValue(p.At("values", 0)))
	})
	encoded = must(second.AppendTo(nil))
	commit(t, u, second)
	open := must(copied.Begin(start))
	wantError(t, copied.Apply(2, 0, encoded), nodedb.ErrLevel)
	copied.Drop()
	wantError(t, open.Freeze(), nodedb.ErrClosed)
	check(t, copied.Apply(2, 0, encoded))
	if got, expected := dumpUnit(t, copied), dumpUnit(t, u); got != expected {
		t.Errorf("the copy has\n%s\nwant\n%s", got, expected)
	}
	if s := must(copied.Stats()); !s.Clock.Equal(start.Add(time.Second)) {
		t.Errorf("the copy's clock is %v", s.Clock)
	}
}

// TestApplyRefuses applies deltas with a valid checksum that no delta encodes.
func TestApplyRefuses(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	const one = "\x02\x01\x01" // the value 1: its bytes, INTEGER, 1
	key := func(shared, rest int, text string) string { return string([]byte{byte(shared), byte(rest)}) + text }
	a := key(0, 3, "^a\x00")
	check(t, u.Apply(1, 0, sumDelta([]byte("\x01\x00\x01"+a+"\x02"+a+one+key(1, 2, "b\x00")+"\x00"))))
	wantCommitted(t, u, nodedb.Name("^a"), 1)
	for name, body := range map[string]string{
		"an endless number":       "\x01" + strings.Repeat("\xff", 12),
		"no entries":              "\x01\x00\x00",
		"bytes after the end":     "\x01\x00\x00\x00\x00",
		"fewer entries":           "\x01\x00\x00\x02" + a + one,
		"equal keys":              "\x01\x00\x00\x02" + a + one + key(3, 0, "") + one,
		"keys not in order":       "\x01\x00\x00\x02" + key(0, 3, "^b\x00") + one + a + one,
		"kills not in order":      "\x01\x00\x02" + key(0, 3, "^b\x00") + a + "\x00",
		"a kill within another":   "\x01\x00\x02" + a + key(3, 2, "\x81\x01") + "\x00",
		"more shared bytes":       "\x01\x00\x00\x01" + key(1, 3, "^a\x00") + one,
		"a tree in memory":        "\x01\x00\x00\x01" + key(0, 2, "a\x00") + one,
		"a name without an end":   "\x01\x00\x00\x01" + key(0, 3, "^ab") + one,
		"an invalid subscript":    "\x01\x00\x00\x01" + key(0, 5, "^a\x00\x82\x01") + one,
		"too many subscripts":     "\x01\x00\x00\x01" + key(0, 3+64, "^a\x00"+strings.Repeat("\x81\x01", 32)) + one,
		"an unknown type":         "\x01\x00\x00\x01" + a + "\x01\x0f",
		"a value with a checksum": "\x01\x00\x00\x01" + a + "\x04\x41\x01\x00\x00",
		"not a number":            "\x01\x00\x00\x01" + a + "\x09\x02\x00\x00\x00\x00\x00\x00\xf8\x7f",
		"digits with a letter":    "\x01\x00\x00\x01" + a + "\x03\x03\x31x",
		"a value that is cut off": "\x01\x00\x00\x01" + a + "\x05\x04abc",
	} {
		if err := u.Apply(2, 0, sumDelta([]byte(body))); !errors.Is(err, nodedb.ErrCorrupt) {
			t.Errorf("%s: error %v, want one that is ErrCorrupt", name, err)
		}
	}
	if err := u.Apply(2, 0, sumDelta([]byte("\x02\x00\x00\x00"))); !errors.Is(err, nodedb.ErrNewer) {
		t.Errorf("a later version: error %v, want ErrNewer", err)
	}
	if last := u.Last(); last != 1 {
		t.Errorf("the last delta is %d, want 1", last)
	}
}

// dumpUnit returns the committed nodes and their times to live as lines.
func dumpUnit(t testing.TB, u *nodedb.Unit) string {
	t.Helper()
	var b strings.Builder
	check(t, u.View(ctx, func(tx *nodedb.Tx) error {
		for node, err := range tx.Walk(ctx, nodedb.Path{}, nodedb.Range{}) {
			if err != nil {
				return err
			}
			ttl, limited, err := tx.TTL(node.Path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%v=%v %q %v %t\n", node.Path, node.Value.Kind(), node.Value, ttl, limited)
		}
		return nil
	}))
	return b.String()
}

func TestUnitFolder(t *testing.T) {
	folder, plain := t.TempDir(), t.TempDir()
	p := nodedb.Name("^p")
	u := openUnit(t, folder, nodedb.UnitOptions{NoSync: true, FlushAge: time.Hour})
	_, err := nodedb.OpenUnit(folder, nodedb.UnitOptions{NoSync: true})
	wantError(t, err, nodedb.ErrInUse)
	commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) {
		check(t, tx.Set(p, 1))
		check(t, tx.Set(p.At(1), 1))
		must(tx.Expire(p.At(1), time.Second))
	}))
	if applied, begun, _ := u.Positions(); applied != 0 || begun != 0 {
		t.Errorf("positions %d and %d before anything is written", applied, begun)
	}
	openFolder(t, plain, nodedb.Options{NoSync: true})
	_, err = nodedb.OpenUnit(plain, nodedb.UnitOptions{})
	wantError(t, err, nodedb.ErrInUse)
	plain = t.TempDir()
	check(t, openFolder(t, plain, nodedb.Options{NoSync: true}).Close())
	_, err = nodedb.OpenUnit(plain, nodedb.UnitOptions{})
	wantError(t, err, nodedb.ErrArgument)

	for _, when := range []string{"open", "closed"} {
		_, err := nodedb.Open(folder, nodedb.Options{NoSync: true})
		wantError(t, err, nodedb.ErrArgument)
		if err != nil && !strings.Contains(err.Error(), "state of a pipeline") {
			t.Errorf("%s: error %v, want one that names the state of a pipeline", when, err)
		}
		reader := openFolder(t, folder, nodedb.Options{ReadOnly: true, NoSync: true})
		check(t, reader.View(ctx, func(tx *nodedb.Tx) error {
			want(t, tx, p, 1)
			want(t, tx, p.At(1), 1) // by the clock of the unit
			return nil
		}))
		s := session(t, reader)
		want(t, s, p.At(1), 1)
		s.Close()
		check(t, reader.Close())
		if when == "open" {
			check(t, u.Close())
		}
	}
	wantError(t, u.Close(), nodedb.ErrClosed)
	_, err = u.Begin(start)
	wantError(t, err, nodedb.ErrClosed)
	u = openUnit(t, folder, lazy)
	if applied, begun, _ := u.Positions(); applied != 1 || begun != 1 || u.Last() != 1 {
		t.Errorf("positions %d and %d, last %d after a reopen, want 1", applied, begun, u.Last())
	}
	wantCommitted(t, u, p, 1)
}

func TestUnitView(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	p := nodedb.Name("^p")
	commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) { check(t, tx.Set(p, 1)) }))
	check(t, u.View(ctx, func(tx *nodedb.Tx) error { // one snapshot
		commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) { check(t, tx.Set(p, 2)) }))
		want(t, tx, p, 1)
		check(t, u.Sync(ctx))
		want(t, tx, p, 1)
		return nil
	}))
	wantCommitted(t, u, p, 2)
	synctest.Test(t, func(t *testing.T) {
		check(t, u.View(ctx, func(tx *nodedb.Tx) error {
			time.Sleep(9 * time.Second)
			want(t, tx, p, 2)
			return nil
		}))
		wantError(t, u.View(ctx, func(tx *nodedb.Tx) error {
			time.Sleep(11 * time.Second)
			_, err := tx.Get(p)
			wantError(t, err, nodedb.ErrTimeout)
			return nil
		}), nodedb.ErrTimeout)
	})
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	wantError(t, u.View(canceled, func(*nodedb.Tx) error { return nil }), context.Canceled)
}

// TestUnitAllocations counts allocations of the operations that Go code makes in a delta.
func TestUnitAllocations(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	p := nodedb.Name("^p").At("counter")
	d := must(u.Begin(start))
	tx := d.Tx()
	value := must(nodedb.ValueOf(7))
	for name, c := range map[string]struct {
		maxAllocs float64
		call      func()
	}{
		"get":       {2, func() { must(tx.Get(p)) }},
		"set":       {2, func() { check(t, tx.Set(p, value)) }},
		"increment": {3, func() { must(tx.Increment(p, value)) }},
	} {
		c.call()
		if got := testing.AllocsPerRun(100, c.call); got > c.maxAllocs {
			t.Errorf("%s makes %v allocations, want at most %v", name, got, c.maxAllocs)
		}
	}
}

// TestEncodedBytes updates counters whose paths have about 30 bytes and follow one another.
func TestEncodedBytes(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	const updates = 5000
	d := freeze(t, u, start, func(tx *nodedb.Tx) {
		for i := range updates {
			must(tx.Increment(nodedb.Name("^visits").At("user-0000000000", 1_000_000+i*20), i))
		}
	})
	bytes := len(must(d.AppendTo(nil)))
	t.Logf("%.1f bytes an update", float64(bytes)/updates)
	if bytes > 12*updates {
		t.Errorf("%d updates take %d bytes, want at most 12 each", updates, bytes)
	}
}

// TestMark: the mark of the last delta on disk outlives the process, and no other.
func TestMark(t *testing.T) {
	folder := t.TempDir()
	u, err := nodedb.OpenUnit(folder, nodedb.UnitOptions{FlushAge: time.Hour})
	check(t, err)
	for number, mark := range []uint64{0, 11, 22} {
		if number == 0 {
			continue
		}
		d, err := u.Begin(time.UnixMilli(1))
		check(t, err)
		check(t, d.Tx().Set(nodedb.Name("^a"), number))
		check(t, d.Freeze())
		check(t, u.Commit(d, uint64(number), mark))
		if number == 1 {
			check(t, u.Sync(t.Context()))
		}
	}
	if applied, _, mark := u.Positions(); applied != 1 || mark != 11 {
		t.Errorf("got delta %d with mark %d on disk, want 1 with 11", applied, mark)
	}
	check(t, u.Close())
	u, err = nodedb.OpenUnit(folder, nodedb.UnitOptions{})
	check(t, err)
	defer u.Close()
	if applied, _, mark := u.Positions(); applied != 2 || mark != 22 {
		t.Errorf("after Close and OpenUnit: got delta %d with mark %d, want 2 with 22", applied, mark)
	}
}

// TestDiscard: a delta that was discarded leaves nothing, and the next one begins over the ones before it.
func TestDiscard(t *testing.T) {
	u, err := nodedb.OpenUnit(t.TempDir(), nodedb.UnitOptions{})
	check(t, err)
	defer u.Close()
	a := nodedb.Name("^a")
	first, err := u.Begin(time.UnixMilli(1000))
	check(t, err)
	check(t, first.Tx().Set(a, 1))
	check(t, first.Freeze())
	second, err := u.Begin(time.UnixMilli(9000))
	check(t, err)
	check(t, second.Tx().Set(a, 2))
	wantError(t, first.Discard(), nodedb.ErrLevel) // the second reads it
	check(t, second.Discard())
	wantError(t, second.Discard(), nodedb.ErrClosed)
	frozen, err := u.Begin(time.UnixMilli(9000))
	check(t, err)
	check(t, frozen.Tx().Set(a, 2))
	check(t, frozen.Freeze())
	check(t, frozen.Discard())
	wantError(t, frozen.Discard(), nodedb.ErrClosed)
	wantError(t, second.Tx().Set(a, 3), nodedb.ErrClosed)
	third, err := u.Begin(time.UnixMilli(2000))
	check(t, err)
	if v, err := third.Tx().Get(a); err != nil || v.String() != "1" {
		t.Errorf("after a discarded delta: got %v, %v; want 1", v, err)
	}
	if got := third.Clock().UnixMilli(); got != 2000 {
		t.Errorf("the clock is %d ms, want that of the delta itself, 2000: the discarded one had 9000", got)
	}
	check(t, third.Freeze())
	check(t, u.Commit(first, 1, 0))
	check(t, u.Commit(third, 2, 0))
}

// TestYoungestOnDisk commits deltas all the time: none is on disk before it has the age at which
// deltas settle, unless a sync waits for it.
func TestYoungestOnDisk(t *testing.T) {
	const age = 100 * time.Millisecond
	u := openUnit(t, t.TempDir(), nodedb.UnitOptions{NoSync: true, FlushAge: age})
	began := []time.Time{{}} // by the delta's number
	last := uint64(0)
	for writes := 0; writes < 3; {
		began = append(began, time.Now())
		commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) { check(t, tx.Set(nodedb.Name("^n"), len(began))) }))
		durable, err := u.Durable()
		check(t, err)
		if durable == last {
			time.Sleep(time.Millisecond)
			continue
		}
		if got := time.Since(began[durable]); got < age {
			t.Errorf("delta %d is on disk %s after it began, want at least %s", durable, got, age)
		}
		last, writes = durable, writes+1
	}
	check(t, u.Sync(ctx))
	if durable, err := u.Durable(); err != nil || durable != u.Last() {
		t.Errorf("delta %d of %d is on disk after a sync (%v)", durable, u.Last(), err)
	}
}

// TestFullMemory commits more than may wait in memory, without a sync.
func TestFullMemory(t *testing.T) {
	const limit = 1 << 20
	u := openUnit(t, t.TempDir(), nodedb.UnitOptions{NoSync: true, FlushAge: time.Hour, PendingBytes: limit})
	for i := range 100 {
		commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) {
			for j := range 500 {
				check(t, tx.Set(nodedb.Name("^n").At(i).At(j), "value"))
			}
		}))
		if stats := must(u.Stats()); stats.WaitingBytes > limit+limit/4 {
			t.Fatalf("%d bytes wait after delta %d, want at most %d and a delta", stats.WaitingBytes, i, limit)
		}
	}
	if durable, err := u.Durable(); err != nil || durable < 50 {
		t.Errorf("%d of 100 deltas are on disk (%v), want most of them", durable, err)
	}
}
