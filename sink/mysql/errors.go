package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// A verdict is what an error of the server means for a batch.
type verdict int

const (
	unknown   verdict = iota // the batch may have been committed all the same
	conflict                 // it was not: it lost against another transaction
	refused                  // it was not: some of its rows can't be written
	permanent                // a person must act
)

func judge(err error) verdict {
	if _, ours := errors.AsType[*refusal](err); ours {
		return refused
	}
	if server, ok := errors.AsType[*driver.MySQLError](err); ok {
		return judgeNumber(server.Number)
	}
	return unknown
}

func isNumber(err error, numbers ...uint16) bool {
	server, ok := errors.AsType[*driver.MySQLError](err)
	return ok && slices.Contains(numbers, server.Number)
}

// judgeNumber knows the errors of both servers.
func judgeNumber(number uint16) verdict {
	switch number {
	case 1020, // record has changed since last read
		1205, // lock wait timeout
		1213: // deadlock
		return conflict
	case 1048, // null in a NOT NULL column
		1148, 3948, 4166, // LOAD DATA LOCAL is off
		unknownCommand, unknownStatement, notPrepared, notLogged, // no arrays
		1062,       // duplicate key
		1118,       // row too large
		1169,       // unique constraint
		1216, 1452, // foreign key
		1264, 1690, // out of range
		1265,       // data truncated
		1292,       // incorrect value
		1300,       // invalid character string
		1366,       // incorrect value for the column
		1367,       // illegal value
		1406,       // too long
		1416,       // not a geometry
		1526,       // no partition of the table for the value
		1644,       // SIGNAL of a trigger
		3140, 3903, // invalid JSON
		3819, 4025: // check constraint
		return refused
	case 1044, 1045, 1698, // access denied
		1049,       // unknown database
		1054,       // unknown column
		1064, 4161, // syntax; unknown type of a column to be made
		1068, 1071, 1170, // impossible key
		1074,             // column too long
		1142, 1143, 1227, // command denied
		1146: // no such table
		return permanent
	}
	return unknown
}

// A refusal is a row that the sink itself does not send.
type refusal struct {
	column int // index, or -1 for the whole row
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// explain says what was being done to which server, and what to do about it.
func (s *Sink) explain(doing string, err error) error {
	if err == nil || errors.Is(err, sink.ErrFenced) || errors.Is(err, context.Canceled) {
		return err
	}
	wrapped := fmt.Errorf("%s at %s: %w", doing, s.config.server(), err)
	if p, ok := errors.AsType[*event.PermanentError](err); ok {
		return &event.PermanentError{Err: fmt.Errorf("%s at %s: %w", doing, s.config.server(), p.Err), Hint: p.Hint}
	}
	switch judge(err) {
	case permanent:
		return &event.PermanentError{Err: wrapped, Hint: s.config.hint(err)}
	case conflict:
		return fmt.Errorf("%w: %w", sink.ErrConflict, wrapped)
	}
	return wrapped
}

// hint says what a person can do about a permanent error.
func (c *Config) hint(err error) string {
	server, ok := errors.AsType[*driver.MySQLError](err)
	if !ok {
		return ""
	}
	account := quoteText(c.User) + "@'%'"
	grant := fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON %s.* TO %s", quote(c.Database), account)
	switch server.Number {
	case 1045, 1698:
		return fmt.Sprintf("check user and password in the configuration, or as an administrator run: "+
			"CREATE USER %s IDENTIFIED BY '…'; %s", account, grant)
	case 1044, 1142, 1143, 1227:
		return "as an administrator run: " + grant
	case 1049:
		return fmt.Sprintf("as an administrator run: CREATE DATABASE %s CHARACTER SET utf8mb4", quote(c.Database))
	case 1064, 4161, 1068, 1071, 1074, 1170:
		return "check sql, primary_key and indexes in the configuration, or make the table by hand"
	}
	return "someone changed the tables; restart the pipeline to have them checked"
}

func quoteText(text string) string { return string(appendText(nil, []byte(text))) }

// explainRow says why a row is refused: the server's words, the column and the value.
func explainRow(err error, columns *event.Columns, row int) error {
	c := -1
	if own, ok := errors.AsType[*refusal](err); ok {
		c = own.column
	} else if server, ok := errors.AsType[*driver.MySQLError](err); ok {
		c = mentioned(server.Message, columns.Spec)
		// It was the only row of its statement, and is another of its batch.
		err = errors.New(strings.TrimSuffix(server.Message, " at row 1"))
	}
	if c < 0 {
		return err
	}
	return table.Explain(err, columns, c, row)
}

// mentioned returns the column that a message of the server is about, or -1.
// A constraint that checks JSON has the name of its column.
func mentioned(message string, spec []event.Column) int {
	for _, form := range []string{"olumn '%s'", ".`%s`", ".%s`", "`%s`"} {
		for c, column := range spec {
			if strings.Contains(message, fmt.Sprintf(form, column.Name)) {
				return c
			}
		}
	}
	return -1
}
