package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/sink"
)

func newFolder(t *testing.T) Place {
	t.Helper()
	place, err := Locate("archive", t.TempDir(), s3client.Settings{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return place
}

func TestFolder(t *testing.T) { testPlace(t, newFolder(t)) }

// testPlace holds a place to the contract of Place.
func testPlace(t *testing.T, place Place) {
	t.Helper()
	ctx := t.Context()
	list := func(folder, after string) (names []string) {
		t.Helper()
		err := place.List(ctx, folder, after, func(o Object) error {
			if age := time.Since(o.Modified); o.Size != int64(len(o.Name)) || age < -time.Minute || age > time.Hour {
				t.Errorf("object %s has %d bytes, modified at %v", o.Name, o.Size, o.Modified)
			}
			names = append(names, o.Name)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if names := list("none", ""); len(names) > 0 {
		t.Errorf("a folder that does not exist has %v", names)
	}
	if _, err := place.Get(ctx, "a/none", 10); !errors.Is(err, fs.ErrNotExist) || !IsUnreadable(err) || !strings.Contains(err.Error(), place.String()) {
		t.Errorf("a missing object: %v", err)
	}
	for _, name := range []string{"03", "01", "02", "sub/x", "%2Fa b~1"} {
		if err := place.Put(ctx, "a/"+name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := place.Put(ctx, "ab/04", []byte("04")); err != nil {
		t.Fatal(err)
	}
	if got, want := list("a", ""), []string{"%2Fa b~1", "01", "02", "03", "sub/x"}; !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	if got, want := list("a", "02"), []string{"03", "sub/x"}; !slices.Equal(got, want) {
		t.Errorf("after 02, the folder has %q, want %q", got, want)
	}
	stop := errors.New("stop")
	if err := place.List(ctx, "a", "", func(Object) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a list that is ended returns %v", err)
	}
	if err := place.Put(ctx, "a/01", []byte("01")); err != nil {
		t.Errorf("the same object again: %v", err)
	}
	if err := place.Put(ctx, "a/01", []byte("xx")); !errors.Is(err, errOtherContents) {
		t.Errorf("an object with other contents: %v", err)
	}
	if data, err := place.Get(ctx, "a/01", 2); err != nil || string(data) != "01" {
		t.Errorf("the object is %q, %v", data, err)
	}
	if _, err := place.Get(ctx, "a/01", 1); err == nil {
		t.Error("an object that is larger than it may be is read")
	}
	for range 2 {
		if err := place.Remove(ctx, "a/01"); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if got, want := list("a", "%"), []string{"%2Fa b~1", "02", "03", "sub/x"}; !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := place.Put(ended, "a/05", []byte("05")); err == nil {
		t.Error("an ended context does not keep an object from being put")
	}
}

func TestLocate(t *testing.T) {
	nothing := func(string) (string, bool) { return "", false }
	for text, want := range map[string]string{
		"s3://bucket/a/b/": "s3://bucket/a/b", "s3://bucket": "s3://bucket", "/x/../y": "/y", "x": "/base/x",
	} {
		place, err := Locate(text, "/base", s3client.Settings{}, nothing)
		if err != nil || place.String() != want {
			t.Errorf("%s is %v, %v, want %s", text, place, err, want)
		}
	}
	for _, text := range []string{"", "ftp://a/b", "s3:///a", "s3://user:secret@a/b", "s3://a/b?c"} {
		if place, err := Locate(text, "/base", s3client.Settings{}, nothing); err == nil {
			t.Errorf("%q is the place %v, want an error", text, place)
		}
	}
	if _, err := Locate("s3://a", "/base", s3client.Settings{Endpoint: "minio:9000"}, nothing); err == nil {
		t.Error("an endpoint without a scheme is accepted")
	}
}

// TestFolderKeepsParts writes beside files that killed processes have left.
func TestFolderKeepsParts(t *testing.T) {
	place := newFolder(t)
	if err := place.Put(t.Context(), "a/1", []byte("1")); err != nil {
		t.Fatal(err)
	}
	fresh, old := filepath.Join(place.String(), "a", partPrefix+"1"), filepath.Join(place.String(), "a", partPrefix+"2")
	for _, path := range []string{fresh, old} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * partsKept)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	if err := place.List(t.Context(), "a", "", func(o Object) error {
		if o.Name != "1" {
			t.Errorf("the list has %s", o.Name)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := place.(folder).tidy("a"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a file that may be being written is gone: %v", err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a killed process stays: %v", err)
	}
}

// noteOf returns a note of a branch of the history. Its checksum stands for all notes before it.
func noteOf(number, branch uint64) *sink.Note {
	return &sink.Note{Number: number, Sum: sumOf(number, branch), Data: fmt.Appendf(nil, "note %d of branch %d", number, branch)}
}

func sumOf(number, branch uint64) uint64 {
	if number == 0 {
		return 0
	}
	return branch<<32 | number
}

func at(number, branch uint64) Point { return Point{number, sumOf(number, branch)} }

func putSegment(t *testing.T, u *Unit, before Point, last, branch uint64) SegmentName {
	t.Helper()
	var notes []*sink.Note
	for number := before.Number + 1; number <= last; number++ {
		notes = append(notes, noteOf(number, branch))
	}
	name, err := u.PutSegment(t.Context(), before, notes)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func putSnapshot(t *testing.T, u *Unit, applied, begun Point) SnapshotName {
	t.Helper()
	name, m := SnapshotName{Applied: applied, Begun: begun, ID: NewID()}, &Manifest{Clock: time.UnixMilli(5), Nodes: 3, Bytes: 100}
	for i := range 2 {
		sum, err := u.PutChunk(t.Context(), name.ID, i, fmt.Appendf(nil, "chunk %d", i))
		if err != nil {
			t.Fatal(err)
		}
		m.Chunks = append(m.Chunks, sum)
	}
	if err := u.PutSnapshot(t.Context(), name, m); err != nil {
		t.Fatal(err)
	}
	return name
}

func list(t *testing.T, u *Unit) *History {
	t.Helper()
	h, err := u.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// expectParts compares what follows a note, as "FIRST-LAST" for each segment, on the chain to another.
func expectParts(t *testing.T, h *History, from, to Point, want string) {
	t.Helper()
	chain, err := h.ChainTo(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	parts, found, err := chain.Parts(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	got := "none"
	if found {
		var all []string
		for _, p := range parts {
			all = append(all, fmt.Sprintf("%d-%d", p.Before.Number+1, p.Last))
		}
		got = strings.Join(all, " ")
	}
	if got != want {
		t.Errorf("from %d to %d of branch %d: the parts are %s, want %s", from.Number, to.Number, to.Sum>>32, got, want)
	}
}

// TestChains follows chains in an archive with two histories. One goes on after note 15.
func TestChains(t *testing.T) {
	u := NewUnit(newFolder(t), "users", "a")
	putSegment(t, u, Point{}, 10, 1)
	putSegment(t, u, at(10, 1), 20, 1)
	putSegment(t, u, at(20, 1), 25, 1)
	putSegment(t, u, at(20, 1), 22, 1) // of an owner that was fenced
	// The home was set back to note 15, and its first note was 13.
	putSegment(t, u, at(12, 1), 15, 1)
	putSegment(t, u, at(15, 1), 25, 2)
	h := list(t, u)
	expectParts(t, h, Point{}, at(25, 1), "1-10 11-20 21-25")
	expectParts(t, h, Point{}, at(25, 2), "1-10 11-12 13-15 16-25")
	expectParts(t, h, at(14, 1), at(25, 2), "13-15 16-25")
	expectParts(t, h, at(15, 1), at(25, 2), "16-25")
	expectParts(t, h, at(12, 1), at(25, 1), "11-20 21-25")
	expectParts(t, h, at(17, 1), at(25, 2), "none")
	expectParts(t, h, at(17, 2), at(25, 1), "none")
	expectParts(t, h, at(18, 1), at(19, 1), "11-19")
	expectParts(t, h, at(25, 1), at(25, 1), "")
	expectParts(t, h, Point{}, at(26, 1), "none")
	expectParts(t, h, Point{}, Point{}, "")
	putSnapshot(t, u, at(22, 1), at(24, 1))
	branch := putSnapshot(t, u, at(16, 2), at(17, 2))
	shared := putSnapshot(t, u, at(11, 1), at(17, 1))
	h = list(t, u)
	chain, err := h.ChainTo(t.Context(), at(20, 2))
	if err != nil {
		t.Fatal(err)
	}
	bases := chain.Bases(20)
	if len(bases) != 2 || bases[0].ID != branch.ID || bases[1].ID != shared.ID {
		t.Errorf("the snapshots up to note 20 are %v, want those of notes 16 and 11", bases)
	}
	if _, found, _ := chain.Parts(t.Context(), shared.Begun); found {
		t.Error("note 17 of the first branch is on a chain of the second")
	}
}

// TestChainsAtRandom writes segments as owners do that open a unit again and again, some of them
// fenced, some after the home was set back: there is a chain to each note that is archived.
func TestChainsAtRandom(t *testing.T) {
	random := testseed.New(t)
	for range 20 {
		u := NewUnit(newFolder(t), "users", "a")
		branch, branches := make([]uint64, 1), uint64(1) // branch[n] is the branch of note n
		point := func(n uint64) Point { return Point{n, sumOf(n, branch[n])} }
		archived := uint64(0)
		for range 40 {
			switch random.IntN(5) {
			case 0: // the home is set back
				if n := uint64(random.IntN(len(branch))); n > 0 {
					branch, archived = slices.Clone(branch[:n+1]), min(archived, n-uint64(random.IntN(2)))
					branches++
				}
				continue
			case 1: // another owner begins behind an older segment
				archived -= min(archived, uint64(random.IntN(3)))
			}
			for range 1 + random.IntN(6) {
				branch = append(branch, branches)
			}
			last := archived + 1 + uint64(random.IntN(len(branch)-int(archived)-1))
			var notes []*sink.Note
			for n := archived + 1; n <= last; n++ {
				notes = append(notes, noteOf(n, branch[n]))
			}
			if _, err := u.PutSegment(t.Context(), point(archived), notes); err != nil {
				t.Fatal(err)
			}
			archived = last
		}
		h := list(t, u)
		chain, err := h.ChainTo(t.Context(), point(archived))
		if err != nil {
			t.Fatal(err)
		}
		for n := range archived {
			parts, found, err := chain.Parts(t.Context(), point(n))
			if err != nil || !found {
				t.Fatalf("note %d is not on the chain to %d, %v", n, archived, err)
			}
			next := n
			for _, p := range parts {
				notes, err := u.ReadSegment(t.Context(), p.SegmentName)
				if err != nil {
					t.Fatal(err)
				}
				for _, note := range notes {
					if note.Number <= next || note.Number > p.Last {
						continue
					}
					if next++; note.Number != next || note.Sum != point(next).Sum {
						t.Fatalf("from %d to %d: got note %d with sum %x, want %d of branch %d", n, archived, note.Number, note.Sum, next, branch[next])
					}
				}
			}
			if next != archived {
				t.Fatalf("the parts from %d end at %d, want %d", n, next, archived)
			}
		}
	}
}

// TestRemove keeps what a restore to a time within the kept one needs.
func TestRemove(t *testing.T) {
	place := newFolder(t)
	u := NewUnit(place, "users", "a")
	now := time.Now()
	age := func(name string, days int) {
		t.Helper()
		then := now.Add(-time.Duration(days) * 24 * time.Hour)
		if err := os.Chtimes(filepath.Join(place.String(), "users/a", name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(6) {
		age(putSegment(t, u, at(n*10, 1), n*10+10, 1).String(), 20-3*int(n))
	}
	first, kept, last := putSnapshot(t, u, at(5, 1), at(5, 1)), putSnapshot(t, u, at(25, 1), at(27, 1)), putSnapshot(t, u, at(55, 1), at(55, 1))
	age(first.String(), 19)
	age(kept.String(), 12)
	orphan := NewID()
	for i := range 2 {
		if _, err := u.PutChunk(t.Context(), orphan, i, []byte("chunk")); err != nil {
			t.Fatal(err)
		}
		age(fmt.Sprint(chunksFolder, "/", orphan, "/0000000", i), 2)
		age(fmt.Sprint(chunksFolder, "/", kept.ID, "/0000000", i), 12)
		age(fmt.Sprint(chunksFolder, "/", first.ID, "/0000000", i), 19)
	}
	fresh := NewID()
	if _, err := u.PutChunk(t.Context(), fresh, 0, []byte("chunk")); err != nil {
		t.Fatal(err)
	}
	h := list(t, u)
	for _, snapshot := range h.Snapshots {
		if snapshot.ID == kept.ID {
			kept = snapshot
		}
	}
	if _, err := u.Remove(t.Context(), h, kept, now.Add(-7*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	h = list(t, u)
	if len(h.Segments) != 4 || h.Segments[0].Before.Number != 20 {
		t.Errorf("the segments that stay are %v, want those from note 21 on", h.Segments)
	}
	if len(h.Snapshots) != 2 || h.Snapshots[0].ID != kept.ID || h.Snapshots[1].ID != last.ID {
		t.Errorf("the snapshots that stay are %v", h.Snapshots)
	}
	for _, s := range h.Snapshots {
		m, err := u.ReadSnapshot(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.Chunks {
			if _, err := u.ReadChunk(t.Context(), s, m, i); err != nil {
				t.Errorf("chunk %d of a snapshot that stays: %v", i, err)
			}
		}
	}
	var chunks []string
	_ = place.List(t.Context(), "users/a/"+chunksFolder, "", func(o Object) error { chunks = append(chunks, o.Name); return nil })
	if len(chunks) != 5 || !slices.ContainsFunc(chunks, func(name string) bool { return strings.HasPrefix(name, fresh) }) {
		t.Errorf("the chunks that stay are %v, want those of 2 snapshots and the one that may be being made", chunks)
	}
}

// TestDamage changes each byte of objects, and their names.
func TestDamage(t *testing.T) {
	place := newFolder(t)
	u := NewUnit(place, "users", "a")
	segment := putSegment(t, u, at(3, 1), 5, 1)
	snapshot := putSnapshot(t, u, at(4, 1), at(5, 1))
	for name, read := range map[string]func() error{
		segment.String():  func() error { _, err := u.ReadSegment(t.Context(), segment); return err },
		snapshot.String(): func() error { _, err := u.ReadSnapshot(t.Context(), snapshot); return err },
		chunkName(snapshot.ID, 1): func() error {
			m, err := u.ReadSnapshot(t.Context(), snapshot)
			if err == nil {
				_, err = u.ReadChunk(t.Context(), snapshot, m, 1)
			}
			return err
		},
	} {
		path := filepath.Join(place.String(), "users/a", name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := read(); err != nil {
			t.Errorf("%s is not read: %v", name, err)
		}
		for i := range whole {
			damaged := bytes.Clone(whole)
			damaged[i] ^= 1
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := read(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
				t.Fatalf("%s with another byte %d: %v", name, i, err)
			}
		}
		if err := os.WriteFile(path, whole[:len(whole)-1], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := read(); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s without its last byte: %v", name, err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newer := seal([]byte(segmentMagic + "\x09"))
	if _, _, err := decodeSegment(newer); err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("a segment of a later version: %v", err)
	}
}

func TestNames(t *testing.T) {
	s := SegmentName{Before: Point{0, 0}, End: Point{1<<64 - 1, 1<<64 - 1}}
	if got, ok := parseSegmentName(s.name()); !ok || got != s {
		t.Errorf("got %+v, %t, want %+v", got, ok, s)
	}
	snapshot := SnapshotName{Applied: Point{7, 1}, Begun: Point{9, 1 << 63}, ID: NewID()}
	if got, ok := parseSnapshotName(snapshot.name()); !ok || got != snapshot {
		t.Errorf("got %+v, %t, want %+v", got, ok, snapshot)
	}
	for _, text := range []string{"", "x", s.name() + "x", " " + s.name(), strings.ToUpper(s.name()), s.name()[1:], snapshot.name()} {
		if got, ok := parseSegmentName(text); ok {
			t.Errorf("%q is the segment %+v", text, got)
		}
	}
	for _, text := range []string{"", "x", snapshot.name() + "x", snapshot.name()[1:], snapshot.name()[:90], s.name()} {
		if got, ok := parseSnapshotName(text); ok {
			t.Errorf("%q is the snapshot %+v", text, got)
		}
	}
}

// FuzzDecodeSegment decodes segments with a valid checksum: each is refused, or stays as it is.
func FuzzDecodeSegment(f *testing.F) {
	whole := encodeSegment(at(3, 1), []*sink.Note{noteOf(4, 1), noteOf(5, 1)})
	f.Add(whole[:len(whole)-sumBytes])
	f.Add(begin(segmentMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
		before, notes, err := decodeSegment(seal(bytes.Clone(body)))
		if err != nil {
			return
		}
		again, same, err := decodeSegment(encodeSegment(before, notes))
		if err != nil || again != before || len(same) != len(notes) {
			t.Fatalf("%d notes behind %v became %d behind %v, %v", len(notes), before, len(same), again, err)
		}
		for i, n := range notes {
			if n.Number != before.Number+1+uint64(i) || n.Number != same[i].Number || n.Sum != same[i].Sum || !bytes.Equal(n.Data, same[i].Data) {
				t.Errorf("note %v became %v", n, same[i])
			}
		}
	})
}

// FuzzDecodeManifest does the same with manifests of snapshots.
func FuzzDecodeManifest(f *testing.F) {
	name := SnapshotName{Applied: at(4, 1), Begun: at(5, 1), ID: NewID()}
	m := &Manifest{Clock: time.UnixMilli(5), Nodes: 3, Bytes: 100, Chunks: []ChunkSum{{7, 1 << 60}, {1, 2}}}
	whole := m.encode(name)
	f.Add(whole[:len(whole)-sumBytes])
	f.Add(begin(manifestMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := decodeManifest(seal(bytes.Clone(body)), name)
		if err != nil {
			return
		}
		same, err := decodeManifest(m.encode(name), name)
		if err != nil || fmt.Sprint(*same) != fmt.Sprint(*m) {
			t.Errorf("%v became %v, %v", m, same, err)
		}
	})
}

// FuzzNames parses names of objects that others may have put there.
func FuzzNames(f *testing.F) {
	f.Add(SegmentName{Before: at(3, 1), End: at(5, 1)}.name())
	f.Add(SnapshotName{Applied: at(3, 1), Begun: at(5, 1), ID: NewID()}.name())
	f.Fuzz(func(t *testing.T, text string) {
		if s, ok := parseSegmentName(text); ok && s.name() != text {
			t.Errorf("%q became %q", text, s.name())
		}
		if s, ok := parseSnapshotName(text); ok && s.name() != text {
			t.Errorf("%q became %q", text, s.name())
		}
	})
}

// TestLocateRefuses: errors have no part of an address that may be a key.
func TestLocateRefuses(t *testing.T) {
	lookup := func(string) (string, bool) { return "", false }
	for _, text := range []string{"", "https://me:hunter22@host/", "s3://KEY:hunter22@bucket/states", "s3://KEY:100%hunter22@bucket", "s3://KEY:hunter22/x@bucket", "s3://bucket?key=hunter22"} {
		if place, err := Locate(text, "/", s3client.Settings{}, lookup); err == nil || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%q is %v, %v", text, place, err)
		}
	}
	for _, endpoint := range []string{"KEY:hunter22@host:9000", "http://KEY:100%hunter22@host:9000", "http://KEY:hunter22/x@host"} {
		if place, err := Locate("s3://bucket/states", "/", s3client.Settings{Endpoint: endpoint}, lookup); err == nil || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("the endpoint %q: %v, %v", endpoint, place, err)
		}
	}
}
