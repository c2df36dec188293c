package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// A plan is how rows get into the table as it is now.
type plan struct {
	format format
	copy   string // the COPY of a batch: into the target, or the staging table
	stage  string // makes the staging table; empty when there is none
	insert string // from the staging table into the target, after the COPY
}

const (
	staging = "pg_temp.perigee_stage" // of each session
	ordinal = "perigee_ordinal"       // the column there that counts the rows of a batch
)

// staged tells whether rows go through a staging table.
func (c *Config) staged() bool { return c.Mode == table.Upsert || c.Mode == table.Ignore }

func (c *Config) columnNames() []string {
	names := make([]string, len(c.Columns))
	for i, column := range c.Columns {
		names[i] = column.Name
	}
	return names
}

func (c *Config) plan(t *target) (*plan, error) {
	p := &plan{format: newFormat(c.Columns, t)}
	into, names := c.name(), c.columnNames()
	if c.staged() {
		onConflict, err := c.onConflict(t)
		if err != nil {
			return nil, err
		}
		p.stage = fmt.Sprintf("CREATE TEMP TABLE perigee_stage ON COMMIT DELETE ROWS AS SELECT %s, 0::int4 AS %s FROM %s WITH NO DATA",
			quoteAll(names), ordinal, c.name())
		p.insert = fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s;", c.name(), quoteAll(names), quoteAll(names), onConflict)
		into, names = staging, append(names, ordinal)
	}
	p.copy = fmt.Sprintf("COPY %s (%s) FROM STDIN", into, quoteAll(names))
	if p.format.binary {
		p.copy += " (FORMAT binary)"
	}
	p.copy += ";"
	return p, nil
}

// onConflict is what the staged rows are taken from, in order, and what becomes
// of those whose key is there.
func (c *Config) onConflict(t *target) (string, error) {
	if len(t.keys) == 0 {
		return "", &event.PermanentError{
			Err:  fmt.Errorf("mode is %s, and no primary key or unique index of the table consists of columns that are filled", c.Mode),
			Hint: "add such a key to the table, or use mode: insert",
		}
	}
	if c.Mode == table.Ignore {
		return staging + " ORDER BY " + ordinal + " ON CONFLICT DO NOTHING", nil
	}
	if len(t.keys) > 1 && !t.keys[0].primary {
		return "", &event.PermanentError{
			Err:  fmt.Errorf("mode is upsert, and the table has %d unique indexes to find a row by: which one is meant?", len(t.keys)),
			Hint: "make one of them the primary key",
		}
	}
	return c.replacing(t, t.keys[0].columns)
}

// replacing makes the last of the rows with a key win. A statement meets each
// row once, so the others are left out; and it meets them in the order of their
// keys, so that two of them don't wait for each other.
func (c *Config) replacing(t *target, key []string) (string, error) {
	names := c.Update
	if len(names) == 0 {
		names = slices.DeleteFunc(c.columnNames(), func(name string) bool { return slices.Contains(key, name) })
	}
	if len(names) == 0 {
		return "", &event.PermanentError{
			Err:  fmt.Errorf("mode is upsert, and every column is part of the key: there is nothing to update"),
			Hint: "use mode: ignore",
		}
	}
	sets := make([]string, len(names))
	for i, name := range names {
		sets[i] = quote(name) + " = EXCLUDED." + quote(name)
	}
	same := quoteAll(key)
	for _, name := range key {
		if find(t.columns, name).nullable { // nulls are no key
			same += fmt.Sprintf(", CASE WHEN %s IS NULL THEN %s END", quote(name), ordinal)
		}
	}
	return fmt.Sprintf("(SELECT DISTINCT ON (%s) * FROM %s ORDER BY %s, %s DESC) s ON CONFLICT (%s) DO UPDATE SET %s",
		same, staging, same, ordinal, quoteAll(key), strings.Join(sets, ", ")), nil
}

// prepareStage makes the staging table of a session that lacks it.
func (p *plan) prepareStage(ctx context.Context, c *conn) error {
	if p.stage == "" || c.staged {
		return nil
	}
	if _, err := c.do(ctx, p.stage); err != nil {
		return fmt.Errorf("making the staging table: %w", err)
	}
	c.staged = true
	return nil
}

// hugeBatch is the size above which a batch's memory is not kept.
const hugeBatch = 8 << 20

// batches keeps the memory of batches for the next write of any partition.
type batches struct {
	mu    sync.Mutex
	spare []*batch
}

func (s *batches) take() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.spare)
	if n == 0 {
		return new(batch)
	}
	b := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return b
}

func (s *batches) give(b *batch) {
	if cap(b.data)+cap(b.statement) > hugeBatch {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = append(s.spare, b)
}

// Commit implements positions.Store.
func (b *book) Commit(ctx context.Context, rows *positions.Rows, ranges []event.Range) error {
	batch := b.sink.batches.take()
	defer b.sink.batches.give(batch)
	c, err := b.sink.pool.take(ctx)
	if err == nil {
		defer b.sink.pool.give(ctx, c)
		err = b.transact(ctx, c, batch, rows, ranges)
		if judge(err) == refused {
			err = b.refuse(ctx, c, batch, rows, err)
		}
	}
	if fenced(err) {
		return sink.ErrFenced
	}
	if c != nil && judge(err) == permanent {
		hangUp(c) // its staging table may be of another time
	}
	return b.sink.explain("writing to table "+b.sink.config.Table, err)
}

// transact sends a whole transaction, COMMIT included, before the first of its
// rows: once the server has the rows, it waits for nobody until it has
// committed. The lock that lets evict find it comes first, that on the owner's
// row last.
func (b *book) transact(ctx context.Context, c *conn, batch *batch, rows *positions.Rows, ranges []event.Range) error {
	p := b.plan
	if err := p.prepareStage(ctx, c); err != nil {
		return err
	}
	to := append(batch.statement[:0], "BEGIN;SELECT pg_advisory_xact_lock_shared("...)
	to = append(append(to, b.lockClass...), ',')
	to = append(strconv.AppendInt(to, b.id, 10), ");"...)
	if len(rows.Index) > 0 {
		if err := batch.encode(&p.format, rows, rows.Index, p.stage != ""); err != nil {
			return err
		}
		to = append(append(to, p.copy...), p.insert...)
	}
	batch.statement = append(b.appendRanges(to, ranges), ";COMMIT"...)
	return c.send(ctx, batch, len(rows.Index) > 0)
}

// send runs the statements of a batch, with its data when one of them is a COPY.
func (c *conn) send(ctx context.Context, batch *batch, data bool) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	// The driver copies the text into its buffer and keeps nothing of it.
	statement := unsafe.String(unsafe.SliceData(batch.statement), len(batch.statement))
	if !data {
		return c.Exec(ctx, statement).Close()
	}
	rows := &lent{data: batch.data}
	defer rows.takeBack()
	_, err := c.CopyFrom(ctx, rows, statement)
	return err
}
