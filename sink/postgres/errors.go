package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A verdict is what an error of the server means for a batch.
type verdict int

const (
	unknown    verdict = iota // the batch may have been committed all the same
	rolledBack                // it was not, and may be tried again
	conflict                  // it was not: it lost against another transaction
	refused                   // it was not: some of its rows can't be written
	permanent                 // a person must act
)

func judge(err error) verdict {
	if _, ours := errors.AsType[*refusal](err); ours {
		return refused
	}
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(server.Code) != 5 || server.TableName == rangesTable {
		return unknown // what the ledger refuses is not as the writer believes
	}
	switch server.Code {
	case "40001", // serialization failure
		"40P01": // deadlock
		return conflict
	}
	switch server.Code[:2] {
	case "21", // a row that meets another of its own statement
		"22", // a value that its column does not take
		"23", // a constraint
		"44", // WITH CHECK OPTION
		"54": // a limit, such as the size of a row of an index
		return refused
	case "P0": // RAISE of a trigger
		return refused
	case "40", // rolled back for another reason
		"53": // no room, too many connections
		if server.Code == "40003" {
			return unknown
		}
		return rolledBack
	case "0A", "28", "3D", "3F", "42":
		return permanent
	}
	if slices.Contains([]string{"25006", "57014"}, server.Code) { // read-only, cancelled
		return rolledBack
	}
	return unknown
}

// fenced tells whether an error is that of the NOT NULL that a fenced writer meets.
func fenced(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "23502" && server.TableName == rangesTable && server.ColumnName == "epoch"
}

// A refusal is a row that the sink itself does not send.
type refusal struct {
	at     int // in the rows that were to be sent
	column int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// explain says what was being done to which server, and what to do about it.
func (s *Sink) explain(doing string, err error) error {
	if err == nil || errors.Is(err, sink.ErrFenced) || errors.Is(err, context.Canceled) {
		return err
	}
	if _, rows := errors.AsType[*sink.RowErrors](err); rows {
		return err
	}
	wrapped := fmt.Errorf("%s at %s: %w", doing, s.config.Address, err)
	if p, ok := errors.AsType[*event.PermanentError](err); ok {
		return &event.PermanentError{Err: fmt.Errorf("%s at %s: %w", doing, s.config.Address, p.Err), Hint: p.Hint}
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
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	role, schema := quote(c.User), quote(c.Schema)
	switch server.Code {
	case "28P01", "28000":
		return fmt.Sprintf("check user and password in the configuration and pg_hba.conf of the server, "+
			"or as an administrator run: CREATE ROLE %s LOGIN PASSWORD '…'", role)
	case "3D000":
		return fmt.Sprintf("as an administrator run: CREATE DATABASE %s OWNER %s ENCODING UTF8", quote(c.Database), role)
	case "3F000":
		return fmt.Sprintf("as an administrator run: CREATE SCHEMA %s AUTHORIZATION %s", schema, role)
	case "42501":
		return fmt.Sprintf("as an administrator run: GRANT USAGE, CREATE ON SCHEMA %s TO %s; "+
			"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s", schema, role, schema, role)
	case "42601", "42704", "42611", "42P16", "42804":
		return "check sql, primary_key and indexes in the configuration, or make the table by hand"
	}
	return "someone changed the tables; restart the pipeline to have them checked"
}

// quote quotes the name of a table or a column.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteText quotes a text. The server reads the backslash as itself: see session.
func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
