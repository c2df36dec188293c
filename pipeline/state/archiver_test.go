//go:build cgo && lmdb

package state

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/sink"
)

// newArchivedBed is newBed with an archive in a folder, which takes each note soon.
func newArchivedBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t, filepath.Join(t.TempDir(), "users"))
	place, err := archive.Locate(filepath.Join(t.TempDir(), "archive"), "", s3client.Settings{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.config.Archive, b.config.ArchiveAge, b.config.SnapshotBytes = place, time.Millisecond, 1<<40
	return b
}

func (b *bed) history() *archive.History {
	b.t.Helper()
	h, err := b.config.archiveOf("a").List(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// archived waits until the archive has all notes of a unit.
func (b *bed) archived(u *Unit) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if s := u.ArchiveStatus(); s.Archived == u.last {
			return
		} else if time.Now().After(end) {
			b.t.Fatalf("the archive has the notes up to %d, %s, want %d", s.Archived, s.Error, u.last)
		}
	}
}

// closeTrimmed leaves only the last note at the home.
func (b *bed) closeTrimmed(u *Unit) {
	b.t.Helper()
	b.archived(u)
	b.trim(u)
	b.close(u)
	units, err := b.config.Units(b.t.Context())
	if status := units["a"]; err != nil || status.First != status.Last {
		b.t.Fatalf("the home has notes %d to %d, %v, want only the last one", status.First, status.Last, err)
	}
}

// elsewhere returns the bed of another machine, which has no copy.
func (b *bed) elsewhere() *bed {
	config := *b.config
	config.Folder = filepath.Join(b.t.TempDir(), "users")
	return &bed{b.t, b.home, &config}
}

func (b *bed) snapshot(u *Unit) SnapshotResult {
	b.t.Helper()
	made, err := u.Snapshot(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

// TestRestoreWithoutCopy opens units on machines without a copy. The archive has only segments of
// one, only a snapshot of another, and both of a third.
func TestRestoreWithoutCopy(t *testing.T) {
	for name, prepare := range map[string]func(b *bed, u *Unit){
		"segments":              func(b *bed, u *Unit) { b.count(u, 0, 30, 1) },
		"snapshot":              func(b *bed, u *Unit) { b.count(u, 0, 30, 1); b.snapshot(u) },
		"snapshot and segments": func(b *bed, u *Unit) { b.count(u, 0, 20, 1); b.snapshot(u); b.count(u, 20, 10, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newArchivedBed(t)
			u := b.open()
			prepare(b, u)
			b.closeTrimmed(u)
			other := b.elsewhere()
			u = other.open()
			other.expectCount(u, 30)
			if u.last != 30 {
				t.Errorf("the last note is %d, want 30", u.last)
			}
			other.count(u, 30, 5, 1)
			other.closeTrimmed(u)
			if _, err := os.Stat(other.config.folderOf("a") + "~restoring"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder of the restore stays: %v", err)
			}
			// The first machine has an outdated copy.
			u = b.open()
			b.expectCount(u, 35)
			b.close(u)
			names, err := filepath.Glob(filepath.Join(b.config.Folder, "*~*"))
			if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], "~delivered") {
				t.Errorf("the folder of the state has %v, %v", names, err)
			}
		})
	}
}

// TestTrimWaitsForArchive keeps notes at the home while the archive cannot be written, and the unit goes
// on. Each of the two changes is logged once.
func TestTrimWaitsForArchive(t *testing.T) {
	b := newArchivedBed(t)
	var log lockedBuffer
	b.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	place := &brokenPlace{Place: b.config.Archive}
	place.broken.Store(true)
	b.config.Archive = place
	u := b.open()
	b.count(u, 0, 10, 1)
	for end := time.Now().Add(20 * time.Second); u.ArchiveStatus().Error == "" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	b.trim(u)
	units, err := b.config.Units(t.Context())
	if err != nil || units["a"].First != 1 {
		t.Errorf("the home has notes from %d on, %v, want all", units["a"].First, err)
	}
	if s := u.ArchiveStatus(); s.WaitingNotes != 10 || s.WaitingBytes != units["a"].Bytes || !strings.Contains(s.Error, "broken") {
		t.Errorf("the status of the archive is %+v, want 10 notes with %d bytes and an error", s, units["a"].Bytes)
	}
	b.close(u)
	u = b.open() // a new owner knows what waits
	b.count(u, 10, 2, 1)
	place.broken.Store(false)
	b.archived(u)
	if s := u.ArchiveStatus(); s.WaitingNotes != 0 || s.WaitingBytes != 0 {
		t.Errorf("the status of the archive is %+v, want nothing that waits", s)
	}
	b.closeTrimmed(u)
	text := log.String()
	if n := strings.Count(text, "archiving failed"); n < 1 || n > 2 || strings.Count(text, "level=WARN") != n {
		t.Errorf("2 owners have logged %d warnings:\n%s", n, text)
	}
	if strings.Count(text, "archiving succeeds again") > 1 {
		t.Errorf("the end of the failures is logged more than once:\n%s", text)
	}
	other := b.elsewhere()
	u = other.open()
	other.expectCount(u, 12)
	other.close(u)
}

// lockedBuffer is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A brokenPlace cannot be reached for a while.
type brokenPlace struct {
	archive.Place
	broken atomic.Bool
}

var errBroken = errors.New("the place is broken")

func (p *brokenPlace) Put(ctx context.Context, name string, data []byte) error {
	if p.broken.Load() {
		return errBroken
	}
	return p.Place.Put(ctx, name, data)
}

func (p *brokenPlace) List(ctx context.Context, folder, after string, visit func(archive.Object) error) error {
	if p.broken.Load() {
		return errBroken
	}
	return p.Place.List(ctx, folder, after, visit)
}

// TestUnreachableArchive opens a unit without a copy while the archive cannot be reached: that is
// an error that may pass, and not a refusal.
func TestUnreachableArchive(t *testing.T) {
	b := newArchivedBed(t)
	u := b.open()
	b.count(u, 0, 5, 1)
	b.closeTrimmed(u)
	other := b.elsewhere()
	place := &brokenPlace{Place: b.config.Archive}
	place.broken.Store(true)
	other.config.Archive = place
	_, err := Open(t.Context(), other.config, "a")
	if _, refused := errors.AsType[*RefusedError](err); refused || !errors.Is(err, errBroken) {
		t.Errorf("an archive that cannot be reached: %v", err)
	}
	place.broken.Store(false)
	u = other.open()
	other.expectCount(u, 5)
	other.close(u)
}

// TestSnapshotsAreMade makes a snapshot when the segments outweigh the last one, and at once if no
// restore is possible without it, as when the archive is new.
func TestSnapshotsAreMade(t *testing.T) {
	b := newArchivedBed(t)
	place := b.config.Archive
	b.config.Archive = nil
	u := b.open()
	b.count(u, 0, 10, 1)
	b.trim(u)
	b.close(u)
	b.config.Archive = place
	u = b.open()
	waitFor(t, "the first snapshot", func() bool { return len(b.history().Snapshots) == 1 })
	b.count(u, 10, 5, 1)
	b.closeTrimmed(u)
	other := b.elsewhere()
	u = other.open()
	other.expectCount(u, 15)
	other.close(u)
	u = b.open()
	b.change(u, 15, func(tx *nodedb.Tx) error {
		for i := range 300 {
			if err := tx.Set(nodedb.Name("^t").At(i), rand.Text()); err != nil {
				return err
			}
		}
		return nil
	})
	b.close(u)
	b.config.SnapshotBytes = 1
	before := len(b.history().Snapshots)
	u = b.open()
	waitFor(t, "a snapshot after many changes", func() bool { return len(b.history().Snapshots) == before+1 })
	for i := range uint64(200) {
		b.count(u, 16+i, 1, 1)
		b.archived(u)
	}
	waitFor(t, "another snapshot", func() bool { return len(b.history().Snapshots) > before+1 })
	if made := len(b.history().Snapshots) - before; made > 20 {
		t.Errorf("200 small segments are followed by %d snapshots, want one where segments outweigh the last", made)
	}
	b.close(u)
}

func waitFor(t *testing.T, what string, has func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !has(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("after 20 s, the archive lacks ", what)
		}
	}
}

// TestKeep removes what is older than the archive is to keep, and a machine without a copy still
// restores the unit.
func TestKeep(t *testing.T) {
	b := newArchivedBed(t)
	b.config.Keep = 100 * time.Millisecond
	u := b.open()
	for i := range uint64(4) {
		b.count(u, i*10, 10, 1)
		b.archived(u)
		b.snapshot(u)
		time.Sleep(2 * b.config.Keep)
	}
	if h := b.history(); len(h.Snapshots) != 2 || len(h.Segments) > 10 {
		t.Errorf("there are %d snapshots and %d segments, want those since the third snapshot", len(h.Snapshots), len(h.Segments))
	}
	b.count(u, 40, 5, 1)
	b.closeTrimmed(u)
	other := b.elsewhere()
	u = other.open()
	other.expectCount(u, 45)
	other.close(u)
}

// TestSnapshotBehindFirstNote restores from a snapshot of a note that the home still has, while older
// segments are gone, since a sink was behind for longer than the archive keeps.
func TestSnapshotBehindFirstNote(t *testing.T) {
	b := newArchivedBed(t)
	b.config.Keep = 10 * time.Millisecond
	u := b.open()
	b.count(u, 0, 10, 1)
	u.Delivered(5)
	for i := range uint64(3) {
		b.count(u, 10+5*i, 5, 1)
		b.archived(u)
		b.snapshot(u)
		time.Sleep(2 * b.config.Keep)
	}
	if err := u.copy.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := u.trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.close(u)
	units, err := b.config.Units(t.Context())
	if err != nil || units["a"].First != 6 {
		t.Fatalf("the home has notes from %d on, %v, want 6", units["a"].First, err)
	}
	if h := b.history(); h.Segments[0].Before.Number < 10 {
		t.Fatalf("the segment %v stays", h.Segments[0])
	}
	other := b.elsewhere()
	u = other.open()
	other.expectCount(u, 25)
	if u.delivered != 5 {
		t.Errorf("the outputs up to note %d are delivered, want 5", u.delivered)
	}
	other.close(u)
}

// TestRestoreIsResumed kills a restore at each step: the next one continues.
func TestRestoreIsResumed(t *testing.T) {
	b := newArchivedBed(t)
	u := b.open()
	b.count(u, 0, 20, 1)
	b.snapshot(u)
	for i := range uint64(5) {
		b.count(u, 20+i, 1, 1)
		b.archived(u)
	}
	b.closeTrimmed(u)
	steps := 0
	for killAt := 1; ; killAt++ {
		other := b.elsewhere()
		seen := 0
		ctx, cancel := context.WithCancel(t.Context())
		other.config.OnStep = func(at Step) {
			if seen++; seen == killAt {
				cancel()
			}
		}
		_, err := restoreOnly(ctx, other.config)
		cancel()
		if err == nil {
			break
		}
		steps++
		_, begun := os.Stat(other.config.folderOf("a") + "~restoring")
		other.config.OnStep = nil
		var log lockedBuffer
		other.config.Log = slog.New(slog.NewTextHandler(&log, nil))
		u := other.open()
		other.expectCount(u, 25)
		if again := strings.Contains(log.String(), `"chunks loaded"=0`); begun == nil && again {
			t.Errorf("after %d steps, the restore begins again:\n%s", killAt, log.String())
		}
		other.close(u)
	}
	if steps < 3 {
		t.Errorf("the restore was ended %d times, want at least 3", steps)
	}
}

// restoreOnly opens a unit as far as its restore.
func restoreOnly(ctx context.Context, c *Config) (*Unit, error) {
	u, err := Open(ctx, c, "a")
	if u != nil {
		err = errors.Join(err, u.Close())
	}
	return u, err
}

// TestRestoreRefuses says what is missing in the archive.
func TestRestoreRefuses(t *testing.T) {
	remove := func(b *bed, pattern string) {
		names, _ := filepath.Glob(filepath.Join(b.config.Archive.String(), "users/a", pattern))
		if len(names) == 0 {
			b.t.Fatal("there is no ", pattern)
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	prepared := func(t *testing.T) *bed { // the segments end with notes 5, 10 and 15
		b := newArchivedBed(t)
		b.config.ArchiveAge = time.Hour
		for first := uint64(0); first < 15; first += 5 {
			u := b.open()
			b.count(u, first, 5, 1)
			if first == 0 {
				b.snapshot(u)
			}
			b.close(u)
		}
		u := b.open()
		waitFor(t, "note 15", func() bool { return u.ArchiveStatus().Archived == 15 })
		b.closeTrimmed(u)
		return b.elsewhere()
	}
	t.Run("nothing", func(t *testing.T) {
		b := prepared(t)
		remove(b, "*")
		b.expectRefusal("has no copy in", "keeps only the changes from note 15 on", "has nothing of it", "its last owner")
	})
	t.Run("no snapshot", func(t *testing.T) {
		b := prepared(t)
		remove(b, "snapshots")
		remove(b, "segments/00000000000000000001-*")
		b.expectRefusal("has no snapshot of it")
	})
	t.Run("gap", func(t *testing.T) {
		b := prepared(t)
		remove(b, "segments/*-00000000000000000010-*")
		b.expectRefusal("has only notes 11 to 14 that continue one another")
	})
	t.Run("end", func(t *testing.T) {
		b := prepared(t)
		remove(b, "segments/*-00000000000000000015-*")
		b.expectRefusal("lacks note 14")
	})
	t.Run("damaged segment", func(t *testing.T) {
		b := prepared(t)
		damage(t, b, "segments/*-00000000000000000010-*")
		b.expectRefusal("the object is damaged", "segments/")
	})
	t.Run("damaged snapshot", func(t *testing.T) {
		b := prepared(t)
		damage(t, b, "chunks/*/00000000")
		u := b.open() // from the first segment on
		b.expectCount(u, 15)
		b.close(u)
	})
}

// damage changes a byte of an object.
func damage(t *testing.T, b *bed, pattern string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.config.Archive.String(), "users/a", pattern))
	if err != nil || len(names) != 1 {
		t.Fatalf("%s is %v, %v", pattern, names, err)
	}
	data, err := os.ReadFile(names[0])
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(names[0], data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHomeSetBack restores a unit at the number of a home that was set back, and goes on with another
// history. Later restores take that one.
func TestHomeSetBack(t *testing.T) {
	b := newArchivedBed(t)
	u := b.open()
	b.count(u, 0, 10, 1)
	b.archived(u)
	b.count(u, 10, 7, 1)
	b.archived(u)
	b.snapshot(u)
	b.trim(u)
	b.close(u)
	backup := b.home.backup(t)
	u = b.open()
	b.count(u, 17, 10, 100)
	b.snapshot(u)
	b.closeTrimmed(u)
	b.home = backup
	b.config.Home = backup
	b.expectRefusal("has changes up to note 27, and sink changelog only notes up to 17", "perigee state restore CONFIG users --unit \"a\"")
	restored, err := b.config.Restore(t.Context(), "a", nil)
	if err != nil || restored.Note != 17 || restored.Aside == "" {
		t.Fatalf("restored %+v, %v, want note 17", restored, err)
	}
	if _, err := os.Stat(restored.Aside); err != nil {
		t.Errorf("the copy of before is gone: %v", err)
	}
	u = b.open()
	b.expectCount(u, 17)
	b.count(u, 17, 10, 2)
	b.closeTrimmed(u)
	other := b.elsewhere()
	u = other.open()
	other.expectCount(u, 37)
	other.count(u, 27, 1, 2)
	other.snapshot(u)
	other.closeTrimmed(u)
	third := b.elsewhere()
	u = third.open()
	third.expectCount(u, 39)
	third.close(u)
}

// TestLateSegment lets an owner that was fenced write a segment behind those of the new owner.
func TestLateSegment(t *testing.T) {
	b := newArchivedBed(t)
	u := b.open()
	b.count(u, 0, 5, 1)
	b.archived(u)
	notes := b.notes(u, 6)
	b.close(u)
	if len(notes) > 0 {
		t.Fatalf("there are %d notes behind the last", len(notes))
	}
	b.config.ArchiveAge = time.Hour
	u = b.open()
	b.count(u, 5, 7, 1)
	late := b.notes(u, 6)
	b.close(u)
	b.config.ArchiveAge = time.Millisecond
	u = b.open()
	b.count(u, 12, 3, 1)
	before := archive.Point{Number: 5, Sum: previousOf(late[0])}
	if _, err := b.config.archiveOf("a").PutSegment(t.Context(), before, late[:4]); err != nil {
		t.Fatal(err)
	}
	b.closeTrimmed(u)
	other := b.elsewhere()
	u = other.open()
	other.expectCount(u, 15)
	other.close(u)
}

// notes returns the notes that the home has from a number on.
func (b *bed) notes(u *Unit, from uint64) (notes []*sink.Note) {
	b.t.Helper()
	err := u.home.Notes(b.t.Context(), from, func(n *sink.Note) error {
		notes = append(notes, &sink.Note{Number: n.Number, Sum: n.Sum, Data: slices.Clone(n.Data)})
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return notes
}

// TestFencedArchiver opens a unit twice: the archiver of the first owner ends, and its Close is no
// failure.
func TestFencedArchiver(t *testing.T) {
	b := newArchivedBed(t)
	u := b.open()
	b.count(u, 0, 5, 1)
	other := b.elsewhere()
	second := other.open()
	if err := u.Close(); err != nil {
		t.Errorf("closing a unit that another process owns: %v", err)
	}
	other.count(second, 5, 5, 1)
	other.closeTrimmed(second)
	third := b.elsewhere()
	u = third.open()
	third.expectCount(u, 10)
	third.close(u)
	if _, err := second.Snapshot(t.Context(), nil); err == nil {
		t.Error("a closed unit makes a snapshot")
	}
}

// TestSnapshotOfEmptyUnit makes a snapshot before the first note.
func TestSnapshotOfEmptyUnit(t *testing.T) {
	b := newArchivedBed(t)
	u := b.open()
	b.snapshot(u)
	b.count(u, 0, 3, 1)
	b.closeTrimmed(u)
	other := b.elsewhere()
	u = other.open()
	other.expectCount(u, 3)
	other.close(u)
}

// TestManyNodes restores nodes that were set, set again and killed, before and after a snapshot.
func TestManyNodes(t *testing.T) {
	b := newArchivedBed(t)
	u := b.open()
	fill := func(from, n int) {
		for i := range n {
			b.change(u, uint64(from+i), func(tx *nodedb.Tx) error {
				for j := range 200 {
					if err := tx.Set(nodedb.Name("^t").At((from+i)%7).At(j), fmt.Sprint("value ", from+i, " ", j)); err != nil {
						return err
					}
				}
				if i%5 == 4 {
					return tx.Kill(nodedb.Name("^t").At((from + i + 3) % 7))
				}
				return nil
			})
		}
	}
	fill(0, 20)
	b.snapshot(u)
	fill(20, 20)
	want := b.dump(u)
	b.closeTrimmed(u)
	other := b.elsewhere()
	u = other.open()
	if got := other.dump(u); !slices.Equal(got, want) {
		t.Errorf("the restored unit has %d nodes, want %d equal ones", len(got), len(want))
	}
	other.close(u)
}

func (b *bed) dump(u *Unit) (nodes []string) {
	b.t.Helper()
	err := u.View(b.t.Context(), func(tx *nodedb.Tx) error {
		for n, err := range tx.Walk(b.t.Context(), nodedb.Path{}, nodedb.Range{}) {
			if err != nil {
				return err
			}
			nodes = append(nodes, fmt.Sprint(n.Path, "=", n.Value))
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return nodes
}

// TestVerify checks a sound unit, and then one with each kind of damage.
func TestVerify(t *testing.T) {
	b := newArchivedBed(t)
	b.config.ArchiveAge = time.Hour
	u := b.open()
	b.count(u, 0, 10, 1)
	b.snapshot(u)
	b.trim(u)
	b.count(u, 10, 5, 1)
	b.expectFaults() // also while it is open
	b.close(u)
	b.expectFaults()
	for _, pattern := range []string{"segments/*", "chunks/*/*", "snapshots/*"} {
		names, err := filepath.Glob(filepath.Join(b.config.Archive.String(), "users/a", pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s is %v, %v", pattern, names, err)
		}
		whole, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		damaged := slices.Clone(whole)
		damaged[len(damaged)/2] ^= 1
		if err := os.WriteFile(names[0], damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		b.expectFaults("the object is damaged")
		if err := os.WriteFile(names[0], whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.expectFaults()
	if err := os.RemoveAll(filepath.Join(b.config.Archive.String(), "users/a/snapshots")); err != nil {
		t.Fatal(err)
	}
	b.expectFaults() // the segments begin with the first note
	names, err := filepath.Glob(filepath.Join(b.config.Archive.String(), "users/a/segments/00000000000000000001-*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("the first segment is %v, %v", names, err)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	b.expectFaults("no snapshot and segments lead to note")
	b.config.Home = damagedHome{b.home, 15, func(n *sink.Note) *sink.Note { n.Sum++; return n }}
	b.expectFaults("note 15: the note is damaged", "no snapshot")
}

// expectFaults verifies the unit, which has faults with these texts.
func (b *bed) expectFaults(want ...string) {
	b.t.Helper()
	checks, err := b.config.Verify(b.t.Context(), "a", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	var faults []string
	for _, c := range checks {
		faults = append(faults, c.Faults...)
	}
	if len(checks) != 3 || len(faults) > 0 && len(want) == 0 {
		b.t.Errorf("the checks are %+v, want 3 without faults", checks)
	}
	for _, text := range want {
		if !strings.Contains(strings.Join(faults, "\n"), text) {
			b.t.Errorf("the faults are %q, want %q", faults, text)
		}
	}
}
