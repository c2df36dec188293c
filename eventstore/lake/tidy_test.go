package lake

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestExpired expires snapshots of random histories with branches and tags, and compares each
// with the rules.
func TestExpired(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := begun.Add(1000 * time.Hour)
		hours := func(most int, what string) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, what)) * time.Hour
		}
		tidy := &Tidy{Age: hours(60, "age"), Keep: rapid.IntRange(0, 4).Draw(t, "keep"), Grace: hours(5, "grace")}
		var snapshots []Snapshot
		for id := int64(1); id <= int64(rapid.IntRange(1, 12).Draw(t, "snapshots")); id++ {
			s := Snapshot{ID: id, Parent: rapid.Int64Range(0, id-1).Draw(t, "parent"), Taken: now.Add(-hours(99, "taken")), Dirty: rapid.Bool().Draw(t, "dirty")}
			if rapid.Bool().Draw(t, "is replaced") {
				s.Replaced = s.Taken.Add(min(hours(99, "replaced"), now.Sub(s.Taken)))
			}
			snapshots = append(snapshots, s)
		}
		var refs []Ref
		for range rapid.IntRange(1, 3).Draw(t, "refs") {
			refs = append(refs, Ref{Head: rapid.Int64Range(1, int64(len(snapshots))).Draw(t, "head"), Branch: rapid.Bool().Draw(t, "is branch"), Age: hours(60, "its age"), Keep: rapid.IntRange(0, 4).Draw(t, "its keep")})
		}
		expired := tidy.Expired(snapshots, refs, now)
		for _, s := range snapshots {
			// The ways from the heads of branches to the snapshot.
			isHead, isKept, isReferenced := false, false, false
			for _, r := range refs {
				isHead = isHead || r.Head == s.ID
				distance, id := 0, r.Head
				for id != s.ID && id != 0 {
					id, distance = snapshots[id-1].Parent, distance+1
				}
				if id == s.ID && (r.Branch || distance == 0) {
					isReferenced = true
					isKept = isKept || r.Branch && (distance < r.Keep || now.Sub(s.Taken) <= r.Age)
				}
			}
			if !isReferenced {
				isKept = now.Sub(s.Taken) <= tidy.Age
			}
			mayBeRead := s.Replaced.IsZero() || now.Sub(s.Replaced) < tidy.Grace
			if want := !isHead && !mayBeRead && (s.Dirty || !isKept); want != slices.Contains(expired, s.ID) {
				t.Fatalf("snapshot %+v: expired %v, want %v", s, !want, want)
			}
		}
	})
}

// ownerFor returns the owner for an order with two files of the second incarnation.
func ownerFor(t *testing.T) (*Owner, File, File) {
	t.Helper()
	a, b := file(5, 3, 4), file(6, 3, 4)
	o := &TableOrder{Incarnations: []Incarnation{incarnation(1, 1), incarnation(3, 3)}, Step: 4, Files: []File{a, b}}
	w, err := OwnerOf(o, property(3, 4, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OwnerOf(o, property(3, 5, 1)); !errors.Is(err, ErrMoved) {
		t.Errorf("a table with a later step: %v", err)
	}
	if _, err := OwnerOf(o, property(4, 9, 3)); !errors.Is(err, ErrSuperseded) {
		t.Errorf("a table with a younger incarnation: %v", err)
	}
	return w, a, b
}

func TestPurgedBy(t *testing.T) {
	w, a, _ := ownerFor(t)
	for name, want := range map[string]bool{
		a.Name:              false, // ordered
		file(4, 3, 3).Name:  true,
		file(10, 3, 3).Name: false, // written later
		file(10, 1, 3).Name: true,  // of the earlier incarnation
		file(4, 2, 3).Name:  false, // of another store
		"2026-11-23/x.orc":  false,
	} {
		if got := w.PurgedBy(name).Includes(Purge{Number: 10}); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestRemovable(t *testing.T) {
	w, a, b := ownerFor(t)
	now := begun.Add(1000 * time.Hour)
	old, older := now.Add(-2*time.Hour), now.Add(-100*time.Hour)
	var objects []Object
	want := map[string]bool{}
	add := func(isRemovable bool, name, version string, modified time.Time) {
		objects = append(objects, Object{Name: name, Version: version, Modified: modified})
		want[name+version] = isRemovable
	}
	own := DataFolder + file(4, 3, 3).Name
	add(true, own, "", old)
	add(false, DataFolder+file(3, 3, 3).Name, "", now.Add(-time.Minute))
	add(false, DataFolder+a.Name, "", older) // ordered
	add(false, DataFolder+b.Name, "", older) // ordered, and named
	add(false, DataFolder+"a/named.parquet", "", older)
	add(false, DataFolder+"a/foreign.parquet", "", old)
	add(true, DataFolder+"a/orphan.parquet", "", older)
	add(true, DataFolder+"a/"+TemporaryPrefix+"123", "", old)
	add(true, MetadataFolder+"expired.avro", "", old)
	add(false, MetadataFolder+"new.avro", "", old)
	add(false, MetadataFolder+"version-hint.text", "", older)
	add(false, DataFolder+"a/orders.db", "", older) // of another program
	add(false, MetadataFolder+"notes.txt", "", older)
	add(true, MetadataFolder+"00001-a.metadata.json", "", older)
	add(true, MetadataFolder+"v3.metadata.json.claim", "", older)
	add(false, "other/x", "", older)
	add(false, "x", "", older)
	add(false, DataFolder+"nested/metadata/1.metadata.json", "", older)
	add(false, DataFolder+"nested/data/1.parquet", "", older)
	add(true, DataFolder+"versions.parquet", "1", older) // both are old
	add(true, DataFolder+"versions.parquet", "2", older)
	add(false, DataFolder+"renewed.parquet", "1", older) // one is young
	add(false, DataFolder+"renewed.parquet", "2", now)
	add(true, DataFolder+"deleted.parquet", "1", older)
	add(true, DataFolder+"deleted.parquet", "2", old)
	objects[len(objects)-1].Deleted = true
	named := map[string]bool{DataFolder + b.Name: true, DataFolder + "a/named.parquet": true}
	got := map[string]bool{}
	for _, object := range w.Removable(DefaultTidy(), objects, named, map[string]bool{MetadataFolder + "expired.avro": true}, now) {
		got[object.Name+object.Version] = true
	}
	for name, isRemovable := range want {
		if got[name] != isRemovable {
			t.Errorf("%s: removed %v, want %v", strings.TrimSpace(name), got[name], isRemovable)
		}
	}
}
