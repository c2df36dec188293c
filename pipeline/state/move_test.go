//go:build cgo && lmdb

package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
)

// move sets unit a to a note, and partition a to a position.
func (b *bed) move(ctx context.Context, note, next uint64) (NodeChanges, error) {
	return b.config.Move(ctx, Move{"p", "a", next, note}, false, b.home, "a", "timers@a", func(ctx context.Context) error {
		return b.home.SetPosition(ctx, "a", next)
	})
}

// expectFolder fails unless the folder of copies has only what a closed unit leaves.
func (b *bed) expectFolder() {
	b.t.Helper()
	names, err := filepath.Glob(filepath.Join(b.config.Folder, "*~*"))
	if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], "~delivered") {
		b.t.Errorf("the folder of the state has %v, %v", names, err)
	}
}

// TestMove sets a unit to notes that only the home, only the archive, or both lead to, and goes on.
// Another machine restores the state that was set.
func TestMove(t *testing.T) {
	for name, test := range map[string]struct {
		note    uint64
		prepare func(b *bed, u *Unit)
	}{
		"before a snapshot":  {11, archivedWithSnapshot},
		"at a snapshot":      {20, archivedWithSnapshot},
		"behind a snapshot":  {24, archivedWithSnapshot},
		"the last note":      {30, archivedWithSnapshot},
		"nothing":            {0, archivedWithSnapshot},
		"before those kept":  {18, keptInPart},
		"notes of the home":  {25, keptInPart},
		"without an archive": {7, func(b *bed, u *Unit) { b.count(u, 0, 30, 1); b.delivered(u); b.close(u) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newArchivedBed(t)
			place := b.config.Archive
			if name == "without an archive" {
				b.config.Archive, b.config.KeepNotes = nil, time.Hour
			}
			u := b.open()
			test.prepare(b, u)
			past, err := b.config.PastNote(t.Context(), "a", test.note, "a")
			if err != nil {
				t.Fatal(err)
			}
			if past.Last != 30 || test.note > 0 && (past.Next == nil || *past.Next != test.note || past.Clock.IsZero()) {
				t.Errorf("note %d is described as %+v", test.note, past)
			}
			if _, err := b.move(t.Context(), test.note, test.note); err != nil {
				t.Fatal(err)
			}
			b.expectFolder()
			b.config.Archive, b.config.KeepNotes = place, 0
			u = b.open()
			b.expectCount(u, int64(test.note))
			if u.last <= 30 {
				t.Errorf("the last note is %d, want a later one than before", u.last)
			}
			b.count(u, test.note, 5, 1)
			b.closeTrimmed(u)
			other := b.elsewhere()
			u = other.open()
			other.expectCount(u, int64(test.note)+5)
			other.close(u)
		})
	}
}

// archivedWithSnapshot makes 30 notes and a snapshot of note 20. The home keeps the last note.
func archivedWithSnapshot(b *bed, u *Unit) {
	b.count(u, 0, 20, 1)
	b.snapshot(u)
	b.count(u, 20, 10, 1)
	b.closeTrimmed(u)
}

// keptInPart makes 30 notes. The archive has the first 20, and the home has those from 20 on.
func keptInPart(b *bed, u *Unit) {
	b.count(u, 0, 20, 1)
	b.closeTrimmed(u)
	place := &brokenPlace{Place: b.config.Archive}
	place.broken.Store(true)
	b.config.Archive = place
	u = b.open()
	b.count(u, 20, 10, 1)
	b.delivered(u)
	b.close(u)
	place.broken.Store(false)
}

// delivered says that the sinks have the outputs of all notes.
func (b *bed) delivered(u *Unit) { u.Delivered(u.last) }

// TestMoveRefuses says why a unit cannot be set to a note, and changes nothing.
func TestMoveRefuses(t *testing.T) {
	refused := func(b *bed, note uint64, parts ...string) {
		b.t.Helper()
		before, err := b.config.LastNotes(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		_, err = b.move(b.t.Context(), note, note)
		text := fmt.Sprint(err, " ", event.HintOf(err))
		for _, part := range parts {
			if !strings.Contains(text, part) {
				b.t.Errorf("the move to note %d returned %q, want %q in it", note, text, part)
			}
		}
		if after, err := b.config.LastNotes(b.t.Context()); err != nil || !maps.Equal(after, before) {
			b.t.Errorf("the refused move has written notes: %v, %v, want %v", after, err, before)
		}
	}
	filled := func(t *testing.T) *bed { // the segments end with notes 5, 10 and 15
		b := newArchivedBed(t)
		b.config.ArchiveAge = time.Hour
		for first := uint64(0); first < 15; first += 5 {
			u := b.open()
			b.count(u, first, 5, 1)
			b.delivered(u)
			b.close(u)
		}
		u := b.open()
		waitFor(t, "note 15", func() bool { return u.ArchiveStatus().Archived == 15 })
		b.closeTrimmed(u)
		return b
	}
	t.Run("later", func(t *testing.T) { refused(filled(t), 16, "has no note 16 yet: its last one is 15") })
	t.Run("unknown unit", func(t *testing.T) { refused(newArchivedBed(t), 1, "has no note 1 yet: its last one is 0") })
	t.Run("no archive", func(t *testing.T) {
		b := filled(t)
		b.config.Archive = nil
		refused(b, 7, "keeps only the changes from note 15 on, and state users has no archive", "choose a later note")
		refused(b, 15, "state users has no archive")
	})
	t.Run("gap", func(t *testing.T) {
		b := filled(t)
		removeObjects(t, b, "segments/*-00000000000000000010-*")
		refused(b, 7, "archive", "lists what the archive has")
		refused(b, 12, "has no snapshot of it")
	})
	t.Run("damaged", func(t *testing.T) {
		b := filled(t)
		damage(t, b, "segments/*-00000000000000000010-*")
		refused(b, 12, "the object is damaged", "segments/")
	})
	t.Run("outputs", func(t *testing.T) {
		b := filled(t)
		u := b.open()
		b.count(u, 15, 2, 1)
		b.close(u)
		refused(b, 7, "a sink may lack rows of the notes of unit a from 16 on", "resume the pipeline")
	})
}

func removeObjects(t *testing.T, b *bed, pattern string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.config.Archive.String(), "users/a", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s is %v, %v", pattern, names, err)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInterruptedMove ends a move before and after it has set the position. The unit is refused, also by
// a follower, until the move is complete.
func TestInterruptedMove(t *testing.T) {
	b := newArchivedBed(t)
	u := b.open()
	b.count(u, 0, 20, 1)
	b.closeTrimmed(u)
	failed := errors.New("the sink fails")
	interrupt := func(next uint64) {
		t.Helper()
		_, err := b.config.Move(t.Context(), Move{"p", "a", next, 12}, false, b.home, "a", "timers@a", func(context.Context) error { return failed })
		if !errors.Is(err, failed) {
			t.Fatalf("the move returned %v", err)
		}
		b.expectRefusal("setting unit a of state users to note 12", fmt.Sprintf(`perigee position set CONFIG p %d --partition "a" --state 12`, next))
	}
	interrupt(12)
	f, err := Follow(t.Context(), b.config, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "was interrupted") {
		t.Errorf("a follower takes over a unit that was not set completely: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]struct {
		Move
		relative bool
	}{
		"rewind":    {Move{"p", "a", 12, 12}, true},
		"partition": {Move{"p", "b", 12, 12}, false},
	} {
		_, err := b.config.Move(t.Context(), m.Move, m.relative, b.home, "a", "timers@a", func(context.Context) error { return nil })
		if err == nil || !strings.Contains(event.HintOf(err), "complete it first: perigee position set CONFIG p 12") {
			t.Errorf("%s: the move returned %v", name, err)
		}
	}
	u, err = Open(t.Context(), b.elsewhere().config, "a") // which restores it
	if u != nil || err == nil {
		t.Errorf("another machine opens the unit: %v", err)
	}
	interrupt(11)
	units, err := b.config.Units(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.move(t.Context(), units["a"].Last, 12); err == nil || !strings.Contains(err.Error(), "in the middle of a move to note 12") {
		t.Errorf("a move to a note of an interrupted move returned %v", err)
	}
	if _, err := b.move(t.Context(), 12, 12); err != nil {
		t.Fatal(err)
	}
	b.expectFolder()
	u = b.open()
	b.expectCount(u, 12)
	b.count(u, 12, 1, 1)
	b.expectCount(u, 13)
	b.close(u)
}

// A modelNode is what a unit has at a path.
type modelNode struct {
	value  nodedb.Value
	expiry time.Time // zero for never
}

func (b *bed) tree(u *Unit) map[string]modelNode {
	b.t.Helper()
	tree := map[string]modelNode{}
	stats, err := u.copy.Stats()
	if err != nil {
		b.t.Fatal(err)
	}
	err = u.View(b.t.Context(), func(tx *nodedb.Tx) error {
		for n, err := range tx.Walk(b.t.Context(), nodedb.Path{}, nodedb.Range{}) {
			if err != nil {
				return err
			}
			one := modelNode{value: n.Value}
			ttl, limited, err := tx.TTL(n.Path)
			if err != nil {
				return err
			}
			if limited {
				one.expiry = stats.Clock.Add(ttl)
			}
			tree[n.Path.String()] = one
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return tree
}

// TestMoveModel commits random notes, with nodes, subtrees that are killed, expiry and timers, sets the unit
// to random notes, also those of earlier moves, and compares it with what it was. Moves are
// interrupted at each of their steps first.
func TestMoveModel(t *testing.T) {
	defer func(bytes int) { moveBytes = bytes }(moveBytes)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	b := newArchivedBed(t)
	position := uint64(0)
	trees := map[uint64]map[string]modelNode{0: {}}
	timers := 0
	change := func(tx *nodedb.Tx) error {
		for range 1 + random.IntN(40) {
			at := nodedb.Name([]string{"^a", "^b"}[random.IntN(2)]).At(random.IntN(12), random.IntN(30))
			var err error
			switch random.IntN(12) {
			case 0:
				err = tx.Kill(at.Parent())
			case 1:
				err = tx.KillValue(at)
			case 2:
				err = tx.Set(at.Parent(), random.IntN(100))
			case 3:
				_, err = tx.ExpireAt(at, time.Now().Add(time.Hour))
			case 4:
				if err = tx.Set(at, "soon"); err == nil {
					_, err = tx.Expire(at, time.Millisecond)
				}
			case 5:
				timers++
				_, err = lua.AddTimer(tx, lua.Timer{Key: valueOf(t, fmt.Sprint("timer ", timers)), Due: 4e9 + float64(random.IntN(5))})
			case 6:
				err = lua.RemoveTimer(tx, lua.Timer{Key: valueOf(t, fmt.Sprint("timer ", 1+random.IntN(timers+1))), Due: 4e9 + float64(random.IntN(5))})
			case 7:
				err = tx.Set(at, strings.Repeat("long ", random.IntN(1000)))
			default:
				err = tx.Set(at, random.IntN(1e6))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for range 6 {
		u := b.open()
		for range 5 + random.IntN(15) {
			b.change(u, position, change)
			position++
			trees[u.last] = b.tree(u)
			switch random.IntN(12) {
			case 0:
				b.snapshot(u)
			case 1:
				b.archived(u)
				b.trim(u)
			}
		}
		b.delivered(u)
		b.close(u)
		note := slices.Sorted(maps.Keys(trees))[random.IntN(len(trees))]
		moveBytes = 1 + random.IntN(100_000)
		position -= uint64(random.IntN(int(position)))
		for steps := 1 + random.IntN(3); ; steps += 1 + random.IntN(10) {
			ctx, cancel := context.WithCancel(t.Context())
			left := steps
			b.config.OnStep = func(at Step) {
				if at == InMove || at == InRestore {
					if left--; left == 0 {
						cancel()
					}
				}
			}
			_, err := b.move(ctx, note, position)
			cancel()
			b.config.OnStep = nil
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		b.expectFolder()
		machine := b
		if random.IntN(2) == 0 {
			machine = b.elsewhere()
		}
		u = machine.open()
		want, now := maps.Clone(trees[note]), u.Now()
		maps.DeleteFunc(want, func(_ string, n modelNode) bool { return !n.expiry.IsZero() && !n.expiry.After(now) })
		if got := machine.tree(u); !maps.Equal(got, want) {
			t.Fatalf("set to note %d, the unit has %d nodes, want %d:\n%v\n%v", note, len(got), len(want), got, want)
		}
		trees[u.last] = want
		machine.archived(u)
		machine.close(u)
	}
}
