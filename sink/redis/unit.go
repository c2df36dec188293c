package redis

import (
	"context"
	"crypto/rand"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

//go:embed unitopen.lua
var unitOpenScript string

//go:embed unitread.lua
var unitReadScript string

//go:embed unittrim.lua
var unitTrimScript string

// sumDigits is the length of a note's sum, in hexadecimal before its data.
const sumDigits = 16

// A unit is the ownership of a unit. It implements sink.Unit.
type unit struct {
	sink  *Sink
	name  string
	epoch string // "" for a reader that does not own it
}

// keys are the hash of what is known of the unit, and that of its notes by their numbers.
func (u *unit) keys() []string {
	return []string{u.sink.partitionKey("unit", u.name), u.sink.partitionKey("notes", u.name)}
}

// OpenUnit implements sink.UnitStore.
func (s *Sink) OpenUnit(ctx context.Context, name string) (sink.Unit, error) {
	if err := sink.CheckUnitName(name); err != nil {
		return nil, err
	}
	u := &unit{sink: s, name: name}
	token := s.owner + ":" + rand.Text()[:12]
	v, err := s.eval(ctx, unitOpenScript, []string{u.keys()[0], s.sharedKey("units")}, token, name)
	if err != nil {
		return nil, s.wrapError("take over unit "+name, err)
	}
	u.epoch = fmt.Sprint(v)
	return u, nil
}

// Units implements sink.UnitStore.
func (s *Sink) Units(ctx context.Context) (map[string]sink.UnitStatus, error) {
	all := map[string]sink.UnitStatus{}
	err := s.withConn(ctx, func(c *resp.Conn) error {
		v, err := c.Do(ctx, "SMEMBERS", s.sharedKey("units"))
		if err != nil {
			return err
		}
		names, _ := v.([]any)
		for _, name := range names {
			name := fmt.Sprint(name)
			v, err := c.Do(ctx, "HMGET", s.partitionKey("unit", name), "owner", "first", "last", "bytes")
			if err != nil {
				return err
			}
			fields, _ := v.([]any)
			if all[name], err = parseStatus(name, fields); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, s.wrapError("read the units", err)
	}
	return all, nil
}

// LastNotes implements sink.UnitStore.
func (s *Sink) LastNotes(ctx context.Context) (map[string]uint64, error) {
	last := map[string]uint64{}
	err := s.withConn(ctx, func(c *resp.Conn) error {
		v, err := c.Do(ctx, "SMEMBERS", s.sharedKey("units"))
		if err != nil {
			return err
		}
		names, _ := v.([]any)
		return c.WithContext(ctx, func() error {
			for _, name := range names {
				c.Queue("HGET", s.partitionKey("unit", fmt.Sprint(name)), "last")
			}
			if err := c.Flush(); err != nil {
				return err
			}
			for _, name := range names {
				number, err := c.ReadReply()
				if err != nil {
					return err
				}
				if last[fmt.Sprint(name)], err = strconv.ParseUint(fmt.Sprint(number), 10, 64); err != nil {
					return damage(fmt.Errorf("unit %v: %w", name, err))
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, s.wrapError("read the units", err)
	}
	return last, nil
}

// ReadNotes implements sink.UnitStore.
func (s *Sink) ReadNotes(ctx context.Context, name string, from uint64, visit func(*sink.Note) error) error {
	if err := sink.CheckUnitName(name); err != nil {
		return err
	}
	u := &unit{sink: s, name: name}
	status, _, err := u.read(ctx, 1, 0)
	if err != nil {
		return err
	}
	return u.visitNotes(ctx, max(from, 1), status.Last, visit, func(missing, first uint64) error {
		return s.wrapError("read unit "+name, fmt.Errorf("note %d is gone, and those from %d on are kept: %w", missing, first, sink.ErrNotesTrimmed))
	})
}

// parseStatus parses owner, first, last and bytes of a unit.
func parseStatus(name string, fields []any) (status sink.UnitStatus, err error) {
	err = errors.New("fields of it are missing")
	if len(fields) >= 4 {
		status.Owner = fmt.Sprint(fields[0])
		status.First, err = strconv.ParseUint(fmt.Sprint(fields[1]), 10, 64)
		if err == nil {
			status.Last, err = strconv.ParseUint(fmt.Sprint(fields[2]), 10, 64)
		}
		if err == nil {
			status.Bytes, err = strconv.ParseUint(fmt.Sprint(fields[3]), 10, 64)
		}
	}
	if err != nil {
		err = damage(fmt.Errorf("unit %s: %w", name, err))
	}
	return status, err
}

func damage(err error) error {
	return &event.PermanentError{Err: err, Hint: "another program has changed a key under perigee:; restore the server from a backup"}
}

// Close implements sink.Unit.
func (u *unit) Close() error { return nil }

// Status implements sink.Unit.
func (u *unit) Status(ctx context.Context) (sink.UnitStatus, error) {
	status, _, err := u.read(ctx, 1, 0)
	return status, err
}

// read returns the status, and notes from a number on, up to another, without a gap, as many as
// one reply holds.
func (u *unit) read(ctx context.Context, from, to uint64) (status sink.UnitStatus, notes []*sink.Note, err error) {
	v, err := u.sink.eval(ctx, unitReadScript, u.keys(), u.epoch, strconv.FormatUint(from, 10), strconv.FormatUint(to, 10))
	if err == nil && v == "FENCED" {
		err = sink.ErrFenced
	}
	if err == nil && v == "MISSING" {
		return sink.UnitStatus{First: 1}, nil, nil
	}
	reply, _ := v.([]any)
	if err == nil {
		status, err = parseStatus(u.name, reply)
	}
	for i := 4; i < len(reply) && err == nil; i++ {
		var note *sink.Note
		if note, err = parseNote(from, reply[i]); err != nil && len(notes) > 0 {
			err = nil // those before it first
			break
		}
		notes = append(notes, note)
		from++
	}
	if err != nil {
		return status, nil, u.sink.wrapError("read unit "+u.name, err)
	}
	return status, notes, nil
}

func parseNote(number uint64, value any) (*sink.Note, error) {
	text, _ := value.(string)
	if len(text) < sumDigits {
		return nil, damage(fmt.Errorf("note %d has %d bytes, too few for its checksum", number, len(text)))
	}
	sum, err := strconv.ParseUint(text[:sumDigits], 16, 64)
	if err != nil {
		return nil, damage(fmt.Errorf("note %d: %w", number, err))
	}
	return &sink.Note{Number: number, Sum: sum, Data: []byte(text[sumDigits:])}, nil
}

// Notes implements sink.Unit.
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
		status, notes, err := u.read(ctx, next, last)
		if err != nil {
			return err
		}
		if len(notes) == 0 {
			if status.First <= next {
				return u.sink.wrapError("read unit "+u.name, damage(fmt.Errorf("note %d is missing", next)))
			}
			if err := trimmed(next, status.First); err != nil {
				return err
			}
			next = status.First
		}
		for _, note := range notes {
			if err := visit(note); err != nil {
				return err
			}
			next++
		}
	}
	return nil
}

// Trim implements sink.Unit.
func (u *unit) Trim(ctx context.Context, before uint64) error {
	for {
		v, err := u.sink.eval(ctx, unitTrimScript, u.keys(), u.epoch, strconv.FormatUint(before, 10), strconv.Itoa(sumDigits))
		if err == nil && v == "FENCED" {
			err = sink.ErrFenced
		}
		if err != nil {
			return u.sink.wrapError("trim the notes of unit "+u.name, err)
		}
		if v == int64(0) {
			return nil
		}
	}
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

// noteArguments are those of the script that writes, about a note: 4 of them.
func (u *unit) noteArguments(note *sink.Note) []string {
	value := make([]byte, 0, sumDigits+len(note.Data))
	value = fmt.Appendf(value, "%0*x", sumDigits, note.Sum)
	value = append(value, note.Data...)
	return []string{
		strconv.FormatUint(note.Number, 10), strconv.FormatUint(note.Number-1, 10), string(value), strconv.Itoa(len(note.Data)),
	}
}

// numberError parses what the script that writes says of a note that is not the next one.
func numberError(reply string) error {
	e := &positions.NumberError{}
	last, sum, _ := strings.Cut(reply, " ")
	var err error
	if e.Last, err = strconv.ParseUint(last, 10, 64); err != nil {
		return damage(fmt.Errorf("the last note is %q: %w", last, err))
	}
	e.Sum, _ = strconv.ParseUint(sum, 16, 64) // 0 if there is no note
	return e
}

var (
	_ sink.UnitStore = (*Sink)(nil)
	_ sink.Unit      = (*unit)(nil)
)
