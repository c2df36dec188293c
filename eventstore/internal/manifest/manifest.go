package manifest

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A Manifest is one version of the store's metadata.
type Manifest struct {
	Version uint64 `json:"version"` // grows with each Save
	Store   string `json:"store"`   // random name of the store, 32 hexadecimal digits
	// LogStart is the first log file that readers need. The rows of earlier files are in
	// Parquet files.
	LogStart uint64 `json:"log_start"`
	// The next numbers to assign. Numbers are never reused.
	NextTable   uint32 `json:"next_table"`
	NextSegment uint64 `json:"next_segment"`
	NextDelete  uint64 `json:"next_delete"`
	// LastRecompute is the last recompute number assigned.
	LastRecompute uint64 `json:"last_recompute,omitempty"`
	// LastStep is the last step of publishing to a lake that was assigned.
	LastStep uint64 `json:"last_step,omitempty"`

	Incarnations []Incarnation `json:"incarnations,omitempty"` // oldest first; the last is the current one
	Place        string        `json:"place,omitempty"`        // of the current incarnation; empty in a backup
	Openings     []Opening     `json:"openings,omitempty"`     // oldest first

	Tables []*Table `json:"tables,omitempty"`
}

// A Table is a table of the store.
type Table struct {
	ID   uint32 `json:"id"` // in the log
	Name string `json:"name"`
	// Dir is the name of the table's folder if it differs from Name, as for a renamed
	// table.
	Dir string `json:"dir,omitempty"`
	// Former are the table's earlier names, which no other table may use.
	Former []string `json:"former,omitempty"`

	Time      string           `json:"time,omitempty"`      // column of the event's time; empty without one
	Event     string           `json:"event,omitempty"`     // column of the event's name; empty without one
	Retention catalog.Duration `json:"retention,omitempty"` // age by event time at which rows expire; 0 keeps them
	Sort      []string         `json:"sort,omitempty"`      // columns that files are sorted by; default Event, Time
	Bloom     []string         `json:"bloom,omitempty"`     // columns with a bloom filter, besides Event
	Unknown   catalog.Unknown  `json:"unknown,omitempty"`   // handling of fields without a column
	Unique    *catalog.Unique  `json:"unique,omitempty"`    // nil if rows may repeat
	Lake      *Lake            `json:"lake,omitempty"`      // nil if it is not published; immutable
	Left      []string         `json:"left,omitempty"`      // UUIDs of the last lake tables that it left, oldest first

	NextColumn int32     `json:"next_column"`
	Schemas    []*Schema `json:"schemas"` // versions that the log or a file needs, oldest first; the last is the newest

	Files        []*File             `json:"files,omitempty"`
	Deletes      []*Delete           `json:"deletes,omitempty"`    // running deletes, oldest first
	Recomputes   []*Recompute        `json:"recomputes,omitempty"` // last recompute of each column, oldest first
	Partitions   []*Partition        `json:"partitions,omitempty"` // committed positions up to LogStart
	Fingerprints []*FingerprintsFile `json:"prints,omitempty"`     // oldest first
	Keys         []*KeysFile         `json:"keys,omitempty"`       // oldest first
}

// A File is a Parquet file with rows of one table and, unless Undivided, one day of event
// time. The field IDs of its columns are the column IDs of its schema.
type File struct {
	Name    string `json:"name"` // in the table's folder
	Segment uint64 `json:"segment"`
	Schema  uint64 `json:"schema"`
	Day     string `json:"day,omitempty"` // such as 2026-11-23, in UTC; empty if the table has no time column
	Rows    int64  `json:"rows"`
	Bytes   int64  `json:"bytes"`
	// Minimum and maximum event time, in microseconds since 1970. Both are 0 if the table
	// has no time column.
	MinTime int64  `json:"min_time,omitempty"`
	MaxTime int64  `json:"max_time,omitempty"`
	Log     uint64 `json:"log"`             // last log file that rows came from
	Bloom   string `json:"bloom,omitempty"` // file with the bloom filters, in the table's folder
	// Deleted is the last delete that was applied to this file.
	Deleted uint64 `json:"deleted,omitempty"`
	// Computed is the last recompute that was applied to this file.
	Computed uint64 `json:"computed,omitempty"`
	// Rows and uncompressed bytes of the file's largest row group.
	GroupRows  int64 `json:"group_rows,omitempty"`
	GroupBytes int64 `json:"group_bytes,omitempty"`
	// NegativeZero reports that the file may have a double of -0.0.
	NegativeZero bool `json:"negative_zero,omitempty"`
	// Undivided reports that the file predates the table's time column. It may have rows
	// of many days, whatever Day says.
	Undivided bool `json:"undivided,omitempty"`
	// Format is the file's format version; see FileFormat.
	Format int `json:"format,omitempty"`
	// Sealed is the time at which the newest of its rows left the log, in seconds since
	// 1970. It is 0 in files of earlier versions.
	Sealed int64 `json:"sealed,omitempty"`
	// Open reports that other engines can read the file: it has the encodings of Parquet
	// V1, large row groups, and the hidden columns that a lake needs.
	Open bool `json:"open,omitempty"`
	// Fitted are the field IDs of its hidden columns for lake columns of another type than
	// its own; see LakeColumn.FittedID. Misfits is the number of its values that are null
	// there, and in the lake's _rest instead, and MisfitsWidened will be this number after the
	// running Widening.
	Fitted         []int32 `json:"fitted,omitempty"`
	Misfits        int64   `json:"misfits,omitempty"`
	MisfitsWidened int64   `json:"misfits_widened,omitempty"`
	// Step is the step of the first order to a lake with this file; 0 before.
	Step uint64 `json:"step,omitempty"`
	// Replaces are the files in the lake whose rows this file has. Changed reports that it
	// does not have exactly these rows.
	Replaces []LakeFile `json:"replaces,omitempty"`
	Changed  bool       `json:"changed,omitempty"`
	// Gone reports that another engine has rewritten the file, or one that it replaces, in
	// the lake.
	Gone bool `json:"gone,omitempty"`
	// Remote is where the data of the file are if they have left the disk, where the store
	// keeps its footer (see FooterName). It is nil for other files.
	Remote *Remote `json:"remote,omitempty"`
}

// A Remote is an object in a lake that begins with the data of a file.
type Remote struct {
	Address string `json:"address"` // path, or s3://BUCKET/KEY
	Size    int64  `json:"size"`    // of the object
	Data    int64  `json:"data"`    // bytes of the file before its footer
	Sum     string `json:"sum"`     // SHA-256 of these bytes
}

// FileFormat is the Format of new files. Files of format 0 have DuckDB's own bloom filters,
// which miss values: DuckDB hashes the two zeros of a double differently, and hashes bytes by
// their SQL text.
const FileFormat = 1

// RowBytes returns the approximate size of a row, in bytes.
func (f *File) RowBytes() int64 { return f.GroupBytes / max(f.GroupRows, 1) }

// ReadMemory returns the approximate memory for reading the whole file, in bytes: a row
// group, and several copies of the 2,048 rows that DuckDB processes at a time.
func (f *File) ReadMemory() int64 {
	return f.GroupBytes + 3*f.GroupBytes*min(f.GroupRows, 2048)/max(f.GroupRows, 1)
}

// A Delete removes the rows that match Predicate. It applies to log frames before
// Before, and to files with a Deleted less than Number.
type Delete struct {
	Number      uint64       `json:"number"`
	Predicate   string       `json:"predicate"` // SQL
	Before      wal.Position `json:"before"`
	RequestedAt time.Time    `json:"asked"`
}

// A Recompute computes a column for log rows before Before, once they are in files, and for
// the files with a Computed less than Number.
type Recompute struct {
	Number      uint64       `json:"number"`
	Column      int32        `json:"column"`   // column ID
	Function    string       `json:"function"` // version of the function
	Before      wal.Position `json:"before"`
	RequestedAt time.Time    `json:"asked"`
	Ended       time.Time    `json:"ended,omitzero"` // zero while it is running
	// Counts over all files done so far, including files that have since been replaced.
	Rows   int64  `json:"rows,omitempty"`
	Failed int64  `json:"failed,omitempty"` // part of Rows: rows without a value
	Error  string `json:"error,omitempty"`  // why the first failed row has no value, or why the recompute stopped
	// Stopped reports that it ended before all files were done.
	Stopped bool `json:"stopped,omitempty"`
}

// A DamageError reports that a file of the store is missing or damaged.
type DamageError struct {
	File   string
	Reason string
}

func (e *DamageError) Error() string { return fmt.Sprintf("%s is damaged: %s", e.File, e.Reason) }

// New returns the manifest of an empty store.
func New() *Manifest {
	var name [16]byte
	rand.Read(name[:]) // never fails
	return &Manifest{Store: hex.EncodeToString(name[:]), LogStart: 1, NextTable: 1, NextSegment: 1, NextDelete: 1}
}

// Clone returns a copy of m that the caller may change. It shares the objects that tables
// point to: schemas, files, deletes, recomputes, partitions, fingerprints and keys. Replace such an
// element instead of changing it: Save takes an object that two versions share for unchanged.
func (m *Manifest) Clone() *Manifest {
	next := *m
	next.Tables = make([]*Table, len(m.Tables))
	for i, t := range m.Tables {
		copied := *t
		copied.Former, copied.Left = slices.Clone(t.Former), slices.Clone(t.Left)
		copied.Schemas = slices.Clone(t.Schemas)
		copied.Files = slices.Clone(t.Files)
		copied.Deletes = slices.Clone(t.Deletes)
		copied.Recomputes = slices.Clone(t.Recomputes)
		copied.Partitions = slices.Clone(t.Partitions)
		copied.Fingerprints = slices.Clone(t.Fingerprints)
		copied.Keys = slices.Clone(t.Keys)
		next.Tables[i] = &copied
	}
	return &next
}

// Table returns the table of that name, ignoring case as SQL does, or nil.
func (m *Manifest) Table(name string) *Table {
	for _, t := range m.Tables {
		if strings.EqualFold(t.Name, name) {
			return t
		}
	}
	return nil
}

// FormerTable returns the table that had the name before a rename, or nil.
func (m *Manifest) FormerTable(name string) *Table {
	for _, t := range m.Tables {
		if slices.ContainsFunc(t.Former, func(former string) bool { return strings.EqualFold(former, name) }) {
			return t
		}
	}
	return nil
}

// WasDropped reports whether id belonged to a table that was dropped.
func (m *Manifest) WasDropped(id uint32) bool {
	return id != 0 && id < m.NextTable && m.TableByID(id) == nil
}

// AddTable adds a table and assigns it an ID and an unused folder.
func (m *Manifest) AddTable(t *Table) {
	t.ID = m.NextTable
	m.NextTable++
	if slices.ContainsFunc(m.Tables, func(other *Table) bool { return strings.EqualFold(other.DirName(), t.Name) }) {
		t.Dir = fmt.Sprintf("%s.%d", t.Name, t.ID) // a table's name has no dot
	}
	m.Tables = append(m.Tables, t)
}

// TableByID returns the table with that ID, or nil.
func (m *Manifest) TableByID(id uint32) *Table {
	for _, t := range m.Tables {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// TablesFolder returns the folder of all tables of the store in folder.
func TablesFolder(folder string) string { return filepath.Join(folder, "tables") }

// LogFolder returns the log folder of the store in folder.
func LogFolder(folder string) string { return filepath.Join(folder, "log") }

// Folder returns the table's folder in the store's folder. It is safe on file systems that
// ignore case, because names that differ only in case belong to one table.
func (t *Table) Folder(folder string) string { return filepath.Join(TablesFolder(folder), t.DirName()) }

// DirName returns the name of the table's folder.
func (t *Table) DirName() string { return cmp.Or(t.Dir, t.Name) }

// Rename renames the table. It keeps the folder and, unless release is set, reserves the old
// name.
func (t *Table) Rename(name string, release bool) {
	t.Dir = t.DirName()
	if !release && !strings.EqualFold(t.Name, name) {
		t.Former = append(t.Former, t.Name)
	}
	t.Release(name)
	t.Name = name
}

// Release frees one of the table's former names for other tables.
func (t *Table) Release(name string) {
	t.Former = slices.DeleteFunc(t.Former, func(former string) bool { return strings.EqualFold(former, name) })
}

// Path returns the path of one of the table's files.
func (t *Table) Path(folder, name string) string {
	return filepath.Join(t.Folder(folder), filepath.FromSlash(name))
}

// undated is the folder of files in a table without a time column.
const undated = "undated"

// FileName returns a file name, relative to the table's folder, for a part of a segment and a
// day of event time. The day is empty if the table has no time column.
func FileName(day string, segment uint64, part int) string {
	if day == "" {
		day = undated
	}
	return fmt.Sprintf("%s/%010d-%d.parquet", day, segment, part)
}

// BloomName returns the name of a file's bloom file.
func BloomName(file string) string { return strings.TrimSuffix(file, ".parquet") + ".bloom" }

// FooterName returns the name of the footer of a file whose data have left the disk.
func FooterName(file string) string { return strings.TrimSuffix(file, ".parquet") + ".footer" }

// Current returns the newest schema.
func (t *Table) Current() *Schema { return t.Schemas[len(t.Schemas)-1] }

// Schema returns the given version of the schema, or nil.
func (t *Table) Schema(version uint64) *Schema {
	for _, s := range slices.Backward(t.Schemas) {
		if s.Version == version {
			return s
		}
	}
	return nil
}

// NextRecompute returns the oldest running recompute that a file needs, or nil.
func (t *Table) NextRecompute(f *File) *Recompute {
	for _, r := range t.Recomputes {
		if r.Number > f.Computed && r.Ended.IsZero() {
			return r
		}
	}
	return nil
}

// ComputedUpTo returns the last recompute that does not apply to log frames from a position
// on.
func (t *Table) ComputedUpTo(p wal.Position) (number uint64) {
	for _, r := range t.Recomputes {
		if r.Before.Compare(p) <= 0 {
			number = r.Number
		}
	}
	return number
}
