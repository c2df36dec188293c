//go:build cgo && lmdb

package state

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
)

// follow follows the unit with copies in a folder of its own.
func (b *bed) follow(folder string) *Follower {
	b.t.Helper()
	other := *b.config
	other.Folder = folder
	f, err := Follow(b.t.Context(), &other, "a")
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

// catchUp lets a follower apply all notes.
func (b *bed) catchUp(f *Follower) error {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		last, err := b.config.LastNotes(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if err := f.CatchUp(b.t.Context(), last["a"]); err != nil {
			return err
		}
		if !f.NeedsNotes(last["a"]) {
			return nil
		}
		if time.Now().After(end) {
			b.t.Fatal("the follower does not apply all notes")
		}
	}
}

func (b *bed) mustCatchUp(f *Follower) {
	b.t.Helper()
	if err := b.catchUp(f); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) expectView(what string, view func(context.Context, func(*nodedb.Tx) error) error, want int64) {
	b.t.Helper()
	var got int64
	err := view(b.t.Context(), func(tx *nodedb.Tx) error {
		v, err := tx.Get(nodedb.Name("^n"))
		got, _ = v.Int()
		return err
	})
	if err != nil || got != want {
		b.t.Errorf("%s has counted %d, %v, want %d", what, got, err, want)
	}
}

// TestFollowerTakesOver lets a follower take a unit over: its copy is that of the unit from then on,
// and the owner before is fenced. That one follows in its turn.
func TestFollowerTakesOver(t *testing.T) {
	b := newBed(t, t.TempDir())
	folders := []string{b.config.Folder, t.TempDir()}
	owner := b.open()
	next := uint64(0)
	for round := range 6 {
		b.count(owner, next, 7, 1)
		next += 7
		f := b.follow(folders[(round+1)%2])
		b.mustCatchUp(f)
		b.expectView("the follower", f.View, int64(next))
		b.count(owner, next, 3, 1) // the follower takes them from the home when it opens the unit
		next += 3
		fresh, err := f.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.expectCount(fresh, int64(next))
		if err := owner.home.Trim(t.Context(), 1); err == nil {
			t.Error("the owner before is not fenced")
		}
		b.close(owner)
		owner = fresh
	}
	b.close(owner)
}

// TestFollowerOpensAgain fails to take a unit over while the home is away, and succeeds later.
func TestFollowerOpensAgain(t *testing.T) {
	b := newBed(t, t.TempDir())
	owner := b.open()
	b.count(owner, 0, 5, 1)
	f := b.follow(t.TempDir())
	b.mustCatchUp(f)
	b.count(owner, 5, 5, 1)
	b.close(owner)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Open(cancelled); err == nil {
		t.Fatal("the follower has opened the unit without the home")
	}
	fresh, err := f.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.expectCount(fresh, 10)
	b.close(fresh)
}

// TestFollowerRestarts closes and opens a follower between notes.
func TestFollowerRestarts(t *testing.T) {
	b := newBed(t, t.TempDir())
	owner := b.open()
	folder := t.TempDir()
	for i := range uint64(5) {
		b.count(owner, i*4, 4, 1)
		f := b.follow(folder)
		b.mustCatchUp(f)
		b.expectView("the follower", f.View, int64(i+1)*4)
		if lag := f.Lag(); lag != 0 {
			t.Errorf("the follower lacks %d notes, want none", lag)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b.close(owner)
}

// TestFollowerWaitsForDurability does not apply the last note at once: a server may show it before it
// is on the disk.
func TestFollowerWaitsForDurability(t *testing.T) {
	b := newBed(t, t.TempDir())
	owner := b.open()
	b.count(owner, 0, 5, 1)
	f := b.follow(t.TempDir())
	if err := f.CatchUp(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	b.expectView("the follower at once", f.View, 4)
	b.mustCatchUp(f)
	b.expectView("the follower later", f.View, 5)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b.close(owner)
}

// TestFollowerIsRefused follows with copies that do not fit the home.
func TestFollowerIsRefused(t *testing.T) {
	expect := func(t *testing.T, err error, parts ...string) {
		t.Helper()
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Unit != "a" || event.HintOf(err) == "" {
			t.Fatalf("the error is %v, with the hint %q; want a refusal of unit a", err, event.HintOf(err))
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error is %q, want %q in it", err, part)
			}
		}
	}
	t.Run("too far behind", func(t *testing.T) {
		b := newBed(t, t.TempDir())
		owner := b.open()
		b.count(owner, 0, 10, 1)
		b.trim(owner)
		f := b.follow(t.TempDir())
		expect(t, b.catchUp(f), "up to note 0", "from 10 on")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		b.close(owner)
	})
	t.Run("ahead of the home", func(t *testing.T) {
		ahead, b := newBed(t, t.TempDir()), newBed(t, t.TempDir())
		u := ahead.open()
		ahead.count(u, 0, 10, 1)
		ahead.close(u)
		owner := b.open()
		b.count(owner, 0, 5, 1)
		f := b.follow(ahead.config.Folder)
		expect(t, b.catchUp(f), "changes up to note 10", "notes up to 5")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		b.close(owner)
	})
	t.Run("of another history", func(t *testing.T) {
		other, b := newBed(t, t.TempDir()), newBed(t, t.TempDir())
		u := other.open()
		other.count(u, 0, 5, 2)
		other.close(u)
		owner := b.open()
		b.count(owner, 0, 8, 1)
		f := b.follow(other.config.Folder)
		expect(t, b.catchUp(f), "note 6", "does not continue note 5")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		b.close(owner)
	})
	t.Run("damaged", func(t *testing.T) {
		b := newBed(t, t.TempDir())
		folder := t.TempDir()
		other := *b.config
		other.Folder = folder
		if err := os.MkdirAll(other.folderOf("a"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(other.folderOf("a")+"/data.mdb", make([]byte, 100_000), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Follow(t.Context(), &other, "a")
		if err == nil {
			t.Fatal("a damaged copy is followed")
		}
	})
}

// TestNotesAreKept keeps notes for followers that were away.
func TestNotesAreKept(t *testing.T) {
	r := recentNotes{keep: time.Minute}
	start := time.Now()
	for _, step := range []struct {
		after time.Duration
		last  uint64
		want  uint64 // notes before it may go
	}{
		{0, 10, 0}, {time.Second, 11, 0}, {59 * time.Second, 20, 0}, {60 * time.Second, 21, 10}, {61 * time.Second, 22, 11},
		{100 * time.Second, 30, 11}, {119 * time.Second, 40, 20}, {10 * time.Minute, 41, 40}, {11 * time.Minute, 41, 41},
	} {
		if got := r.old(start.Add(step.after), step.last); got != step.want {
			t.Errorf("after %v, notes before %d may go, want %d", step.after, got, step.want)
		}
	}
	b := newBed(t, t.TempDir())
	b.config.KeepNotes = time.Hour
	u := b.open()
	b.count(u, 0, 10, 1)
	b.trim(u)
	b.close(u)
	units, err := b.config.Units(t.Context())
	if err != nil || units["a"].First != 1 || units["a"].Last != 10 {
		t.Errorf("the home keeps %+v, %v; want notes 1 to 10", units["a"], err)
	}
	f := b.follow(t.TempDir())
	b.mustCatchUp(f)
	b.expectView("a follower that was away", f.View, 10)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
