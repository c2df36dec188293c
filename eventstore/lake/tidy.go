package lake

import (
	"errors"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Tidy says which snapshots of a table expire, and which objects are removed.
type Tidy struct {
	// Snapshots expire once they are older than Age, except the newest Keep of each branch.
	// Properties of the table and of its branches, which other engines obey too, override
	// both: history.expire.max-snapshot-age-ms and history.expire.min-snapshots-to-keep.
	Age  time.Duration `json:"age"`
	Keep int           `json:"keep"`
	// Grace is how long a query may run: a snapshot does not expire before it was replaced
	// for that long. It is also the minimum age of files of the store that are removed.
	Grace time.Duration `json:"grace"`
	// ForeignGrace is the minimum age of all other objects that are removed. Other engines
	// write files long before they commit them.
	ForeignGrace time.Duration `json:"foreign_grace"`
	// Purges lists the deletes whose rows must be gone.
	Purges []Purge `json:"purges,omitempty"`
}

// DefaultTidy returns the limits of Iceberg's own tools, except that ten snapshots are kept of
// a rarely changed table.
func DefaultTidy() *Tidy {
	return &Tidy{Age: 5 * 24 * time.Hour, Keep: 10, Grace: time.Hour, ForeignGrace: 3 * 24 * time.Hour}
}

// A Purge asks that deleted rows go from a table. The store has none of them any more: files
// with a number of at least Number have none, nor do those of the order. All other files of the
// store may have them. Snapshots that name such files expire before their time, and their
// objects are removed.
type Purge struct {
	Number uint64    `json:"number"` // of the first segment without the rows
	At     time.Time `json:"at"`     // when the store removed the last of them
}

// A Tidied is what was tidied of a table.
type Tidied struct {
	Expired int   `json:"expired,omitempty"` // snapshots
	Kept    int   `json:"kept"`              // snapshots
	Objects int   `json:"objects,omitempty"` // removed
	Bytes   int64 `json:"bytes,omitempty"`   // of these
	// Refused names objects that could not be removed, and why, at most RefusedMax.
	Refused []string `json:"refused,omitempty"`
	// Purged has an element for each Purge of the order.
	Purged []Purged `json:"purged,omitempty"`
	// Error is why the table could not be tidied, and Hint what to do about it.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// RefusedMax is the maximum number of objects that a Tidied names.
const RefusedMax = 10

// A Purged is the progress of a Purge.
type Purged struct {
	// Waits says what still has deleted rows. It is empty if nothing does.
	Waits string `json:"waits,omitempty"`
	// Until is when to try again; zero if only a person can help.
	Until time.Time `json:"until,omitzero"`
}

// A Snapshot of a table.
type Snapshot struct {
	ID, Parent int64     // Parent is 0 if there is none
	Taken      time.Time // when it was committed
	// Replaced is when it was current for the last time; zero if it still is.
	Replaced time.Time
	Dirty    bool // it names files that a Purge must remove
}

// A Ref is a branch or a tag, with its own limits or those of the table.
type Ref struct {
	Name   string
	Head   int64
	Branch bool
	Age    time.Duration
	Keep   int
}

// Expired returns the snapshots that expire.
func (t *Tidy) Expired(snapshots []Snapshot, refs []Ref, now time.Time) (expired []int64) {
	byID := map[int64]Snapshot{}
	for _, s := range snapshots {
		byID[s.ID] = s
	}
	heads, kept, referenced := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	for _, r := range refs {
		heads[r.Head], referenced[r.Head] = true, true
		s, found := byID[r.Head]
		for n := 0; r.Branch && found; n++ {
			referenced[s.ID] = true
			if n < r.Keep || now.Sub(s.Taken) <= r.Age {
				kept[s.ID] = true
			}
			s, found = byID[s.Parent]
		}
	}
	for _, s := range snapshots {
		isOld := !kept[s.ID] && (referenced[s.ID] || now.Sub(s.Taken) > t.Age)
		if !heads[s.ID] && now.Sub(s.Replaced) >= t.Grace && !s.Replaced.IsZero() && (s.Dirty || isOld) {
			expired = append(expired, s.ID)
		}
	}
	return expired
}

// An Owner knows which files of a table belong to the store that gave an order.
type Owner struct {
	owned   map[string]bool // incarnations
	current string          // incarnation
	wanted  map[string]bool // files of the order
}

// ErrMoved reports that a table does not cover the order that was carried out, because another
// committer was faster.
var ErrMoved = errors.New("another committer has changed the table")

// OwnerOf returns the Owner for an order that a table with these properties covers.
func OwnerOf(o *TableOrder, properties map[string]string) (*Owner, error) {
	records, err := readRecords(properties)
	if err != nil {
		return nil, err
	}
	owned, err := ownedBy(o, records)
	if err != nil {
		return nil, err
	}
	w := &Owner{owned: owned, current: o.Incarnations[len(o.Incarnations)-1].ID, wanted: map[string]bool{}}
	if records[w.current].Step != o.Step {
		return nil, ErrMoved
	}
	for _, f := range o.Files {
		w.wanted[f.Name] = true
	}
	return w, nil
}

// IsOwn reports whether a file, named as in State, belongs to the store.
func (w *Owner) IsOwn(name string) bool { return w.owned[IncarnationOf(name)] }

// A PurgedBy tells which purges must remove a file: those with a greater Number. There may be many
// purges and many files, so the name of a file is parsed once for all of them.
type PurgedBy int64

// NoPurge is the PurgedBy of files that no purge must remove. It is greater than all others.
const NoPurge PurgedBy = math.MaxInt64

// Includes reports whether a purge must remove the file.
func (b PurgedBy) Includes(p Purge) bool { return b < NoPurge && (b < 0 || uint64(b) < p.Number) }

// PurgedBy tells which purges must remove a file, named as in State.
func (w *Owner) PurgedBy(name string) PurgedBy {
	incarnation := IncarnationOf(name)
	switch {
	case !w.owned[incarnation] || w.wanted[name]:
		return NoPurge
	case incarnation != w.current:
		return -1
	}
	return PurgedBy(numberOf(name))
}

// numberOf returns the number of the segment in a name made by FileName.
func numberOf(name string) uint64 {
	digits, _, _ := strings.Cut(path.Base(name), "-")
	number, _ := strconv.ParseUint(digits, 10, 64) // IncarnationOf has checked it
	return number
}

// An Object is an object below the location of a table, or one of its versions.
type Object struct {
	Name     string // below the location
	Version  string // in a bucket with versions
	Modified time.Time
	Size     int64
	// Deleted is set for a marker that makes the older versions invisible.
	Deleted bool
}

// DataFolder and MetadataFolder are the folders below the location of a table in which objects
// are removed. The first has the files of the store.
const (
	DataFolder     = "data/"
	MetadataFolder = "metadata/"
)

// LocationProperty is the property of a table with the location at which its objects may be
// removed. Another location, which somebody has given the table, may have files of others. A
// person who knows that it has none sets the property to it.
const LocationProperty = "perigee.location"

// TemporaryPrefix begins the names of files that are not complete.
const TemporaryPrefix = ".publishing-"

// written matches the names that writers of Iceberg tables give objects: data, manifests, metadata,
// statistics, checksums and temporary files.
var written = regexp.MustCompile(`^(data/.*\.(parquet|orc|avro|puffin|crc)|data/(.*/)?\` + TemporaryPrefix + `[^/]*` +
	`|metadata/.*(\.(avro|parquet|puffin|stats|crc|tmp|temp)|\.metadata\.json(\.gz|\.claim)?))$`)

// GraceOf returns how old an object must be to be removed if nothing names it. ok is false if
// it stays at any age. dropped is whether an expired snapshot named the object, or somebody has
// deleted it, except for its older versions.
func (w *Owner) GraceOf(t *Tidy, name string, dropped bool) (grace time.Duration, ok bool) {
	file, isData := strings.CutPrefix(name, DataFolder)
	switch {
	case !isData && !strings.HasPrefix(name, MetadataFolder), isData && w.wanted[file], name == MetadataFolder+"version-hint.text":
		return 0, false
	case !dropped && !written.MatchString(name): // a file of another program
		return 0, false
	case dropped, isData && w.IsOwn(file), isData && strings.HasPrefix(path.Base(file), TemporaryPrefix):
		return t.Grace, true
	}
	return t.ForeignGrace, true
}

// MayLeave reports whether an object below the location of a table may be of the store or of its
// attempts to commit: all metadata, since their names tell no writer, and the data of its files.
func (w *Owner) MayLeave(name string) bool {
	file, isData := strings.CutPrefix(name, DataFolder)
	if !isData {
		return name == MetadataFolder+"version-hint.text" || written.MatchString(name)
	}
	return w.IsOwn(file) || strings.HasPrefix(path.Base(file), TemporaryPrefix)
}

// Removable returns the objects, with all versions, that may be removed: nothing names them, and
// they are old enough. dropped are objects that a snapshot named which has expired.
func (w *Owner) Removable(t *Tidy, objects []Object, named, dropped map[string]bool, now time.Time) (removable []Object) {
	youngest, deleted := map[string]time.Time{}, map[string]bool{}
	var others []string // folders of tables inside this one
	for _, object := range objects {
		if object.Modified.After(youngest[object.Name]) {
			youngest[object.Name] = object.Modified
		}
		deleted[object.Name] = deleted[object.Name] || object.Deleted
		if folder, file := path.Split(object.Name); folder != MetadataFolder && strings.HasSuffix(file, ".metadata.json") {
			others = append(others, path.Dir(path.Dir(folder))+"/")
		}
	}
	for _, object := range objects {
		grace, ok := w.GraceOf(t, object.Name, dropped[object.Name] || deleted[object.Name])
		isInside := func(folder string) bool { return strings.HasPrefix(object.Name, folder) }
		if ok && !named[object.Name] && now.Sub(youngest[object.Name]) >= grace && !slices.ContainsFunc(others, isInside) {
			removable = append(removable, object)
		}
	}
	return removable
}
