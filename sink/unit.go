package sink

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
)

// A UnitStore keeps the notes of units beside a sink's ranges, so that the sink can be the
// home of a pipeline's state. A unit is a tree of nodes that scripts change; a note is what
// one delivery changed in it. Notes of a unit are numbered from 1 without gaps.
//
// Its methods may be called by several goroutines at the same time.
type UnitStore interface {
	// OpenUnit takes over a unit: from here on its previous owner can commit no note. The
	// unit exists from then on. The name is not empty, and is UTF-8 of at most 1,000 bytes. It
	// may return ErrFenced if another owner takes the unit over at the same time.
	OpenUnit(ctx context.Context, name string) (Unit, error)

	// Units returns all units of the sink's pipeline, by name. It changes nothing, and creates no
	// table.
	Units(ctx context.Context) (map[string]UnitStatus, error)

	// LastNotes returns the number of the last note of each unit of the sink's pipeline, by name,
	// which Units does, too, with more work: followers ask several times a second. It changes
	// nothing, and creates no table.
	LastNotes(ctx context.Context) (map[string]uint64, error)

	// ReadNotes is Notes of a Unit for a reader that does not own it. It fences nobody, changes
	// nothing, and creates no table. A unit that does not exist has no notes. If Trim has forgotten
	// a note that visit was to get, also while ReadNotes runs, it returns an error that wraps
	// ErrNotesTrimmed.
	ReadNotes(ctx context.Context, name string, from uint64, visit func(*Note) error) error
}

// ErrNotesTrimmed says that a reader is behind the notes that the sink keeps.
var ErrNotesTrimmed = errors.New("the sink has removed notes that the reader lacks")

// maxUnitName is the length of the longest name of a unit.
const maxUnitName = 1000

// CheckUnitName returns a permanent error for what cannot name a unit.
func CheckUnitName(name string) error {
	var err error
	switch {
	case name == "":
		err = errors.New("the name of a unit is empty")
	case len(name) > maxUnitName:
		err = fmt.Errorf("the unit's name %.50q… has %d bytes, more than %d", name, len(name), maxUnitName)
	case !utf8.ValidString(name):
		err = fmt.Errorf("the unit's name %q is not UTF-8", name)
	default:
		return nil
	}
	return &event.PermanentError{Err: err, Hint: "let the source name its partitions otherwise, or use scope: pipeline"}
}

// UnitStatus is what a sink has of a unit.
type UnitStatus struct {
	Owner string // the process that took the unit over last, for people
	Last  uint64 // number of the last note that was committed; 0 if none was
	First uint64 // number of the first note that is kept; Last+1 if none is
	Bytes uint64 // of the notes that are kept
}

// A Unit is the ownership of a unit. It is safe for concurrent use. Each method returns ErrFenced
// once another owner has taken the unit over.
type Unit interface {
	// Status returns what the sink has of the unit. Notes committed by previous owners are
	// all in it, since none of them can commit any more.
	Status(ctx context.Context) (UnitStatus, error)

	// Notes passes the kept notes from a number on to visit, in order, up to the one that is the
	// last when Notes is called. A note is valid until visit returns. It ends with the first error
	// of visit. A note that is missing behind the first that is kept, or that is damaged, is an
	// *event.PermanentError that names it. Notes skips those that Trim forgets meanwhile.
	Notes(ctx context.Context, from uint64, visit func(*Note) error) error

	// Trim forgets the notes before a number. The last note stays, whatever the number. A note
	// may outlive its Trim if the process is killed.
	Trim(ctx context.Context, before uint64) error

	// Close releases what the unit holds. It does not wait for a WriteNote.
	Close() error
}

// A Note is what one delivery changed in a unit, with what else must be known of it.
type Note struct {
	Number uint64
	// Sum is a checksum of Data and of the note before, so that notes of two histories are
	// told apart. The sink keeps it and does not compute it.
	Sum uint64
	// Data is at most NoteMax bytes. A sink whose server takes less at once keeps it in parts.
	Data []byte
}

// NoteMax is the size that the data of a note never exceeds.
const NoteMax = 64 << 20

// A NoteWriter is the Writer of a sink that has a UnitStore.
type NoteWriter interface {
	Writer

	// WriteNote is Write that commits the note in the transaction of the rows and the range,
	// as the next of a unit of the same sink. The pipeline calls it for one note of a unit at a
	// time, in the order of their numbers, whatever the sink's Order is.
	//
	// If the whole range is committed already, WriteNote does nothing: its note was committed
	// with it. If only a part of the range is, WriteNote commits nothing and returns an
	// *event.PermanentError. If the range is empty, as that of timers may be, the note decides: it is
	// committed already if it is the last of the unit, by number and Sum.
	//
	// WriteNote returns ErrFenced if another owner has the partition or the unit, and then does so
	// always. If the note's number is not the next one, WriteNote commits nothing and
	// returns an *event.PermanentError that names both numbers, since the sink was set back or
	// another history goes on.
	WriteNote(ctx context.Context, out *event.Output, unit Unit, note *Note) error
}
