package changelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

const (
	pageNotes = 1000    // that are read at once
	pageBytes = 8 << 20 // of notes that are read at once, if they are more than one
	trimNotes = 1000    // that one commit deletes: others wait for it
)

// A unit is the ownership of a unit. It implements sink.Unit.
type unit struct {
	sink  *Sink
	name  string
	epoch uint64
	reads bool // it reads, and does not own the unit
}

// OpenUnit implements sink.UnitStore.
func (s *Sink) OpenUnit(ctx context.Context, name string) (sink.Unit, error) {
	if err := sink.CheckUnitName(name); err != nil {
		return nil, err
	}
	u, token := &unit{sink: s, name: name}, newToken()
	err := s.store.commit(ctx, func(tx *bolt.Tx) (refused, err error) {
		r := unitRecord{First: 1}
		if _, err := getRecord(tx, unitsBucket, u.key(), &r); err != nil {
			return nil, err
		}
		r.Epoch, r.Token = r.Epoch+1, token
		u.epoch = r.Epoch
		return nil, putRecord(tx, unitsBucket, u.key(), &r)
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

// Units implements sink.UnitStore.
func (s *Sink) Units(ctx context.Context) (map[string]sink.UnitStatus, error) {
	all := map[string]sink.UnitStatus{}
	err := s.store.read(ctx, func(tx *bolt.Tx) error {
		for name := range namesIn(tx.Bucket(unitsBucket), s.pipeline) {
			var r unitRecord
			if _, err := getRecord(tx, unitsBucket, nameKey(s.pipeline, name), &r); err != nil {
				return err
			}
			all[name] = r.status()
		}
		return nil
	})
	return all, err
}

// LastNotes implements sink.UnitStore.
func (s *Sink) LastNotes(ctx context.Context) (map[string]uint64, error) {
	units, err := s.Units(ctx)
	last := map[string]uint64{}
	for name, status := range units {
		last[name] = status.Last
	}
	return last, err
}

// ReadNotes implements sink.UnitStore.
func (s *Sink) ReadNotes(ctx context.Context, name string, from uint64, visit func(*sink.Note) error) error {
	if err := sink.CheckUnitName(name); err != nil {
		return err
	}
	u := &unit{sink: s, name: name, reads: true}
	status, err := u.Status(ctx)
	if err != nil {
		return err
	}
	return u.visitNotes(ctx, max(from, 1), status.Last, visit, func(missing, first uint64) error {
		return fmt.Errorf("note %d of unit %s is gone from %s, and those from %d on are kept: %w", missing, name, s.store.file.Path(), first, sink.ErrNotesTrimmed)
	})
}

// ownUnit returns the unit of a note, if it is one of the sink's.
func (s *Sink) ownUnit(note *positions.Note) (*unit, error) {
	u, ok := note.Unit.(*unit)
	switch {
	case !ok || u.sink != s:
		return nil, &event.PermanentError{Err: errors.New("the unit of the note belongs to another sink")}
	case len(note.Data) > sink.NoteMax:
		return nil, &event.PermanentError{Err: fmt.Errorf("note %d of unit %s has %d bytes, more than %d", note.Number, u.name, len(note.Data), sink.NoteMax)}
	}
	return u, nil
}

func (u *unit) key() []byte { return nameKey(u.sink.pipeline, u.name) }

// record reads the record of the unit, and refuses an owner that is not the last one.
func (u *unit) record(tx *bolt.Tx) (r unitRecord, refused, err error) {
	r.First = 1
	if _, err := getRecord(tx, unitsBucket, u.key(), &r); err != nil {
		return r, nil, err
	}
	if r.Epoch != u.epoch && !u.reads {
		return r, sink.ErrFenced, nil
	}
	return r, nil, nil
}

// put stores the next note.
func (u *unit) put(tx *bolt.Tx, note *sink.Note) (refused, err error) {
	r, refused, err := u.record(tx)
	if err != nil || refused != nil {
		return refused, err
	}
	if note.Number != r.Last+1 {
		e := &positions.NumberError{Last: r.Last}
		if last, err := readNote(tx, u.sink.pipeline, u.name, r.Last); err == nil {
			e.Sum = last.Sum
		}
		return e, nil
	}
	r.Last, r.Bytes = note.Number, r.Bytes+uint64(len(note.Data))
	if err := putNote(tx, u.sink.pipeline, u.name, note); err != nil {
		return nil, err
	}
	return nil, putRecord(tx, unitsBucket, u.key(), &r)
}

// Close implements sink.Unit.
func (u *unit) Close() error { return nil }

// Status implements sink.Unit.
func (u *unit) Status(ctx context.Context) (status sink.UnitStatus, err error) {
	err = u.sink.store.read(ctx, func(tx *bolt.Tx) error {
		r, refused, err := u.record(tx)
		status = r.status()
		return errors.Join(refused, err)
	})
	return status, err
}

// Trim implements sink.Unit.
func (u *unit) Trim(ctx context.Context, before uint64) error {
	for more := true; more; {
		err := u.sink.store.commit(ctx, func(tx *bolt.Tx) (refused, err error) {
			r, refused, err := u.record(tx)
			if err != nil || refused != nil {
				return refused, err
			}
			more, err = u.trim(tx, &r, before)
			return nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// trim forgets some notes before a number, and reports whether there are more.
func (u *unit) trim(tx *bolt.Tx, r *unitRecord, before uint64) (more bool, err error) {
	first, end := r.First, min(before, r.Last, r.First+trimNotes)
	for ; r.First < end; r.First++ {
		key := noteKey(u.sink.pipeline, u.name, r.First)
		if value := tx.Bucket(notesBucket).Get(key); len(value) >= noteHeader {
			r.Bytes -= min(r.Bytes, binary.BigEndian.Uint64(value[8:]))
		}
		if err := tx.Bucket(notesBucket).Delete(key); err != nil {
			return false, err
		}
	}
	if r.First == first {
		return false, nil
	}
	return r.First < min(before, r.Last), putRecord(tx, unitsBucket, u.key(), r)
}

// Notes implements sink.Unit. No transaction is open while visit runs.
func (u *unit) Notes(ctx context.Context, from uint64, visit func(*sink.Note) error) error {
	status, err := u.Status(ctx)
	if err != nil {
		return err
	}
	return u.visitNotes(ctx, max(from, status.First), status.Last, visit, func(missing, first uint64) error { return nil })
}

// visitNotes passes notes to visit, in order. It calls trimmed where Trim has forgotten some that
// are before the first one that is kept, and goes on with that.
func (u *unit) visitNotes(ctx context.Context, next, last uint64, visit func(*sink.Note) error, trimmed func(missing, first uint64) error) error {
	for next <= last {
		notes, first, err := u.readNotes(ctx, next, last)
		if err == nil && first > next {
			err = trimmed(next, first)
			next = first
		}
		if err != nil {
			return err
		}
		for _, note := range notes {
			if err := visit(note); err != nil {
				return err
			}
			next = note.Number + 1
		}
	}
	return nil
}

// readNotes reads some of the notes from a number on, without a gap, and the number of the first
// that is kept. It reads none if that is behind the first number asked for.
func (u *unit) readNotes(ctx context.Context, from, last uint64) (notes []*sink.Note, first uint64, err error) {
	err = u.sink.store.read(ctx, func(tx *bolt.Tx) error {
		r, refused, err := u.record(tx)
		if first = r.First; err != nil || refused != nil || first > from {
			return errors.Join(refused, err)
		}
		for bytes := 0; from <= last && len(notes) < pageNotes && bytes < pageBytes; from++ {
			note, err := readNote(tx, u.sink.pipeline, u.name, from)
			if err != nil && len(notes) > 0 {
				return nil // those before it first
			}
			if err != nil {
				return damage(tx, fmt.Sprintf("note %d of unit %s", from, u.name), err)
			}
			notes, bytes = append(notes, note), bytes+len(note.Data)
		}
		return nil
	})
	return notes, first, err
}
