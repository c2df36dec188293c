//go:build cgo && lmdb

package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/changelog"
)

// A bed is a changelog that is the home of a state, and the folder of its copies.
type bed struct {
	t      *testing.T
	home   *bedHome
	config *Config
}

// A bedHome is a changelog in a folder.
type bedHome struct {
	*changelog.Sink
	store  *changelog.Store
	folder string
}

func newBedHome(t *testing.T, folder string) *bedHome {
	t.Helper()
	store, err := changelog.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &bedHome{store.Sink("p", nil), store, folder}
}

// backup returns a home with what the changelog has, which no unit may be using.
func (h *bedHome) backup(t *testing.T) *bedHome {
	t.Helper()
	return newBedHome(t, copyFolder(t, h.folder))
}

func newBed(t *testing.T, copies string) *bed {
	t.Helper()
	home := newBedHome(t, t.TempDir())
	return &bed{t, home, &Config{
		Name: "users", Home: home, HomeName: "changelog", Folder: copies, FlushAge: time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}}
}

// open opens the unit, which the test closes.
func (b *bed) open() *Unit {
	b.t.Helper()
	u, err := Open(b.t.Context(), b.config, "a")
	if err != nil {
		b.t.Fatal(err)
	}
	return u
}

func (b *bed) close(u *Unit) {
	b.t.Helper()
	if err := u.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// count commits deliveries that each increment a node by a number, as the events from a position on.
func (b *bed) count(u *Unit, first, n uint64, by int64) {
	b.t.Helper()
	for position := first; position < first+n; position++ {
		b.change(u, position, func(tx *nodedb.Tx) error {
			_, err := tx.Increment(nodedb.Name("^n"), by)
			return err
		})
	}
}

// change commits a delivery with the changes of f, as the event at a position.
func (b *bed) change(u *Unit, position uint64, f func(*nodedb.Tx) error) {
	b.t.Helper()
	w, _, err := b.home.Open(b.t.Context(), "a")
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Close()
	d, err := u.Begin()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := f(d.Tx()); err != nil {
		b.t.Fatal(err)
	}
	if err := d.Freeze(); err != nil {
		b.t.Fatal(err)
	}
	data, err := u.Encode(d, Note{Partition: "a", Range: event.Range{First: position, Count: 1}, Outputs: []byte{byte(position)}})
	if err != nil {
		b.t.Fatal(err)
	}
	note := u.Next(data)
	out := &event.Output{Partition: "a", Range: event.Range{First: position, Count: 1}}
	if err := w.(sink.NoteWriter).WriteNote(b.t.Context(), out, u.Home(), note); err != nil {
		b.t.Fatal(err)
	}
	u.Committed(note)
	if err := u.Apply(d, note); err != nil {
		b.t.Fatal(err)
	}
}

// trim removes all notes from the home that may be removed.
func (b *bed) trim(u *Unit) {
	b.t.Helper()
	u.Delivered(u.last)
	err := u.copy.Sync(b.t.Context())
	if err == nil {
		err = u.trim(b.t.Context())
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) expectCount(u *Unit, want int64) {
	b.t.Helper()
	var got int64
	err := u.View(b.t.Context(), func(tx *nodedb.Tx) error {
		v, err := tx.Get(nodedb.Name("^n"))
		got, _ = v.Int()
		return err
	})
	if err != nil || got != want {
		b.t.Errorf("the state has counted %d, %v, want %d", got, err, want)
	}
}

// expectRefusal opens the unit, which is refused with parts of a message, and changes nothing.
func (b *bed) expectRefusal(parts ...string) {
	b.t.Helper()
	for range 2 {
		u, err := Open(b.t.Context(), b.config, "a")
		if u != nil {
			b.t.Fatalf("a unit is open, want a refusal with %q", parts)
		}
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Unit != "a" || !event.IsPermanent(err) || event.HintOf(err) == "" {
			b.t.Fatalf("the error is %v, with the hint %q; want a refusal of unit a", err, event.HintOf(err))
		}
		for _, part := range parts {
			if text := err.Error() + " " + event.HintOf(err); !strings.Contains(text, part) {
				b.t.Errorf("the error is %q, want %q in it", text, part)
			}
		}
	}
}

func copyFolder(t *testing.T, from string) (to string) {
	t.Helper()
	to = t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestOpenCatchesUp opens units whose copies are complete, older, and missing.
func TestOpenCatchesUp(t *testing.T) {
	b := newBed(t, t.TempDir())
	u := b.open()
	b.count(u, 0, 5, 1)
	b.close(u)
	old := copyFolder(t, b.config.Folder)
	u = b.open()
	b.expectCount(u, 5)
	b.count(u, 5, 5, 10)
	b.expectCount(u, 55)
	b.close(u)
	for _, folder := range []string{b.config.Folder, old, t.TempDir()} {
		b.config.Folder = folder
		u = b.open()
		b.expectCount(u, 55)
		if u.last != 10 {
			t.Errorf("the last note is %d, want 10", u.last)
		}
		b.close(u)
	}
}

// TestRefusals opens units whose copies do not continue what the home has.
func TestRefusals(t *testing.T) {
	t.Run("home set back", func(t *testing.T) {
		b := newBed(t, t.TempDir())
		u := b.open()
		b.count(u, 0, 3, 1)
		b.close(u)
		back := newBed(t, b.config.Folder)
		back.expectRefusal("has changes up to note 3, and sink changelog only notes up to 0", "set back")
		u = b.open() // with its own home it goes on
		b.expectCount(u, 3)
		b.close(u)
	})
	t.Run("another history", func(t *testing.T) {
		b := newBed(t, t.TempDir())
		u := b.open()
		b.count(u, 0, 3, 1)
		b.close(u)
		other := newBed(t, t.TempDir())
		u = other.open()
		other.count(u, 0, 5, 2)
		other.close(u)
		other.config.Folder = b.config.Folder
		other.expectRefusal("note 3 of unit a has another checksum in sink changelog")
	})
	t.Run("no copy", func(t *testing.T) {
		b := newBed(t, t.TempDir())
		u := b.open()
		b.count(u, 0, 3, 1)
		b.trim(u)
		b.close(u)
		units, err := b.config.Units(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		folder := b.config.Folder
		b.config.Folder = filepath.Join(t.TempDir(), "state")
		b.expectRefusal("unit a of state users has no copy in "+b.config.Folder, "keeps only the changes from note 3 on", "its last owner, "+units["a"].Owner+", has a copy")
		if _, err := os.Stat(b.config.Folder); err == nil {
			t.Error("a refused unit leaves a folder")
		}
		b.config.Folder = folder
		u = b.open()
		b.expectCount(u, 3)
		b.close(u)
	})
	t.Run("older copy", func(t *testing.T) {
		b := newBed(t, t.TempDir())
		u := b.open()
		b.count(u, 0, 3, 1)
		b.close(u)
		old := copyFolder(t, b.config.Folder)
		u = b.open()
		b.count(u, 3, 3, 1)
		b.trim(u)
		b.close(u)
		b.config.Folder = old
		b.expectRefusal("has changes up to note 3, and sink changelog notes from 6 on", "another machine has the copy")
	})
	t.Run("damaged note", func(t *testing.T) {
		for name, damage := range map[string]func(n *sink.Note) *sink.Note{
			"the note is damaged":             func(n *sink.Note) *sink.Note { n.Sum++; return n },
			"it does not continue note 2":     func(n *sink.Note) *sink.Note { return link(n.Data, n.Number, 7) },
			"the note has version 9":          func(n *sink.Note) *sink.Note { n.Data[0] = 9; return link(n.Data, n.Number, 7) },
			"note 3 of unit a in sink change": func(n *sink.Note) *sink.Note { return link(n.Data[:len(n.Data)-1], n.Number, 7) },
		} {
			b := newBed(t, t.TempDir())
			u := b.open()
			b.count(u, 0, 3, 1)
			b.close(u)
			b.config.Home = damagedHome{b.home, 3, damage}
			b.config.Folder = t.TempDir()
			b.expectRefusal(name)
		}
	})
	t.Run("missing note", func(t *testing.T) {
		b := newBed(t, t.TempDir())
		u := b.open()
		b.count(u, 0, 3, 1)
		b.close(u)
		b.config.Home = damagedHome{b.home, 3, func(*sink.Note) *sink.Note { return nil }}
		b.config.Folder = t.TempDir()
		b.expectRefusal("note 3 is missing")
	})
}

// A damagedHome damages one note as it is read.
type damagedHome struct {
	sink.UnitStore
	number uint64
	damage func(*sink.Note) *sink.Note // nil: it is missing
}

func (h damagedHome) OpenUnit(ctx context.Context, name string) (sink.Unit, error) {
	u, err := h.UnitStore.OpenUnit(ctx, name)
	return damagedUnit{u, h}, err
}

func (h damagedHome) ReadNotes(ctx context.Context, name string, from uint64, visit func(*sink.Note) error) error {
	return h.UnitStore.ReadNotes(ctx, name, from, h.damaging(visit))
}

// damaging returns a visit of notes that finds one damaged.
func (h damagedHome) damaging(visit func(*sink.Note) error) func(*sink.Note) error {
	return func(n *sink.Note) error {
		if n.Number == h.number {
			if n = h.damage(n); n == nil {
				return nil
			}
		}
		return visit(n)
	}
}

type damagedUnit struct {
	sink.Unit
	home damagedHome
}

func (u damagedUnit) Notes(ctx context.Context, from uint64, visit func(*sink.Note) error) error {
	return u.Unit.Notes(ctx, from, u.home.damaging(visit))
}

// TestUndelivered visits the notes whose outputs a sink may lack, also after the unit was closed or
// its process killed.
func TestUndelivered(t *testing.T) {
	b := newBed(t, t.TempDir())
	u := b.open()
	b.count(u, 0, 4, 1)
	u.Delivered(2)
	b.count(u, 4, 1, 1)
	if err := u.copy.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, b.config.Folder)
	u.Delivered(4)
	undelivered := func(u *Unit) (numbers []uint64) {
		err := u.Undelivered(t.Context(), func(n *Note) error {
			if len(n.Outputs) != 1 || uint64(n.Outputs[0]) != n.Number-1 || n.Range.First != n.Number-1 || n.Partition != "a" {
				t.Errorf("note %d has the outputs %v of the events %v of partition %s", n.Number, n.Outputs, n.Range, n.Partition)
			}
			numbers = append(numbers, n.Number)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return numbers
	}
	b.close(u)
	u = b.open()
	if got := undelivered(u); !slices.Equal(got, []uint64{5}) {
		t.Errorf("after Close, notes %v are not delivered, want 5", got)
	}
	if got := undelivered(u); len(got) > 0 {
		t.Errorf("notes %v are not delivered, want none", got)
	}
	b.close(u)
	b.config.Folder = killed
	u = b.open()
	if got := undelivered(u); !slices.Equal(got, []uint64{5}) { // the home has trimmed the others
		t.Errorf("after a kill, notes %v are not delivered, want 5", got)
	}
	b.close(u)
}

// TestUndeliveredOfOtherHistory closes a unit whose outputs are delivered, and opens another history of
// it with as many notes, as a home has that was set back: what it has is not delivered.
func TestUndeliveredOfOtherHistory(t *testing.T) {
	one := newBed(t, t.TempDir())
	other := newBed(t, t.TempDir())
	u := one.open()
	one.count(u, 0, 3, 1)
	u.Delivered(3)
	one.close(u)
	u = other.open()
	other.count(u, 0, 3, 2)
	if err := u.copy.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed := copyFolder(t, other.config.Folder)
	other.close(u)
	other.config.Folder = killed
	text, err := os.ReadFile(filepath.Join(one.config.Folder, "a~delivered"))
	if err == nil {
		err = os.WriteFile(filepath.Join(killed, "a~delivered"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	u = other.open()
	defer other.close(u)
	visited := 0
	err = u.Undelivered(t.Context(), func(*Note) error { visited++; return nil })
	if err != nil || visited == 0 {
		t.Errorf("%d notes are not delivered, %v; want some", visited, err)
	}
}

// TestTrimKeeps holds the home to the notes that a sink or the copy's disk lacks, and to the last.
func TestTrimKeeps(t *testing.T) {
	b := newBed(t, t.TempDir())
	u := b.open()
	b.count(u, 0, 6, 1)
	for _, step := range []struct{ delivered, first uint64 }{{0, 1}, {3, 4}, {6, 6}} {
		u.Delivered(step.delivered)
		err := u.copy.Sync(t.Context())
		if err == nil {
			err = u.trim(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		status, err := u.home.Status(t.Context())
		if err != nil || status.First != step.first || status.Last != 6 {
			t.Errorf("with outputs delivered up to note %d, the home has notes %d to %d, %v; want %d to 6", step.delivered, status.First, status.Last, err, step.first)
		}
	}
	b.close(u)
}

func TestFolderNames(t *testing.T) {
	c := &Config{Name: "users", Folder: t.TempDir()}
	long := strings.Repeat("x", 300)
	units := []string{"a", "A/b", "a b", "..", ".", "~", "a~delivered", "a.delivered", "ü", "100%", long + "1", long + "2", "%7E"}
	seen := map[string]string{}
	for _, unit := range units {
		u := &Unit{replica: replica{config: c, name: unit}}
		for _, path := range []string{c.folderOf(unit), u.deliveredFile()} {
			if other, taken := seen[path]; taken {
				t.Errorf("units %q and %q share %s", other, unit, path)
			}
			seen[path] = unit
			if filepath.Dir(path) != c.Folder || len(filepath.Base(path)) > 255 {
				t.Errorf("unit %q has the path %s", unit, path)
			}
		}
		if err := os.Mkdir(c.folderOf(unit), 0o700); err != nil {
			t.Error(err)
		}
		if !c.HasCopy(unit) || c.HasCopy(unit+"!") {
			t.Errorf("unit %q has no copy, or %q has one", unit, unit+"!")
		}
	}
	names, err := c.Copies()
	slices.Sort(names)
	want := slices.Sorted(slices.Values(slices.DeleteFunc(units, func(unit string) bool { return len(unit) > 300 })))
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("the copies are %q, %v, want %q", names, err, want)
	}
}

func TestNoteIsDecodedAsEncoded(t *testing.T) {
	want := Note{
		Number: 7, Previous: 1 << 63, Clock: time.UnixMilli(1_764_000_000_123), Delivered: 5, Script: "a.lua 1", Partition: "p/1",
		Range: event.Range{First: 1 << 40, Count: 3}, Changes: []byte("changes"), Outputs: []byte{0, 1, 2},
	}
	for _, n := range []Note{want, {Number: 1, Clock: time.UnixMilli(0)}} {
		data, err := n.encode()
		if err != nil {
			t.Fatal(err)
		}
		stored := link(data, n.Number, n.Previous)
		got, err := decodeNote(stored)
		if err != nil {
			t.Fatal(err)
		}
		n.Sum = stored.Sum
		if fmt.Sprint(*got) != fmt.Sprint(n) {
			t.Errorf("got %v, want %v", *got, n)
		}
		for i := range stored.Data {
			stored.Data[i] ^= 0x10
			if _, err := decodeNote(stored); err == nil {
				t.Errorf("a note with another byte %d is read", i)
			}
			stored.Data[i] ^= 0x10
		}
	}
}

// FuzzDecodeNote reads notes with a valid checksum: each is refused, or stays as it is.
func FuzzDecodeNote(f *testing.F) {
	n := Note{Number: 7, Clock: time.UnixMilli(5), Script: "a.lua 1", Partition: "p", Range: event.Range{First: 4, Count: 3}, Changes: []byte("changes"), Outputs: []byte{0, 1}}
	data, err := n.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:noteHeader])
	f.Add([]byte{noteVersion})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < noteHeader {
			data = append(data, make([]byte, noteHeader)...)
		}
		first, err := decodeNote(link(data, 1, 2))
		if err != nil {
			return
		}
		again, err := first.encode()
		if err != nil {
			t.Fatal(err)
		}
		second, err := decodeNote(link(again, 1, 2))
		if err != nil {
			t.Fatalf("a note that was read cannot be read again: %v", err)
		}
		first.Sum, second.Sum = 0, 0
		if fmt.Sprint(*first) != fmt.Sprint(*second) {
			t.Errorf("got %v, want %v", second, first)
		}
	})
}
