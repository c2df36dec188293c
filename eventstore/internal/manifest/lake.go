package manifest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

// A Lake is where a table is published as an Iceberg table, and what is known of it there.
type Lake struct {
	catalog.Lake
	// DefaultName reports that Lake.Table is the default name: that of the table when it was first
	// to be published. A table that is renamed keeps it.
	DefaultName bool   `json:"default_name,omitempty"`
	UUID        string `json:"uuid,omitempty"`     // of the lake table; empty before the first report
	Metadata    string `json:"metadata,omitempty"` // address of its metadata at the last report
	// Columns are the columns of the lake table. Their types never change.
	Columns []LakeColumn `json:"columns,omitempty"`
	// Step is the last step that the lake covers, and Files the checksum of the files and
	// columns of that step's order.
	Step  uint64 `json:"step,omitempty"`
	Files string `json:"files,omitempty"`
	// Location is the folder of the lake table, or its address in S3. Deletes is the number of
	// its delete files, by which other engines have deleted rows.
	Location string `json:"location,omitempty"`
	Deletes  int    `json:"deletes,omitempty"`
	// Ordered is the last step that was ordered, and Committed the time at which the lake
	// was last known to cover it.
	Ordered   uint64    `json:"ordered,omitempty"`
	Committed time.Time `json:"committed,omitzero"`
	// Foreign is the number of files of other engines that the lake table had.
	Foreign int `json:"foreign,omitempty"`
	// Widenings counts the widenings that were begun.
	Widenings int32     `json:"widenings,omitempty"`
	Widening  *Widening `json:"widening,omitempty"` // nil if no column is being widened; immutable
	// Rebuilding reports that files were written for other types than those of Columns. Nothing
	// is ordered until every file is rewritten; then one order lists them all.
	Rebuilding bool   `json:"rebuilding,omitempty"`
	Error      string `json:"error,omitempty"` // of the last attempt
	Hint       string `json:"hint,omitempty"`
	// Purges are the deletes that the store has carried out, but not the lake. Tidied is the
	// time of the last order that tidied the lake.
	Purges []LakePurge `json:"purges,omitempty"`
	Tidied time.Time   `json:"tidied,omitzero"`
}

// A LakePurge is a delete whose rows the lake may still have, in files that its older snapshots
// name, or that no snapshot names.
type LakePurge struct {
	Number      uint64    `json:"number"` // of the delete
	Predicate   string    `json:"predicate"`
	RequestedAt time.Time `json:"asked"`
	// Segment is the first segment without the rows, and At is when the store removed the
	// last of them.
	Segment uint64    `json:"segment"`
	At      time.Time `json:"at"`
	Waits   string    `json:"waits,omitempty"` // see lake.Purged; empty before the first report
	Next    time.Time `json:"next,omitzero"`   // when to try again
}

// EndDelete removes a delete that the store has carried out. With a lake, it becomes a purge.
func (m *Manifest) EndDelete(t *Table, d *Delete, now time.Time) {
	if t.Lake == nil || len(t.Lake.Columns) == 0 {
		return
	}
	known := *t.Lake
	known.Purges = append(slices.Clone(known.Purges), LakePurge{Number: d.Number, Predicate: d.Predicate, RequestedAt: d.RequestedAt, Segment: m.NextSegment, At: now.UTC()})
	t.Lake = &known
}

// CancelPurge ends the wait for the lake of a delete. It reports whether there was one.
func (t *Table) CancelPurge(number uint64) bool {
	if t.Lake == nil {
		return false
	}
	known := *t.Lake
	known.Purges = slices.DeleteFunc(slices.Clone(known.Purges), func(p LakePurge) bool { return p.Number == number })
	canceled := len(known.Purges) < len(t.Lake.Purges)
	t.Lake = &known
	return canceled
}

// A Widening changes the lake type of a column to its type in the table.
type Widening struct {
	Column      int32     `json:"column"` // column ID
	RequestedAt time.Time `json:"asked"`
	// Step is the first order in which To takes the place of the lake column with index At;
	// 0 while files are rewritten before.
	Step uint64     `json:"step,omitempty"`
	At   int        `json:"at,omitempty"`
	To   LakeColumn `json:"to,omitzero"`
}

// Ordering returns the columns that orders have: Columns, or those after a widening whose
// commit was begun.
func (l *Lake) Ordering() []LakeColumn {
	if l.Widening == nil || l.Widening.Step == 0 {
		return l.Columns
	}
	columns := slices.Clone(l.Columns)
	columns[l.Widening.At] = l.Widening.To
	for i := range columns { // its hidden columns differ
		if columns[i].ID == RestID {
			columns[i].Widened = l.Widenings
		}
	}
	return columns
}

// A LakeColumn is a column of a lake table.
type LakeColumn struct {
	ID   int32  `json:"id"` // field ID in files: the column's, or that of a hidden column; see MicrosID
	Name string `json:"name"`
	Type string `json:"type"` // Iceberg's
	// JSON reports that its values are JSON texts; otherwise its strings are plain text.
	JSON bool  `json:"json,omitempty"`
	Lake int32 `json:"lake,omitempty"` // field ID in the lake table; 0 before the first report
	// Widened is how often another column of the lake has taken its place. For _rest, it is
	// the number of the last widening.
	Widened int32 `json:"widened,omitempty"`
}

const (
	columnBits = 20 // of the field ID of a column that queries see
	// WidenedMax bounds LakeColumn.Widened, so that field IDs do not overflow.
	WidenedMax = 1000
)

// MicrosID returns the field ID of the hidden column with the microseconds of a column of type
// timestamp_ns. Files of tables with a Lake have it, since an Iceberg table has no nanoseconds.
func MicrosID(column int32) int32 { return column + 1<<columnBits }

// Source returns the ID of the column whose values it has.
func (c *LakeColumn) Source() int32 { return c.ID & (1<<columnBits - 1) }

// FittedID returns the field ID of the hidden column with the values that fit the lake column,
// in files whose own column has another type.
func (c *LakeColumn) FittedID() int32 { return c.ID + (2+2*c.Widened)<<columnBits }

// IsFitted reports whether a field ID was made by FittedID.
func IsFitted(id int32) bool { return id>>columnBits > 1 }

// A LakeFile is a file in a lake.
type LakeFile struct {
	Name string `json:"name"` // see lake.FileName
	Rows int64  `json:"rows"`
	Step uint64 `json:"step"` // of the first order with it
	// Replaces are the files that it replaces, if the lake may still have those instead.
	Replaces []LakeFile `json:"replaces,omitempty"`
}

// A Publication is the publishing state of a file's rows.
type Publication int

// Files of different publications are never merged with each other, and files whose
// publication is not known are not merged at all.
const (
	Unpublished Publication = iota // the lake has none of the rows
	Published                      // the lake has the file, or others with exactly its rows
	Unknown                        // it is or will be ordered, or another engine has rewritten it
)

// A merged file that replaces at least ReplacesMin lake files is published at once. Until it is, it
// is not merged further, or each row would be published once more.
const ReplacesMin = 16

// Publication returns the publishing state of the rows of a file of the table.
func (t *Table) Publication(f *File) Publication {
	switch {
	case t.Lake == nil || f.Step == 0 && len(f.Replaces) == 0:
		return Unpublished
	case f.Gone || f.Step > t.Lake.Step || f.Step == 0 && (f.Changed || len(f.Replaces) >= ReplacesMin):
		return Unknown
	}
	return Published
}

// leftMax is the maximum length of Table.Left.
const leftMax = 16

// SetLake publishes the table elsewhere, or nowhere if settings is nil. Data that have left the
// disk for the former lake are still read there, until the store has taken them back. Those that it has
// lost stay there.
func (t *Table) SetLake(settings *catalog.Lake) {
	if settings == nil && t.Lake == nil {
		return
	}
	var wanted Lake
	if settings != nil {
		wanted = Lake{Lake: *settings, DefaultName: settings.Table == ""}
		if wanted.DefaultName {
			wanted.Table = catalog.DefaultLakeTable(t.Name)
			if l := t.Lake; l != nil && l.DefaultName && l.Warehouse == wanted.Warehouse && l.Catalog == wanted.Catalog {
				wanted.Table = l.Table
			}
		}
		if t.Lake != nil && wanted.IsAt(t.Lake.Lake) {
			if t.Lake.Lake != wanted.Lake || t.Lake.DefaultName != wanted.DefaultName {
				known := *t.Lake
				known.Lake, known.DefaultName = wanted.Lake, wanted.DefaultName
				t.Lake = &known
			}
			return
		}
	}
	if t.Lake != nil && t.Lake.UUID != "" {
		t.Left = append(t.Left, t.Lake.UUID)
		t.Left = t.Left[max(0, len(t.Left)-leftMax):]
	}
	t.Lake = nil
	if settings != nil {
		t.Lake = &wanted
	}
	for i, f := range t.Files {
		file := *f
		file.Step, file.Replaces, file.Changed, file.Gone = 0, nil, false, t.HasLost(f)
		t.Files[i] = &file
	}
}

// SharesLake returns another table that is published where t is, or nil. Each would remove the files
// of the other one.
func (m *Manifest) SharesLake(t *Table) *Table {
	for _, other := range m.Tables {
		if other.ID != t.ID && t.Lake != nil && other.Lake != nil && t.Lake.Lake.Shares(other.Lake.Lake) {
			return other
		}
	}
	return nil
}

// MustReturn reports whether the data of a file must come back to the disk: the lake of the
// table is another one, or has lost the file.
func (t *Table) MustReturn(f *File) bool {
	return f.Remote != nil && !f.Gone && (t.Lake == nil || f.Step == 0)
}

// HasLost reports whether the rows of a file are no longer the store's: its data are only in a lake, and
// another engine has rewritten them there. Queries do not read it, and changes of rows pass over it.
func (t *Table) HasLost(f *File) bool { return f.Gone && f.Remote != nil }

func (m *Manifest) checkLake(t *Table, f *File) error {
	if r := f.Remote; r != nil && (r.Address == "" || r.Data <= 0 || r.Data >= f.Bytes || r.Data >= r.Size || len(r.Sum) != 64) {
		return fmt.Errorf("file %s has an invalid place in a lake", f.Name)
	}
	if f.Step > m.LastStep {
		return fmt.Errorf("file %s has step %d, which is not assigned yet", f.Name, f.Step)
	}
	if err := m.checkReplaced(f.Name, f.Replaces); err != nil {
		return err
	}
	if t.Lake != nil && (t.Lake.Step > m.LastStep || t.Lake.Widening != nil && t.Lake.Widening.Step > m.LastStep) {
		return errors.New("its lake has a step that is not assigned yet")
	}
	return nil
}

func (m *Manifest) checkReplaced(name string, replaced []LakeFile) error {
	for _, r := range replaced {
		if r.Step == 0 || r.Step > m.LastStep {
			return fmt.Errorf("file %s replaces %s of step %d, which is not assigned yet", name, r.Name, r.Step)
		}
		if err := m.checkReplaced(name, r.Replaces); err != nil {
			return err
		}
	}
	return nil
}
