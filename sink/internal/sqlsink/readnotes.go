package sqlsink

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/perigeedb/perigee/sink"
)

// LastNotes implements sink.UnitStore.
func (s *Store) LastNotes(ctx context.Context) (last map[string]uint64, err error) {
	last = map[string]uint64{}
	err = s.readUnits(ctx, "reading the units", func(c Conn) error {
		rows, err := c.Query(ctx, fmt.Sprintf("SELECT name, last FROM %s WHERE %s", s.Table(UnitsTable), s.where()))
		if err != nil {
			return err
		}
		for _, row := range rows {
			if last[string(row[0])], err = strconv.ParseUint(string(row[1]), 10, 64); err != nil {
				return err
			}
		}
		return nil
	})
	return last, err
}

// readUnits calls f with a connection, unless the tables of units are missing.
func (s *Store) readUnits(ctx context.Context, doing string, f func(Conn) error) error {
	return s.Explain(doing, s.Database.Connect(ctx, func(c Conn) error {
		s.mu.Lock()
		created := s.unitsCreated
		s.mu.Unlock()
		if !created {
			missing, err := s.Database.Missing(ctx, c, unitTables)
			if err != nil || len(missing) > 0 {
				return err
			}
			s.mu.Lock()
			s.unitsCreated = true
			s.mu.Unlock()
		}
		return f(c)
	}))
}

// ReadNotes implements sink.UnitStore.
func (s *Store) ReadNotes(ctx context.Context, name string, from uint64, visit func(*sink.Note) error) error {
	if err := sink.CheckUnitName(name); err != nil {
		return err
	}
	u, last := &unit{store: s, name: name}, uint64(0)
	err := s.readUnits(ctx, u.reading(), func(c Conn) error {
		rows, err := c.Query(ctx, fmt.Sprintf("SELECT id, last FROM %s WHERE %s AND name = %s", s.Table(UnitsTable), s.where(), s.QuoteText(s.Key(name))))
		if err == nil && len(rows) > 0 {
			u.id, last, err = parsePair(rows[0])
		}
		return err
	})
	if err != nil {
		return err
	}
	read := func(next uint64) (notes []*sink.Note, err error) {
		err = s.readUnits(ctx, u.reading(), func(c Conn) (err error) {
			notes, err = u.readNotes(ctx, c, next, last)
			return err
		})
		return notes, err
	}
	skip := func(missing uint64) (uint64, error) { return 0, u.explainMissing(ctx, missing) }
	return visitNotes(max(from, 1), last, read, skip, visit)
}

// explainMissing returns why a note is missing: Trim has forgotten it, or the table is damaged.
func (u *unit) explainMissing(ctx context.Context, number uint64) error {
	var first [][][]byte
	err := u.store.readUnits(ctx, u.reading(), func(c Conn) (err error) {
		first, err = c.Query(ctx, fmt.Sprintf("SELECT MIN(number), unit FROM %s WHERE unit = %d GROUP BY unit", u.store.Table(NotesTable), u.id))
		return err
	})
	if err != nil {
		return err
	}
	if len(first) > 0 {
		n, err := strconv.ParseUint(string(first[0][0]), 10, 64)
		if err == nil && n > number {
			return u.store.Explain(u.reading(), fmt.Errorf("note %d is gone, and those from %d on are kept: %w", number, n, sink.ErrNotesTrimmed))
		}
	}
	return u.damage(number, errors.New("it is missing"))
}
