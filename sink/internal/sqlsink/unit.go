package sqlsink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

const (
	// NotePart is the size of the largest part of a note. InnoDB keeps no value that is larger
	// than a tenth of its log.
	NotePart = 4 << 20

	pageNotes = 1000    // that are looked up at once
	pageBytes = 8 << 20 // of notes that are read at once, if they are more than one
	trimNotes = 1000    // that one statement deletes: a WriteNote may wait for it
)

// OpenUnit implements sink.UnitStore. It creates the tables of units if need be. A commit
// of another owner in flight either holds the lock on the unit's row, and OpenUnit waits for it, or
// never gets the lock.
func (s *Store) OpenUnit(ctx context.Context, name string) (sink.Unit, error) {
	if err := sink.CheckUnitName(name); err != nil {
		return nil, err
	}
	u := &unit{store: s, name: name, token: Process() + ":" + rand.Text()[:12]}
	err := s.connect(ctx, "taking over unit "+name, func(c Conn) error {
		err := s.createUnitTables(ctx, c)
		if err == nil {
			err = u.takeOver(ctx, c)
		}
		if s.Database.Classify(err) == Rejected {
			err = &event.PermanentError{Err: err, Hint: UnitsTable + " cannot hold the names of the pipeline and the unit; shorten them"}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

func (s *Store) createUnitTables(ctx context.Context, c Conn) error {
	s.mu.Lock()
	created := s.unitsCreated
	s.mu.Unlock()
	if created {
		return nil
	}
	if err := s.createTables(ctx, c, unitTables); err != nil {
		return fmt.Errorf("creating the tables for the state: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unitsCreated = true
	return nil
}

// Units implements sink.UnitStore.
func (s *Store) Units(ctx context.Context) (all map[string]sink.UnitStatus, err error) {
	err = s.Database.Connect(ctx, func(c Conn) error {
		all = map[string]sink.UnitStatus{}
		missing, err := s.Database.Missing(ctx, c, unitTables)
		if err != nil || len(missing) > 0 {
			return err
		}
		rows, err := c.Query(ctx, s.selectUnits(s.where()))
		if err != nil {
			return err
		}
		for _, row := range rows {
			if all[string(row[0])], err = parseStatus(row); err != nil {
				return err
			}
		}
		return nil
	})
	return all, s.Explain("reading the units", err)
}

// selectUnits returns the query of units and of what is kept of their notes.
func (s *Store) selectUnits(where string) string {
	return fmt.Sprintf("SELECT name, owner, last, MIN(number), SUM(bytes) FROM %s u LEFT JOIN %s n ON n.unit = u.id WHERE %s GROUP BY u.id, name, owner, last",
		s.Table(UnitsTable), s.Table(NotesTable), where)
}

func parseStatus(row [][]byte) (u sink.UnitStatus, err error) {
	u.Owner = string(row[1])
	if u.Last, err = strconv.ParseUint(string(row[2]), 10, 64); err != nil {
		return u, err
	}
	if row[3] == nil {
		u.First = u.Last + 1
		return u, nil
	}
	u.First, u.Bytes, err = parsePair(row[3:])
	return u, err
}

// A unit is the ownership of a unit. It implements sink.Unit.
type unit struct {
	store *Store
	name  string
	token string // names the owner in perigee_units
	id    uint64 // of the row in perigee_units
	epoch uint64
}

// takeOver raises the epoch, by a statement that is a transaction of its own, so that a worker
// that freezes right after it holds no locks. The first time, it finds no row to raise.
func (u *unit) takeOver(ctx context.Context, c Conn) error {
	s := u.store
	where := s.where() + " AND name = " + s.QuoteText(s.Key(u.name))
	for range 2 {
		err := c.Exec(ctx, fmt.Sprintf("UPDATE %s SET epoch = epoch + 1, owner = %s, since = %s WHERE %s",
			s.Table(UnitsTable), s.QuoteText(u.token), s.Now, where))
		if err != nil {
			return err
		}
		rows, err := c.Query(ctx, fmt.Sprintf("SELECT id, epoch, owner FROM %s WHERE %s", s.Table(UnitsTable), where))
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			err = s.insertMissing(ctx, c, UnitsTable, "pipeline, target, name, epoch, owner, since, last", strings.Join([]string{
				s.QuoteText(s.Key(s.Pipeline)), s.QuoteText(s.Target), s.QuoteText(s.Key(u.name)), "0", "''", s.Now, "0"}, ", "))
			if err != nil {
				return err
			}
		case string(rows[0][2]) == u.token:
			u.id, u.epoch, err = parsePair(rows[0])
			return err
		default:
			return sink.ErrFenced
		}
	}
	return sink.ErrFenced
}

// owned is the condition that finds the unit's row as long as it is the owner's.
func (u *unit) owned() string { return fmt.Sprintf("id = %d AND epoch = %d", u.id, u.epoch) }

// Close implements sink.Unit.
func (u *unit) Close() error { return nil }

// Status implements sink.Unit.
func (u *unit) Status(ctx context.Context) (status sink.UnitStatus, err error) {
	err = u.store.connect(ctx, "reading unit "+u.name, func(c Conn) error {
		status, err = u.readStatus(ctx, c)
		return err
	})
	return status, err
}

func (u *unit) readStatus(ctx context.Context, c Conn) (sink.UnitStatus, error) {
	rows, err := c.Query(ctx, u.store.selectUnits(u.owned()))
	if err != nil {
		return sink.UnitStatus{}, err
	}
	if len(rows) == 0 {
		return sink.UnitStatus{}, sink.ErrFenced
	}
	return parseStatus(rows[0])
}

// Trim implements sink.Unit. The statement deletes nothing for a fenced owner: then there is no
// number that the notes are below.
func (u *unit) Trim(ctx context.Context, before uint64) error {
	s := u.store
	return s.connect(ctx, "trimming the notes of unit "+u.name, func(c Conn) error {
		status, err := u.readStatus(ctx, c)
		if err != nil {
			return err
		}
		before = min(before, status.Last)
		for next := status.First; next < before; {
			next = min(next+trimNotes, before)
			err := c.Exec(ctx, fmt.Sprintf("DELETE FROM %s WHERE unit = %d AND number < %d AND number < (SELECT last FROM %s WHERE %s%s)",
				s.Table(NotesTable), u.id, next, s.Table(UnitsTable), u.owned(), s.ShareLock))
			if err != nil {
				return err
			}
		}
		rows, err := c.Query(ctx, fmt.Sprintf("SELECT 1 FROM %s WHERE %s", s.Table(UnitsTable), u.owned()))
		if err == nil && len(rows) == 0 {
			return sink.ErrFenced
		}
		return err
	})
}

// A noteSize is what perigee_notes says about a note.
type noteSize struct{ number, sum, bytes uint64 }

// Notes implements sink.Unit.
func (u *unit) Notes(ctx context.Context, from uint64, visit func(*sink.Note) error) error {
	status, err := u.Status(ctx)
	if err != nil {
		return err
	}
	if status.First > status.Last && from <= status.Last && status.Last > 0 { // Trim leaves the last one
		return u.damage(status.Last, errors.New("it is missing"))
	}
	read := func(next uint64) (notes []*sink.Note, err error) {
		err = u.store.connect(ctx, u.reading(), func(c Conn) (err error) {
			notes, err = u.readNotes(ctx, c, next, status.Last)
			return err
		})
		return notes, err
	}
	skip := func(missing uint64) (uint64, error) { return u.skipTrimmed(ctx, missing) }
	return visitNotes(max(from, status.First), status.Last, read, skip, visit)
}

// visitNotes passes notes to visit, in order. read returns some from a number on, and none if that
// one is missing: then skip returns the number of the next one to visit, or why there is none.
func visitNotes(next, last uint64, read func(next uint64) ([]*sink.Note, error), skip func(missing uint64) (uint64, error), visit func(*sink.Note) error) error {
	for next <= last {
		notes, err := read(next)
		if err != nil {
			return err
		}
		if len(notes) == 0 {
			if next, err = skip(next); err != nil {
				return err
			}
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

// skipTrimmed returns the number of the first note that is kept, if it is behind a missing one:
// Trim was called meanwhile.
func (u *unit) skipTrimmed(ctx context.Context, missing uint64) (next uint64, err error) {
	status, err := u.Status(ctx)
	if err == nil && (status.First <= missing || status.First > status.Last) {
		err = u.damage(missing, errors.New("it is missing"))
	}
	return status.First, err
}

func (u *unit) damage(number uint64, err error) error {
	return u.store.Explain(u.reading(), &event.PermanentError{
		Err:  fmt.Errorf("note %d: %w", number, err),
		Hint: "someone changed " + NotesTable + ", or the database is damaged; restore it from a backup",
	})
}

func (u *unit) reading() string { return "reading the notes of unit " + u.name }

// readNotes reads notes from a number on, without a gap. It returns none if the first is missing.
func (u *unit) readNotes(ctx context.Context, c Conn, from, last uint64) ([]*sink.Note, error) {
	sizes, err := u.readSizes(ctx, c, from, last)
	if err != nil || len(sizes) == 0 {
		return nil, err
	}
	rows, err := c.Query(ctx, fmt.Sprintf("SELECT number, data FROM %s WHERE unit = %d AND number BETWEEN %d AND %d ORDER BY number, part",
		u.store.Table(NotesTable), u.id, from, sizes[len(sizes)-1].number))
	if err != nil {
		return nil, err
	}
	var notes []*sink.Note
	for _, size := range sizes {
		note := &sink.Note{Number: size.number, Sum: size.sum}
		parts, number := 0, strconv.FormatUint(size.number, 10)
		for parts < len(rows) && string(rows[parts][0]) == number {
			parts++
		}
		if parts == 0 {
			break // trimmed between the two queries
		}
		if note.Data, err = u.joinParts(rows[:parts]); err == nil && uint64(len(note.Data)) != size.bytes {
			err = fmt.Errorf("it has %d bytes, not %d", len(note.Data), size.bytes)
		}
		if err != nil && len(notes) > 0 {
			break // those before it first
		}
		if err != nil {
			return nil, u.damage(size.number, err)
		}
		notes, rows = append(notes, note), rows[parts:]
	}
	return notes, nil
}

// joinParts joins the data of the parts of a note. It may overwrite rows.
func (u *unit) joinParts(rows [][][]byte) (data []byte, err error) {
	for i, row := range rows {
		part, err := u.store.ParseBytes(row[1])
		if err != nil {
			return nil, err
		}
		if i == 0 {
			data = part
			continue
		}
		data = append(data, part...)
	}
	return data, nil
}

// readSizes looks up notes from a number on, without a gap, that fit into a page.
func (u *unit) readSizes(ctx context.Context, c Conn, from, last uint64) (sizes []noteSize, err error) {
	rows, err := c.Query(ctx, fmt.Sprintf(`SELECT number, MIN(sum), SUM(bytes), COUNT(*) = MAX(parts) AND MIN(parts) = MAX(parts) AND MAX(part) = MAX(parts) - 1 AND MIN(sum) = MAX(sum)
		FROM %s WHERE unit = %d AND number BETWEEN %d AND %d GROUP BY number ORDER BY number LIMIT %d`,
		u.store.Table(NotesTable), u.id, from, last, pageNotes))
	if err != nil {
		return nil, err
	}
	bytes := uint64(0)
	for _, row := range rows {
		var n noteSize
		if n.number, n.sum, err = parsePair(row); err != nil {
			return nil, err
		}
		if n.bytes, err = strconv.ParseUint(string(row[2]), 10, 64); err != nil {
			return nil, err
		}
		bytes += n.bytes
		if n.number != from || len(sizes) > 0 && bytes > pageBytes {
			break
		}
		if whole := string(row[3]); whole != "1" && whole != "t" {
			if len(sizes) > 0 {
				break // those before it first
			}
			return nil, u.damage(n.number, errors.New("parts of it are missing or differ"))
		}
		sizes = append(sizes, n)
		from++
	}
	return sizes, nil
}

// A NoteInsert makes the statements that insert a note of one of the store's units, in parts.
type NoteInsert struct {
	unit  *unit
	claim *Claim
	note  *sink.Note
	size  int // of a part before the last one
	sent  int // bytes of the parts that were appended
	part  int // number of the next part
	parts int
}

// NewNoteInsert returns the insert of a note in a transaction of the claim.
func (c *Claim) NewNoteInsert(note *positions.Note) (*NoteInsert, error) {
	u, ok := note.Unit.(*unit)
	switch {
	case !ok || u.store != c.store:
		return nil, &event.PermanentError{Err: errors.New("the unit of the note belongs to another sink")}
	case len(note.Data) > sink.NoteMax:
		return nil, &event.PermanentError{Err: fmt.Errorf("note %d of unit %s has %d bytes, more than %d", note.Number, u.name, len(note.Data), sink.NoteMax)}
	}
	return &NoteInsert{unit: u, claim: c, note: note.Note}, nil
}

// Split begins with the first part, and cuts the note into parts of size bytes each, but for the
// last one, which has at most last bytes and may be empty.
func (n *NoteInsert) Split(size, last int) {
	n.size, n.sent, n.part, n.parts = size, 0, 0, 1
	if before := len(n.note.Data) - last; before > 0 {
		n.parts += (before + size - 1) / size
	}
}

// More reports whether there are parts before the last one.
func (n *NoteInsert) More() bool { return n.part < n.parts-1 }

// AppendPart appends the statement that inserts the next part, which is not the last one. Nothing
// fences it: it stays invisible until the last part commits it.
func (n *NoteInsert) AppendPart(to []byte) []byte {
	end := min(n.sent+n.size, len(n.note.Data))
	return n.appendInsert(to, end, func(to []byte) []byte { return strconv.AppendUint(to, n.note.Number, 10) })
}

// AppendLast appends the statements that insert the last part and make the note the last of its
// unit. They fail unless the unit's epoch is that of the owner and the note is the next one: the
// number of the note is read from the unit's row, which is locked until the transaction ends;
// otherwise it is NULL, which the column does not accept. A transaction that commits no range
// must find the partition's epoch here, too.
func (n *NoteInsert) AppendLast(to []byte, withRanges bool) []byte {
	s := n.unit.store
	to = n.appendInsert(to, len(n.note.Data), func(to []byte) []byte {
		to = append(append(to, "(SELECT last + 1 FROM "...), s.Table(UnitsTable)...)
		to = append(append(to, " WHERE "...), n.unit.owned()...)
		to = strconv.AppendUint(append(to, " AND last + 1 = "...), n.note.Number, 10)
		if !withRanges {
			to = fmt.Appendf(to, " AND EXISTS (SELECT 1 FROM %s o WHERE o.id = %d AND o.epoch = %d%s)",
				s.Table(OwnersTable), n.claim.ID, n.claim.Epoch, s.ShareLock)
		}
		return append(to, " FOR UPDATE)"...)
	})
	return fmt.Appendf(to, ";UPDATE %s SET last = %d WHERE id = %d", s.Table(UnitsTable), n.note.Number, n.unit.id)
}

// appendInsert appends the statement that inserts the part that goes up to end.
func (n *NoteInsert) appendInsert(to []byte, end int, appendNumber func([]byte) []byte) []byte {
	s, data := n.unit.store, n.note.Data[n.sent:end]
	to = append(append(to, "INSERT INTO "...), s.Table(NotesTable)...)
	to = strconv.AppendUint(append(to, " (unit, number, part, parts, sum, bytes, data) VALUES ("...), n.unit.id, 10)
	to = appendNumber(append(to, ','))
	to = strconv.AppendInt(append(to, ','), int64(n.part), 10)
	to = strconv.AppendInt(append(to, ','), int64(n.parts), 10)
	to = strconv.AppendUint(append(to, ','), n.note.Sum, 10)
	to = strconv.AppendInt(append(to, ','), int64(len(data)), 10)
	to = append(s.AppendBytes(append(to, ','), data), ')')
	n.sent, n.part = end, n.part+1
	return to
}

// CheckNext says why the server has refused the note: sink.ErrFenced, a *positions.NumberError,
// or nil if it was not for its unit or number.
func (n *NoteInsert) CheckNext(ctx context.Context, c Conn) error {
	s := n.unit.store
	rows, err := c.Query(ctx, fmt.Sprintf("SELECT last, (SELECT MAX(sum) FROM %s WHERE unit = u.id AND number = u.last) FROM %s u WHERE %s",
		s.Table(NotesTable), s.Table(UnitsTable), n.unit.owned()))
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return sink.ErrFenced
	}
	e := &positions.NumberError{}
	if rows[0][1] == nil {
		rows[0][1] = []byte("0")
	}
	if e.Last, e.Sum, err = parsePair(rows[0]); err != nil || e.Last+1 == n.note.Number {
		return err
	}
	return e
}

var (
	_ sink.UnitStore = (*Store)(nil)
	_ sink.Unit      = (*unit)(nil)
)
