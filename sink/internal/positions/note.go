package positions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A Note is the note of a unit that a store commits with rows and ranges.
type Note struct {
	Unit sink.Unit
	*sink.Note
}

// A NoteStore is the Store of a sink that keeps units.
type NoteStore interface {
	Store

	// CommitNote is Commit with a note, in the same transaction. It returns sink.ErrFenced if
	// another owner has the unit, and a *NumberError if the note is not the next one. ranges
	// may be empty.
	CommitNote(ctx context.Context, rows *Rows, ranges []event.Range, note *Note) error
}

// A NumberError says that a note is not the next of its unit. Nothing was committed.
type NumberError struct {
	Last, Sum uint64 // of the unit's last note; 0 if it has none
}

func (e *NumberError) Error() string {
	return fmt.Sprintf("the last note of the unit is %d", e.Last)
}

// A NoteWriter owns one partition. It implements sink.NoteWriter.
type NoteWriter struct{ *Writer }

// NewNoteWriter is NewWriter for a store of notes.
func NewNoteWriter(store NoteStore, entries []Entry, log *slog.Logger) (NoteWriter, event.Ranges) {
	w, committed := NewWriter(store, entries, log)
	return NoteWriter{w}, committed
}

// WriteNote implements sink.NoteWriter. After a commit whose outcome is unknown, the writer raises
// the partition's epoch. That fences the note, too: it is in one transaction with the range.
func (w NoteWriter) WriteNote(ctx context.Context, out *event.Output, unit sink.Unit, note *sink.Note) error {
	return w.write(ctx, out, &Note{unit, note})
}

// commitNote commits rows, ranges and a note. Without ranges the unit tells whether an earlier
// attempt has committed them.
func (w *Writer) commitNote(ctx context.Context, rows *Rows, ranges []event.Range, note *Note) error {
	err := w.store.(NoteStore).CommitNote(ctx, rows, ranges, note)
	e, refused := errors.AsType[*NumberError](err)
	switch {
	case !refused:
		return err
	case len(ranges) == 0 && e.Last == note.Number && e.Sum == note.Sum:
		return nil
	}
	return &event.PermanentError{
		Err: fmt.Errorf("note %d is not the next one: %w", note.Number, err),
		Hint: "the sink was restored to an older state, or another history of the state goes on; " +
			"restart the pipeline: it compares the state on disk with the notes in the sink",
	}
}

// errPartlyCommitted returns the permanent error of a note whose range is committed in part.
func errPartlyCommitted(r event.Range, missing event.Ranges, note *Note) error {
	return &event.PermanentError{
		Err:  fmt.Errorf("note %d belongs to all of %v, but only %v is not committed", note.Number, r, missing),
		Hint: "positions were changed and the state was not; restore both from one backup, or restart the pipeline to read from the committed position",
	}
}
