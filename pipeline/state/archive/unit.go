package archive

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/sink"
)

// A Point is a note of a unit: its number, and its checksum, which stands for all notes up to it. The
// zero Point is before the first note.
type Point struct{ Number, Sum uint64 }

// A Unit is the part of a place that has one unit.
type Unit struct {
	place  Place
	folder string
}

// NewUnit returns the part of a place that has a unit. The name of its folder has no slash.
func NewUnit(place Place, state, folder string) *Unit {
	return &Unit{place, path.Join(state, folder)}
}

// String names the part for people.
func (u *Unit) String() string { return u.place.String() + "/" + u.folder }

// The folders of a unit.
const (
	segmentsFolder  = "segments"
	snapshotsFolder = "snapshots"
	chunksFolder    = "chunks"
)

// A SegmentName says what is in a segment: the notes behind Before, up to End.
type SegmentName struct {
	Before, End Point
	Size        int64
	Modified    time.Time
}

func (s SegmentName) name() string {
	return fmt.Sprintf("%020d-%020d-%016x-%016x", s.Before.Number+1, s.End.Number, s.Before.Sum, s.End.Sum)
}

func (s SegmentName) String() string { return segmentsFolder + "/" + s.name() }

func parseSegmentName(text string) (s SegmentName, ok bool) {
	var first uint64
	n, err := fmt.Sscanf(text, "%020d-%020d-%016x-%016x", &first, &s.End.Number, &s.Before.Sum, &s.End.Sum)
	s.Before.Number = first - 1
	return s, err == nil && n == 4 && first > 0 && s.End.Number >= first && s.name() == text
}

// A SnapshotName says which notes are in a snapshot: all up to Applied, and parts of those up to
// Begun.
type SnapshotName struct {
	Applied, Begun Point
	ID             string // random
	Modified       time.Time
}

func (s SnapshotName) name() string {
	return fmt.Sprintf("%020d-%016x-%020d-%016x-%s", s.Applied.Number, s.Applied.Sum, s.Begun.Number, s.Begun.Sum, s.ID)
}

func (s SnapshotName) String() string { return snapshotsFolder + "/" + s.name() }

// idBytes is the length of the IDs of snapshots.
const idBytes = 8

// NewID returns an ID for a snapshot.
func NewID() string {
	var id [idBytes]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

func parseSnapshotName(text string) (s SnapshotName, ok bool) {
	n, err := fmt.Sscanf(text, "%020d-%016x-%020d-%016x-%s", &s.Applied.Number, &s.Applied.Sum, &s.Begun.Number, &s.Begun.Sum, &s.ID)
	return s, err == nil && n == 5 && len(s.ID) == 2*idBytes && s.Begun.Number >= s.Applied.Number && s.name() == text
}

// PutSegment makes a segment of notes that follow one another from the one behind before. It returns
// its name.
func (u *Unit) PutSegment(ctx context.Context, before Point, notes []*sink.Note) (SegmentName, error) {
	last := notes[len(notes)-1]
	name := SegmentName{Before: before, End: Point{last.Number, last.Sum}}
	data := encodeSegment(before, notes)
	name.Size, name.Modified = int64(len(data)), time.Now()
	return name, u.place.Put(ctx, path.Join(u.folder, name.String()), data)
}

// ReadSegment returns the notes of a segment, whose checksum it verifies, but not that of each note.
func (u *Unit) ReadSegment(ctx context.Context, name SegmentName) ([]*sink.Note, error) {
	data, err := u.place.Get(ctx, path.Join(u.folder, name.String()), segmentMax)
	if err != nil {
		return nil, err
	}
	before, notes, err := decodeSegment(data)
	if err == nil && (before != name.Before || len(notes) == 0 || notes[len(notes)-1].Number != name.End.Number || notes[len(notes)-1].Sum != name.End.Sum) {
		err = fmt.Errorf("%w: it has other notes than its name says", ErrDamaged)
	}
	return notes, u.wrap(name.String(), err)
}

// chunkName returns the name of a chunk of a snapshot.
func chunkName(id string, i int) string { return fmt.Sprintf("%s/%s/%08d", chunksFolder, id, i) }

// PutChunk makes the chunk with index i of a new snapshot.
func (u *Unit) PutChunk(ctx context.Context, id string, i int, data []byte) (ChunkSum, error) {
	sum := sumOfChunk(data)
	return sum, u.place.Put(ctx, path.Join(u.folder, chunkName(id, i)), data)
}

// PutSnapshot makes the snapshot of these chunks exist.
func (u *Unit) PutSnapshot(ctx context.Context, name SnapshotName, m *Manifest) error {
	return u.place.Put(ctx, path.Join(u.folder, name.String()), m.encode(name))
}

// ReadSnapshot returns the manifest of a snapshot.
func (u *Unit) ReadSnapshot(ctx context.Context, name SnapshotName) (*Manifest, error) {
	data, err := u.place.Get(ctx, path.Join(u.folder, name.String()), manifestMax)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(data, name)
	return m, u.wrap(name.String(), err)
}

// ReadChunk returns chunk i of a snapshot.
func (u *Unit) ReadChunk(ctx context.Context, name SnapshotName, m *Manifest, i int) ([]byte, error) {
	object := chunkName(name.ID, i)
	data, err := u.place.Get(ctx, path.Join(u.folder, object), int64(m.Chunks[i].Size))
	if err != nil {
		return nil, err
	}
	if sumOfChunk(data) != m.Chunks[i] {
		return nil, u.wrap(object, ErrDamaged)
	}
	return data, nil
}

func (u *Unit) wrap(object string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s in archive %s: %w", object, u, err)
}

// List returns what there is.
func (u *Unit) List(ctx context.Context) (*History, error) {
	h := &History{unit: u, ends: map[Point][]SegmentName{}, sums: map[string]map[uint64]uint64{}}
	err := u.place.List(ctx, path.Join(u.folder, segmentsFolder), "", func(o Object) error {
		if s, ok := parseSegmentName(o.Name); ok {
			s.Size, s.Modified = o.Size, o.Modified
			h.add(s)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = u.place.List(ctx, path.Join(u.folder, snapshotsFolder), "", func(o Object) error {
		if s, ok := parseSnapshotName(o.Name); ok {
			s.Modified = o.Modified
			h.Snapshots = append(h.Snapshots, s)
		}
		return nil
	})
	return h, err
}

// Remove removes what no restore to a time since a moment needs: the segments and snapshots from
// before that moment that kept, a snapshot from before it, makes unnecessary, and chunks of snapshots that
// never came to exist.
func (u *Unit) Remove(ctx context.Context, h *History, kept SnapshotName, since time.Time) (removed int, err error) {
	used := map[string]bool{}
	for _, s := range h.Snapshots {
		if used[s.ID] = !s.Modified.Before(since) || s.Applied.Number >= kept.Applied.Number; used[s.ID] {
			continue
		}
		if err := u.place.Remove(ctx, path.Join(u.folder, s.String())); err != nil { // before its chunks
			return removed, err
		}
		removed++
	}
	var names []string
	for _, s := range h.Segments {
		if s.Modified.Before(since) && s.End.Number <= kept.Applied.Number {
			names = append(names, s.String())
		}
	}
	err = u.place.List(ctx, path.Join(u.folder, chunksFolder), "", func(o Object) error {
		// A snapshot that is being made, also by an owner whose lease has ended, is not in the history.
		id, _, _ := strings.Cut(o.Name, "/")
		known := slices.ContainsFunc(h.Snapshots, func(s SnapshotName) bool { return s.ID == id })
		if !used[id] && (known || time.Since(o.Modified) > partsKept) {
			names = append(names, chunksFolder+"/"+o.Name)
		}
		return nil
	})
	for _, name := range names {
		if err == nil {
			err = u.place.Remove(ctx, path.Join(u.folder, name))
			removed++
		}
	}
	if f, ok := u.place.(folder); ok && err == nil {
		err = f.tidy(u.folder)
	}
	return removed, err
}
