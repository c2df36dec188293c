package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// accountTimeout bounds how long a hint waits for the name of an account.
const accountTimeout = 3 * time.Second

// The numbers of errors that decide how rows are inserted.
const (
	errDuplicate         = 1062
	errTooManyStatements = 1461 // there is no room for one more prepared statement
	errNoSuchThread      = 1094
)

// noBulk are the numbers with which servers, and proxies before them, say that they
// do not take arrays of parameters: unknown command, unknown statement, not
// supported as a prepared statement, not possible with a binary log of statements.
var noBulk = []uint16{1047, 1243, 1295, 4033}

// misfits are the numbers of errors about a value that its column does not take.
var misfits = []uint16{
	1048,       // null in a NOT NULL column
	1264, 1690, // out of range
	1265,       // data truncated
	1292,       // incorrect value
	1300,       // invalid character string
	1366,       // incorrect value for the column
	1367,       // illegal value
	1406,       // too long
	1416,       // not a geometry
	3140, 3903, // invalid JSON
}

const failedCheck = 4025 // of a constraint; that of a JSON column has its name

// Classify implements sqlsink.Database, for the errors of both servers.
func (s *Sink) Classify(err error) sqlsink.Outcome { return classify(err) }

func classify(err error) sqlsink.Outcome {
	if _, own := errors.AsType[*sqlsink.Misfit](err); own {
		return sqlsink.Rejected
	}
	server, ok := errors.AsType[*driver.MySQLError](err)
	switch {
	case !ok:
		return sqlsink.Unknown
	case slices.Contains(misfits, server.Number), slices.Contains(noBulk, server.Number):
		return sqlsink.Rejected
	}
	switch server.Number {
	case 1020, // record has changed since it was read
		1205, // lock wait timeout
		1213: // deadlock
		return sqlsink.Conflict
	case errDuplicate,
		1118,       // row too large
		1169,       // unique constraint
		1216, 1452, // foreign key
		1526,              // no partition of the table for the value
		1644,              // SIGNAL of a trigger
		3819, failedCheck: // check constraint
		return sqlsink.Rejected
	case 1044, 1045, 1698, // access denied
		1049,       // unknown database
		1054,       // unknown column
		1064, 4161, // syntax; unknown type of a column to create
		1068, 1071, 1170, // impossible key
		1074,             // column too long
		1142, 1143, 1227, // command denied
		1146: // no such table
		return sqlsink.Permanent
	}
	return sqlsink.Unknown
}

func isNumber(err error, numbers ...uint16) bool {
	server, ok := errors.AsType[*driver.MySQLError](err)
	return ok && slices.Contains(numbers, server.Number)
}

// IsDuplicate implements sqlsink.Database.
func (s *Sink) IsDuplicate(err error) bool { return isNumber(err, errDuplicate) }

// Hint implements sqlsink.Database.
func (s *Sink) Hint(err error) string {
	server, ok := errors.AsType[*driver.MySQLError](err)
	if !ok {
		return ""
	}
	database, everywhere := quote(s.config.Database), accountName(s.config.User, "%")
	grant := fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON %s.* TO ", database)
	switch server.Number {
	case 1045, 1698:
		return fmt.Sprintf("check user and password in the configuration, or as an administrator run: "+
			"CREATE USER %s IDENTIFIED BY '…'; %s", everywhere, grant+everywhere)
	case 1044, 1142, 1143, 1227:
		return "as an administrator run: " + grant + cmp.Or(s.account(), everywhere)
	case 1049:
		return fmt.Sprintf("as an administrator run: CREATE DATABASE %s CHARACTER SET utf8mb4", database)
	case 1064, 4161, 1068, 1071, 1074, 1170:
		return "check sql, primary_key and indexes in the configuration, or create the table by hand"
	}
	return "someone changed the tables; restart the pipeline to have them checked"
}

// account returns the account that the server has chosen for us, as statements name it, or
// "" if the server does not answer: 'app'@'127.0.0.1' may exist beside or instead of
// 'app'@'%', and a message of the server names the host of the client instead. It connects
// without the database, which the account may not be allowed to use.
func (s *Sink) account() string {
	connection, compress, err := s.config.connection()
	if err != nil {
		return ""
	}
	connection.DBName = ""
	connector, err := wire.NewConnector(connection, compress)
	if err != nil {
		return ""
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), accountTimeout)
	defer cancel()
	var account string
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&account); err != nil {
		return ""
	}
	at := strings.LastIndexByte(account, '@') // the name may have one, the host has none
	if at < 0 {
		return ""
	}
	return accountName(account[:at], account[at+1:])
}

// accountName quotes an account for a person's session, which may read backslashes in a text
// or not.
func accountName(user, host string) string {
	double := strings.NewReplacer("'", "''")
	return "'" + double.Replace(user) + "'@'" + double.Replace(host) + "'"
}

// causeOf returns why the server rejects the only row of a statement.
func causeOf(err error, columns []event.Column) sqlsink.Cause {
	server, ok := errors.AsType[*driver.MySQLError](err)
	if !ok {
		return sqlsink.Cause{Message: err.Error()}
	}
	c := sqlsink.Cause{Message: strings.TrimSuffix(server.Message, " at row 1"), Column: columnIn(server.Message, columns)}
	c.Misfit = slices.Contains(misfits, server.Number) || server.Number == failedCheck && strings.Contains(server.Message, "."+c.Column+"` failed")
	return c
}

// columnIn returns the column that a message of the server is about, or "". A
// constraint that checks JSON is named after its column.
func columnIn(message string, columns []event.Column) string {
	for _, form := range []string{"olumn '%s'", ".`%s`", ".%s`", "`%s`"} {
		for _, c := range columns {
			if strings.Contains(message, fmt.Sprintf(form, c.Name)) {
				return c.Name
			}
		}
	}
	return ""
}
