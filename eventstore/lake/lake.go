// Package lake is the contract between an event store and the committer that publishes its
// tables as Iceberg tables. The store knows which files a lake table must have; the committer,
// a program of its own, knows the lake. Publishing is reconciling: an Order lists all files
// that a table must have, and one commit adds what is missing and removes what is no longer
// wanted. A lost order is therefore made good by the next one.
//
// The commit also records the order's step in a property of the lake table. Whatever error a
// commit returns, the committer loads the table again and asks Reconcile what is left to do:
// files that an earlier attempt added are either in the table, or covered by the recorded step
// and never added twice.
//
// The types are plain values that encode as JSON. Reconcile has no state. Orders of several
// stores for one table do not disturb each other: a store owns the files of its incarnations.
package lake

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ExitVersion is the exit code of a committer that refuses an order of another version.
const ExitVersion = 3

// ErrEnded reports that the committer was ended before it finished a table.
var ErrEnded = errors.New("the committer was ended before the table was done")

// An Order lists the desired state of a store's lake tables.
type Order struct {
	// Version is the release of the store. A committer of another release refuses the
	// order.
	Version string       `json:"version"`
	Tables  []TableOrder `json:"tables"`
}

// A TableOrder is the desired state of one lake table.
type TableOrder struct {
	Settings
	// ID is the number of the table in the store, Tables are the numbers of all its tables, and Others
	// are the other ones with a lake.
	ID     uint32   `json:"id"`
	Tables []uint32 `json:"tables,omitempty"`
	Others []Other  `json:"others,omitempty"`
	// Returning lists where other tables of the store have data that must come back to its disk
	// before the place is used: the results of Address without a name.
	Returning []string `json:"returning,omitempty"`
	// UUID and Location are those that the store last recorded of the lake table; empty
	// before its first report. The committer removes objects only of this table at this
	// location.
	UUID     string `json:"uuid,omitempty"`
	Location string `json:"location,omitempty"`
	// Incarnations lists the incarnations of the store, oldest first. The last one gives
	// this order.
	Incarnations []Incarnation `json:"incarnations"`
	// Openings lists the latest openings of the store, oldest first; see manifest.Opening.
	Openings []Opening `json:"openings,omitempty"`
	// Step numbers this order. Steps grow, also across incarnations.
	Step    uint64   `json:"step"`
	Columns []Column `json:"columns"`
	Files   []File   `json:"files"`
	// Tidy asks the committer to tidy the table after it has carried out the order; nil
	// only publishes.
	Tidy *Tidy `json:"tidy,omitempty"`
	// Look asks for a report only: the committer neither makes nor changes anything.
	Look bool `json:"look,omitempty"`
	// Check only asks whether the catalog and the warehouse can be used. The committer neither
	// makes nor changes anything, and the lake table may be missing. Only Settings matter.
	Check bool `json:"check,omitempty"`
}

// An Other is another table of the store.
type Other struct {
	ID   uint32   `json:"id"`
	UUID string   `json:"uuid,omitempty"` // of its lake table; empty while unknown
	Left []string `json:"left,omitempty"` // UUIDs of lake tables in which it was published before
}

// publishesInto reports whether the table may publish into a lake table whose record names it.
func (o Other) publishesInto(uuid string) bool {
	return o.UUID == uuid || o.UUID == "" && !slices.Contains(o.Left, uuid)
}

// Settings say where a lake table is.
type Settings struct {
	// Warehouse is a folder, or s3://BUCKET/PREFIX.
	Warehouse string `json:"warehouse"`
	// Catalog is the address of an Iceberg REST catalog (http or https), or of a database
	// for an SQL catalog (postgres or sqlite). Empty uses the warehouse itself.
	Catalog string `json:"catalog,omitempty"`
	// Table is NAMESPACE.TABLE.
	Table string `json:"table"`
}

// An Incarnation describes an incarnation of a store; see manifest.Incarnation.
type Incarnation struct {
	ID    string    `json:"id"`
	Begun time.Time `json:"begun"`
	Step  uint64    `json:"step"` // the first that it assigns
}

// An Opening is a part of the steps of a store; see manifest.Opening.
type Opening struct {
	ID   string `json:"id"`
	Step uint64 `json:"step"` // the first that it assigned
}

// A Column of a lake table. All columns are optional.
type Column struct {
	ID   int32  `json:"id"`   // field ID in the store's files
	Name string `json:"name"` // in the lake
	Type Type   `json:"type"`
	// Fitted is the field ID of another column, which takes the place of the one with ID in
	// files that have it: there that one has another type. It has the values that are the
	// same in Type.
	Fitted int32 `json:"fitted,omitempty"`
	// Former is the field ID in the lake of the column whose place and name it takes, in the
	// same commit as that of the files; 0 for a column that takes none.
	Former int32 `json:"former,omitempty"`
	// Lake is the field ID in the lake table, which the catalog assigns; 0 while unknown.
	Lake int32 `json:"lake,omitempty"`
}

// A Type is an Iceberg type, in the spelling of its specification.
type Type string

// The types of columns, besides decimal(P,S).
const (
	Boolean     Type = "boolean"
	Int         Type = "int"
	Long        Type = "long"
	Double      Type = "double"
	String      Type = "string"
	Binary      Type = "binary"
	Timestamptz Type = "timestamptz"
)

// A File is a file that the lake table must have.
type File struct {
	// Name is unique among all files of all incarnations; see FileName.
	Name string `json:"name"`
	// Path is the store's file. It is empty if the store no longer has one, because the
	// lake does.
	Path string `json:"path,omitempty"`
	Rows int64  `json:"rows"`
	// Misfits is the number of values that do not fit the types of columns. The file has
	// them in _rest.
	Misfits int64 `json:"misfits,omitempty"`
	// Step is that of the first order with this file.
	Step uint64 `json:"step"`
	// Replaces lists the files of earlier orders whose rows this file has, all of them or
	// those that a delete has left. Files that replace none must not have rows of others.
	Replaces []File `json:"replaces,omitempty"`
}

// A Report is the answer to an Order, with a TableReport for each of its tables.
type Report struct {
	Tables []TableReport `json:"tables"`
}

// A TableReport is the state of a lake table after an order.
type TableReport struct {
	Table string `json:"table"`
	UUID  string `json:"uuid,omitempty"`
	// Location is the folder of the table, or its address in S3. Its data files are in the
	// folder data below it.
	Location string `json:"location,omitempty"`
	// Metadata is the address of the table's metadata.
	Metadata string `json:"metadata,omitempty"`
	// Columns are those of the order with the IDs of the lake.
	Columns []Column `json:"columns,omitempty"`
	// Covered is the step that the lake has. It is that of the order unless Error is set.
	Covered uint64 `json:"covered,omitempty"`
	Added   int    `json:"added,omitempty"`
	Removed int    `json:"removed,omitempty"`
	// Gone names files that were published once, or replace one that was, and that somebody
	// else has removed or rewritten. They are never added again.
	Gone []string `json:"gone,omitempty"`
	// Widened lists columns of the order as the table has them, in other types: an earlier
	// incarnation of the store widened them after the backup from which it was restored.
	Widened []Column `json:"widened,omitempty"`
	// Foreign is the number of files that the store does not own.
	Foreign int `json:"foreign,omitempty"`
	// Lost names files without a Path that the table does not have, although nobody else
	// has removed them. The store must order the rows again in another file.
	Lost []string `json:"lost,omitempty"`
	// Deletes is the number of the table's delete files: other engines have deleted rows of
	// files that stayed.
	Deletes int `json:"deletes,omitempty"`
	// Error is why the order was not carried out, and Hint what to do about it.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// RolledBack reports that the store assigned steps again that it had assigned before.
	// It must begin a new incarnation.
	RolledBack bool `json:"rolled_back,omitempty"`
	// Tidied is what the committer has tidied, if the order asked for it and was carried out.
	Tidied *Tidied `json:"tidied,omitempty"`
}

// PlainCharacters are those of the addresses of warehouses and catalogs in files. Programs read others,
// such as spaces and percent signs, in different ways: some decode them, and some do not.
const PlainCharacters = "A-Z a-z 0-9 / . _ ~ + = @ , : -"

var plain = regexp.MustCompile(`^[A-Za-z0-9/._~+=@,:-]*$`)

// IsPlain reports whether an address has only PlainCharacters.
func IsPlain(address string) bool { return plain.MatchString(address) }

// FileName returns the name in a lake of a store's file, which has the form DAY/NUMBER-PART.parquet,
// and of the incarnation that wrote it.
func FileName(name, incarnation string) string {
	return name[:len(name)-len(suffix)] + "-" + incarnation + suffix
}

// Address returns the address of a file in a lake table at location: a path, or s3://BUCKET/KEY.
func Address(location, name string) string {
	location = strings.TrimSuffix(location, "/")
	if u, err := url.Parse(location); err == nil && (u.Scheme == "" || u.Scheme == "file") {
		location = u.Path
	}
	return location + "/data/" + name
}

const suffix = ".parquet"

var namePattern = regexp.MustCompile(`^[^/]+/\d{10,}-\d+-([0-9a-f]{16})\.parquet$`)

// IncarnationOf returns the incarnation in a name made by FileName, or "".
func IncarnationOf(name string) string {
	if found := namePattern.FindStringSubmatch(name); found != nil {
		return found[1]
	}
	return ""
}
