package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// A search finds the rows for which the server refused a batch. It sends them
// again in pieces, in a transaction that is rolled back: the good rows stay in
// it, so that two rows with one key are told apart. Where the server names the
// line, the row is found at once; otherwise the piece is halved.
type search struct {
	*book
	conn  *conn
	batch *batch
	rows  *positions.Rows
	bad   []sink.RowError
}

const savepoint = "perigee"

// refuse returns the rows that are to blame for cause.
func (b *book) refuse(ctx context.Context, c *conn, batch *batch, rows *positions.Rows, cause error) error {
	rollBack(ctx, c)
	if err := b.owned(ctx, c); err != nil {
		return err
	}
	if _, err := c.do(ctx, "BEGIN;SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
		return err
	}
	s := search{book: b, conn: c, batch: batch, rows: rows}
	if err := s.all(ctx, rows.Index); err != nil {
		return err
	}
	if len(s.bad) == 0 {
		// Something has changed meanwhile: read again what is committed before
		// the next attempt.
		return fmt.Errorf("the server refused rows that it now takes: %s", cause.Error())
	}
	slices.SortFunc(s.bad, func(a, b sink.RowError) int { return cmp.Compare(a.Row, b.Row) })
	return &sink.RowErrors{Rows: s.bad}
}

// owned tells whether the writer is still the owner.
func (b *book) owned(ctx context.Context, c *conn) error {
	rows, err := c.do(ctx, fmt.Sprintf("SELECT FROM %s WHERE id = %d AND epoch = %d", b.sink.config.in(ownersTable), b.id, b.epoch))
	if err == nil && len(rows) == 0 {
		return sink.ErrFenced
	}
	return err
}

// all finds the bad ones among rows, in pieces that become smaller where there
// are many of them.
func (s *search) all(ctx context.Context, rows []int) error {
	for size := len(rows); len(rows) > 0; {
		piece := rows[:min(size, len(rows))]
		n, err := s.some(ctx, piece)
		if err != nil {
			return err
		}
		size = n * 2
		if n < len(piece) {
			size = max(1, len(piece)/2)
		}
		rows = rows[n:]
	}
	return nil
}

// some settles the first of rows, and returns how many: all of them when they
// are good, or those up to the first that is bad.
func (s *search) some(ctx context.Context, rows []int) (n int, err error) {
	err = s.try(ctx, rows)
	if err == nil {
		return len(rows), nil
	}
	if judge(err) != refused {
		return 0, err
	}
	at := blamed(err, len(rows))
	switch {
	case at < 0 && len(rows) == 1:
		at = 0
	case at < 0:
		return s.some(ctx, rows[:len(rows)/2])
	}
	if err := s.all(ctx, rows[:at]); err != nil {
		return 0, err
	}
	s.bad = append(s.bad, sink.RowError{Row: rows[at], Err: explainRow(err, s.rows.Columns, rows[at])})
	return at + 1, nil
}

// try puts rows into the transaction, all or none.
func (s *search) try(ctx context.Context, rows []int) error {
	p := s.plan
	if err := s.batch.encode(&p.format, s.rows, rows, p.stage != ""); err != nil {
		return err
	}
	to := append(s.batch.statement[:0], "SAVEPOINT "+savepoint+";"...)
	if p.stage != "" {
		to = append(to, "TRUNCATE "+staging+";"...)
	}
	to = append(append(to, p.copy...), p.insert...)
	s.batch.statement = append(to, "RELEASE "+savepoint...)
	err := s.conn.send(ctx, s.batch, true)
	if judge(err) == refused {
		if _, err := s.conn.do(ctx, "ROLLBACK TO "+savepoint); err != nil {
			return err
		}
	}
	return err
}

// copyLine is how a server that speaks English ends the context of an error in a COPY.
var copyLine = regexp.MustCompile(`(?m)^COPY .*?, line (\d+)(?:, column (.*?))?(?::|$)`)

// blamed returns which of n rows an error names, or -1.
func blamed(err error, n int) int {
	if own, ok := errors.AsType[*refusal](err); ok {
		return own.at
	}
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return -1
	}
	return lineOf(copyLine.FindStringSubmatch(server.Where), n)
}

func lineOf(match []string, n int) int {
	if match == nil {
		return -1
	}
	line, err := strconv.Atoi(match[1])
	if err != nil || line < 1 || line > n {
		return -1
	}
	return line - 1
}

// explainRow says why a row is refused: the server's words, the column and the value.
func explainRow(err error, columns *event.Columns, row int) error {
	c := -1
	if own, ok := errors.AsType[*refusal](err); ok {
		c = own.column
	} else if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		c = mentioned(server, columns.Spec)
		err = errors.New(server.Message)
		if server.Detail != "" {
			err = fmt.Errorf("%s (%s)", server.Message, server.Detail)
		}
	}
	if c < 0 {
		return err
	}
	return table.Explain(err, columns, c, row)
}

// mentioned returns the column that an error of the server is about, or -1.
func mentioned(server *pgconn.PgError, spec []event.Column) int {
	name := server.ColumnName
	if match := copyLine.FindStringSubmatch(server.Where); name == "" && match != nil {
		name = match[2]
	}
	return slices.IndexFunc(spec, func(column event.Column) bool { return column.Name == name })
}
