package postgres

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// Classify implements sqlsink.Database.
func (s *Sink) Classify(err error) sqlsink.Outcome { return classify(err) }

func classify(err error) sqlsink.Outcome {
	if _, own := errors.AsType[*sqlsink.Misfit](err); own {
		return sqlsink.Rejected
	}
	server, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || len(server.Code) != 5:
		return sqlsink.Unknown
	case server.TableName == sqlsink.RangesTable && server.Code == "23502" && server.ColumnName == "epoch":
		return sqlsink.Fenced // the NOT NULL that a fenced writer meets
	case server.TableName == sqlsink.NotesTable && server.Code == "23502" && server.ColumnName == "number":
		return sqlsink.Rejected // the NOT NULL that a fenced owner of the unit meets, or a note that is not the next
	case server.TableName == sqlsink.RangesTable, server.TableName == sqlsink.NotesTable:
		return sqlsink.Unknown // the table is not as the writer believes
	}
	switch server.Code {
	case "40001", // serialization failure
		"40P01": // deadlock
		return sqlsink.Conflict
	case "40003": // outcome unknown
		return sqlsink.Unknown
	case "25006", "55P03", "57014": // read-only, lock timeout, cancelled
		return sqlsink.RolledBack
	}
	switch server.Code[:2] {
	case "21", // a row that meets another of its own statement
		"22", // a value that its column does not take
		"23", // a constraint
		"44", // WITH CHECK OPTION
		"54", // a limit, such as the size of a row of an index
		"P0": // RAISE of a trigger
		return sqlsink.Rejected
	case "40", // rolled back for another reason
		"53": // no room, too many connections
		return sqlsink.RolledBack
	case "0A", "28", "3D", "3F", "42":
		return sqlsink.Permanent
	}
	return sqlsink.Unknown
}

// IsDuplicate implements sqlsink.Database. Statements say ON CONFLICT instead.
func (s *Sink) IsDuplicate(error) bool { return false }

// Hint implements sqlsink.Database.
func (s *Sink) Hint(err error) string {
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	role, schema := quote(s.config.User), quote(s.config.Schema)
	switch server.Code {
	case "28P01", "28000":
		return fmt.Sprintf("check user and password in the configuration and pg_hba.conf of the server, "+
			"or as an administrator run: CREATE ROLE %s LOGIN PASSWORD '…'", role)
	case "3D000":
		return fmt.Sprintf("as an administrator run: CREATE DATABASE %s OWNER %s ENCODING UTF8", quote(s.config.Database), role)
	case "3F000":
		return fmt.Sprintf("as an administrator run: CREATE SCHEMA %s AUTHORIZATION %s", schema, role)
	case "42501":
		return fmt.Sprintf("as an administrator run: GRANT USAGE, CREATE ON SCHEMA %s TO %s; "+
			"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s", schema, role, schema, role)
	case "42601", "42704", "42611", "42P16", "42804":
		return "check sql, primary_key and indexes in the configuration, or create the table by hand"
	}
	return "someone changed the tables; restart the pipeline to have them checked"
}

// copyLine is how a server that speaks English ends the context of an error in a COPY.
var copyLine = regexp.MustCompile(`(?m)^COPY .*?, line (\d+)(?:, column (.*?))?(?::|$)`)

// blameRow returns which of n rows of a COPY an error of the server names, or -1.
func blameRow(err error, n int) int {
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return -1
	}
	match := copyLine.FindStringSubmatch(server.Where)
	if match == nil {
		return -1
	}
	line, err := strconv.Atoi(match[1])
	if err != nil || line < 1 || line > n {
		return -1
	}
	return line - 1
}

// causeOf returns why the server rejects a row.
func causeOf(err error) sqlsink.Cause {
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return sqlsink.Cause{Message: err.Error()}
	}
	c := sqlsink.Cause{Message: server.Message, Column: server.ColumnName}
	if server.Detail != "" {
		c.Message += " (" + server.Detail + ")"
	}
	if match := copyLine.FindStringSubmatch(server.Where); c.Column == "" && match != nil {
		c.Column = match[2]
	}
	c.Misfit = server.Code[:2] == "22" || slices.Contains([]string{"23502"}, server.Code) // null
	return c
}
