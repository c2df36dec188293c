package nodedb_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/nodedb"
)

// walk reads all chunks of a unit, and calls between after each.
func walk(t *testing.T, u *nodedb.Unit, bytes int, between func()) (chunks [][]byte, s nodedb.Snapshot) {
	t.Helper()
	for from := []byte(nil); ; {
		c, err := u.ReadChunk(from, bytes)
		check(t, err)
		if from != nil {
			c.Applied, c.AppliedMark = s.Applied, s.AppliedMark
		}
		chunks, s, from = append(chunks, c.Data), c.Snapshot, c.Next
		if from == nil {
			return chunks, s
		}
		between()
	}
}

// load makes a unit of a snapshot in a new folder, and opens it again after each chunk.
func load(t *testing.T, chunks [][]byte, s nodedb.Snapshot) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for range chunks {
		l, err := nodedb.LoadUnit(folder, lazy, s)
		check(t, err)
		check(t, l.Load(chunks[l.Loaded()]))
		check(t, l.Close())
	}
	l, err := nodedb.LoadUnit(folder, lazy, s)
	check(t, err)
	if l.Loaded() != len(chunks) {
		t.Fatalf("%d chunks are loaded, want %d", l.Loaded(), len(chunks))
	}
	check(t, l.Finish())
	check(t, l.Close())
	return folder
}

func dump(t *testing.T, u *nodedb.Unit) (nodes []string) {
	t.Helper()
	check(t, u.View(ctx, func(tx *nodedb.Tx) error {
		for n, err := range tx.Walk(ctx, nodedb.Path{}, nodedb.Range{}) {
			if err != nil {
				return err
			}
			ttl, expires, err := tx.TTL(n.Path)
			if err != nil {
				return err
			}
			nodes = append(nodes, fmt.Sprint(n.Path, "=", n.Value, n.Value.Kind(), expires, ttl))
		}
		return nil
	}))
	return nodes
}

// TestSnapshotOfChangingUnit walks over a unit while deltas change it, with kills, values of all
// kinds and nodes that expire. The snapshot and the deltas that its positions ask for are the unit.
func TestSnapshotOfChangingUnit(t *testing.T) {
	for round := range testsize.Count(3, 30) {
		random := testseed.New(t)
		u := openUnitInSlices(t, t.TempDir(), lazy, 1+random.IntN(40))
		var deltas [][]byte
		clock := start
		change := func() {
			clock = clock.Add(time.Duration(random.IntN(100)) * time.Millisecond)
			d := freeze(t, u, clock, func(tx *nodedb.Tx) {
				for range random.IntN(30) {
					changeAtRandom(t, random, tx)
				}
			})
			encoded, err := d.AppendTo(nil)
			check(t, err)
			deltas = append(deltas, encoded)
			number := u.Last() + 1
			check(t, u.Commit(d, number, number*7))
			if random.IntN(3) == 0 {
				check(t, u.Sync(ctx))
			}
		}
		for range random.IntN(40) {
			change()
		}
		check(t, u.Sync(ctx))
		chunks, s := walk(t, u, 1+random.IntN(400), func() {
			for range random.IntN(3) {
				change()
			}
		})
		if s.AppliedMark != s.Applied*7 || s.BegunMark != s.Begun*7 || s.Begun < s.Applied {
			t.Errorf("round %d: the positions are %+v", round, s)
		}
		for range random.IntN(5) {
			change()
		}
		folder := load(t, chunks, s)
		restored := openUnit(t, folder, lazy)
		if applied, begun, mark := restored.Positions(); applied != s.Applied || begun != s.Begun || mark != s.AppliedMark {
			t.Errorf("round %d: the restored unit is at %d, %d, %d, want %+v", round, applied, begun, mark, s)
		}
		for number := s.Applied + 1; number <= u.Last(); number++ {
			if number <= s.Begun {
				wantError(t, restored.View(ctx, func(*nodedb.Tx) error { return nil }), nodedb.ErrIncomplete)
			}
			check(t, restored.Apply(number, number*7, deltas[number-1]))
			if random.IntN(3) == 0 { // reopened at any number, it still lacks the others
				check(t, restored.Close())
				restored = openUnit(t, folder, lazy)
			}
		}
		if got, want := dump(t, restored), dump(t, u); !slices.Equal(got, want) {
			t.Errorf("round %d: the restored unit has\n%v\nwant\n%v", round, got, want)
		}
		check(t, restored.Close())
		checkFolder(t, folder)
	}
}

// checkFolder lets the check find faults in a folder that is not open.
func checkFolder(t *testing.T, folder string) {
	t.Helper()
	s, err := nodedb.Open(folder, nodedb.Options{ReadOnly: true})
	check(t, err)
	defer s.Close()
	faults, err := s.Check(func(fault string) { t.Error(fault) })
	if err != nil || faults > 0 {
		t.Errorf("the check finds %d faults, %v", faults, err)
	}
}

func changeAtRandom(t *testing.T, random *rand.Rand, tx *nodedb.Tx) {
	p := nodedb.Name(fmt.Sprint("^t", random.IntN(2))).At(random.IntN(20))
	if random.IntN(2) == 0 {
		p = p.At(fmt.Sprint("k", random.IntN(4)))
	}
	values := []any{random.IntN(1000), -1.5e-7, "text", "", true, "1000000000000000001", string(make([]byte, 300))}
	switch random.IntN(8) {
	case 0:
		check(t, tx.Kill(p))
	case 1:
		must(tx.Expire(p, time.Duration(1+random.IntN(2000))*time.Millisecond))
	case 2:
		must(tx.Increment(p, 1))
	default:
		check(t, tx.Set(p, values[random.IntN(len(values))]))
	}
}

func TestSnapshotOfEmptyUnit(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	chunks, s := walk(t, u, 1<<20, func() {})
	if len(chunks) != 1 || s.Applied != 0 || s.Begun != 0 {
		t.Errorf("%d chunks at %+v, want 1 of nothing", len(chunks), s)
	}
	restored := openUnit(t, load(t, chunks, s), lazy)
	if nodes := dump(t, restored); len(nodes) > 0 {
		t.Errorf("an empty unit is restored with %v", nodes)
	}
}

// TestLoadUnitRefuses loads what does not belong into a folder.
func TestLoadUnitRefuses(t *testing.T) {
	u := openUnit(t, t.TempDir(), lazy)
	commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) { check(t, tx.Set(nodedb.Name("^a"), 1)) }))
	killed := freeze(t, u, start, func(tx *nodedb.Tx) { check(t, tx.Kill(nodedb.Name("^a"))) })
	kill, err := killed.AppendTo(nil)
	check(t, err)
	commit(t, u, killed)
	check(t, u.Sync(ctx))
	chunks, s := walk(t, u, 1<<20, func() {})
	check(t, u.Close())
	_, err = nodedb.LoadUnit(u.Folder(), lazy, s)
	wantError(t, err, nodedb.ErrArgument)

	folder := t.TempDir()
	l, err := nodedb.LoadUnit(folder, lazy, s)
	check(t, err)
	wantError(t, l.Load(kill), nodedb.ErrCorrupt)
	for i := range chunks[0] {
		damaged := slices.Clone(chunks[0])
		damaged[i] ^= 4
		wantError(t, l.Load(damaged), nodedb.ErrCorrupt)
	}
	check(t, l.Close())
	loading := openUnit(t, folder, lazy)
	if !loading.IsLoading() {
		t.Error("a folder without the chunks of its snapshot is a unit")
	}
	wantError(t, loading.View(ctx, func(*nodedb.Tx) error { return nil }), nodedb.ErrIncomplete)
	wantError(t, loading.Apply(1, 0, kill), nodedb.ErrIncomplete)
	_, err = loading.Begin(start)
	wantError(t, err, nodedb.ErrIncomplete)
	_, err = loading.ReadChunk(nil, 1)
	wantError(t, err, nodedb.ErrIncomplete)
	check(t, loading.Close())
	other := s
	other.Begun++
	_, err = nodedb.LoadUnit(folder, lazy, other)
	wantError(t, err, nodedb.ErrArgument)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	other.Applied = other.Begun + 1
	_, err = nodedb.LoadUnit(filepath.Join(t.TempDir(), "new"), lazy, other)
	wantError(t, err, nodedb.ErrArgument)
}

// TestReadChunkFindsDamage reads a unit with a damaged node.
func TestReadChunkFindsDamage(t *testing.T) {
	folder := t.TempDir()
	u := openUnit(t, folder, nodedb.UnitOptions{FlushAge: time.Hour})
	commit(t, u, freeze(t, u, start, func(tx *nodedb.Tx) { check(t, tx.Set(nodedb.Name("^a"), "a text that is not damaged")) }))
	check(t, u.Close())
	file := filepath.Join(folder, "data.mdb")
	data, err := os.ReadFile(file)
	check(t, err)
	at := slices.Index(data, 0)
	for i := range len(data) - 4 {
		if string(data[i:i+4]) == "text" {
			at = i
			data[i] = 'T'
		}
	}
	if at < 4096 {
		t.Fatal("the value is not in the file")
	}
	check(t, os.WriteFile(file, data, 0o600))
	u = openUnit(t, folder, lazy)
	_, err = u.ReadChunk(nil, 1)
	wantError(t, err, nodedb.ErrCorrupt)
}
