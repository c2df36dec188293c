//go:build linux && cgo

// Package duckdb wraps DuckDB for the SQL workers. It provides connections, results as Arrow,
// and errors with their position in the SQL. It uses the low-level bindings instead of
// database/sql, because they stream results, return them as Arrow, and report the kind of a
// statement before it runs.
//
// A Conn is not safe for concurrent use, except for Interrupt.
package duckdb

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// A Conn is one connection to DuckDB.
type Conn struct {
	Native   duck.Connection
	deparsed map[string]string // see Deparse
}

// Open opens an in-memory database with the given settings. The caller closes it with the
// bindings.
func Open(settings map[string]string) (duck.Database, error) {
	var config duck.Config
	if duck.CreateConfig(&config) == duck.StateError {
		return duck.Database{}, errors.New("out of memory")
	}
	defer duck.DestroyConfig(&config)
	for name, value := range settings {
		if duck.SetConfig(config, name, value) == duck.StateError {
			return duck.Database{}, fmt.Errorf("setting %s does not take %q", name, value)
		}
	}
	var db duck.Database
	var message string
	if duck.OpenExt(":memory:", &db, config, &message) == duck.StateError {
		return db, errors.New(message)
	}
	return db, nil
}

// Connect opens a connection to a database.
func Connect(db duck.Database) (*Conn, error) {
	c := &Conn{}
	if duck.Connect(db, &c.Native) == duck.StateError {
		return nil, errors.New("cannot connect to the database: out of memory")
	}
	return c, nil
}

// Close closes the connection. Close its results first.
func (c *Conn) Close() { duck.Disconnect(&c.Native) }

// Interrupt interrupts the running statement. It is safe to call from any goroutine.
func (c *Conn) Interrupt() { duck.Interrupt(c.Native) }

// Exec executes statements and discards their results.
func (c *Conn) Exec(sql string) error {
	var res duck.Result
	defer duck.DestroyResult(&res)
	if duck.Query(c.Native, sql, &res) == duck.StateError {
		return NewError(duck.ResultError(&res))
	}
	return nil
}

// Run executes one of the worker's own statements and returns its rows.
func (c *Conn) Run(sql string, params ...protocol.Param) ([][]any, error) {
	var stmt duck.PreparedStatement
	defer func() { duck.DestroyPrepare(&stmt) }()
	if duck.Prepare(c.Native, sql, &stmt) == duck.StateError {
		return nil, NewError(duck.PrepareError(stmt))
	}
	if err := Bind(stmt, params); err != nil {
		return nil, err
	}
	result := &Result{}
	defer result.Close()
	if duck.ExecutePrepared(stmt, &result.Native) == duck.StateError {
		return nil, NewError(duck.ResultError(&result.Native))
	}
	if err := result.Describe(); err != nil {
		return nil, err
	}
	var rows [][]any
	for {
		batch, err := result.Next()
		if batch == nil || err != nil {
			return rows, err
		}
		for i := range int(batch.NumRows()) {
			rows = append(rows, decodeRow(batch, result.Types, i))
		}
		batch.Release()
	}
}

// A Streaming is a running statement. Its rows are read as they arrive.
type Streaming struct {
	stmt    duck.PreparedStatement
	pending duck.PendingResult
	Result  Result
}

// Open starts a statement. Close the returned Streaming before the next statement of the
// connection.
func (c *Conn) Open(sql string) (*Streaming, error) {
	s := &Streaming{}
	var err error
	switch {
	case duck.Prepare(c.Native, sql, &s.stmt) == duck.StateError:
		err = NewError(duck.PrepareError(s.stmt))
	case duck.PendingPreparedStreaming(s.stmt, &s.pending) == duck.StateError:
		err = NewError(duck.PendingError(s.pending))
	case duck.ExecutePending(s.pending, &s.Result.Native) == duck.StateError:
		err = NewError(duck.ResultError(&s.Result.Native))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close frees the statement and its rows.
func (s *Streaming) Close() {
	s.Result.Close()
	duck.DestroyPending(&s.pending)
	duck.DestroyPrepare(&s.stmt)
}

// Stream calls each for the rows of a statement, in batches.
func (c *Conn) Stream(sql string, each func(arrow.RecordBatch) error) error {
	s, err := c.Open(sql)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Result.Describe(); err != nil {
		return err
	}
	for {
		batch, err := s.Result.Next()
		if batch == nil || err != nil {
			return err
		}
		err = each(batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
}

// Bind binds the parameter values of a statement.
func Bind(stmt duck.PreparedStatement, params []protocol.Param) error {
	if have, want := len(params), int(duck.NParams(stmt)); have != want {
		return &event.Fault{Message: fmt.Sprintf("the query has %d parameters, and %d values are given", want, have)}
	}
	for i, p := range params {
		index := duck.IdxT(i + 1)
		if p.Name != "" && duck.BindParameterIndex(stmt, &index, p.Name) == duck.StateError {
			return &event.Fault{Message: "the query has no parameter $" + p.Name}
		}
		state := duck.StateError
		switch value := p.Value.(type) {
		case nil:
			state = duck.BindNull(stmt, index)
		case bool:
			state = duck.BindBoolean(stmt, index, value)
		case int64:
			state = duck.BindInt64(stmt, index, value)
		case float64:
			state = duck.BindDouble(stmt, index, value)
		case string:
			state = duck.BindVarcharLength(stmt, index, value, duck.IdxT(len(value)))
		case []byte:
			state = duck.BindBlob(stmt, index, value)
		case time.Time:
			state = duck.BindTimestamp(stmt, index, duck.NewTimestamp(value.UnixMicro()))
		case protocol.TimestampNS:
			bound := duck.CreateTimestampNS(duck.NewTimestampNS(int64(value)))
			state = duck.BindValue(stmt, index, bound)
			duck.DestroyValue(&bound)
		default:
			return fmt.Errorf("duckdb: no binding for %T", value)
		}
		if state == duck.StateError {
			return NewError(duck.PrepareError(stmt))
		}
	}
	return nil
}

// deparsedMax is the maximum number of syntax trees in a connection's cache.
const deparsedMax = 64

// Deparse returns the SQL of a syntax tree from json_serialize_sql. It caches the most recent
// results.
func (c *Conn) Deparse(tree string) (sql string, err error) {
	if sql, known := c.deparsed[tree]; known {
		return sql, nil
	}
	found, err := c.Run(`SELECT json_deserialize_sql(CAST(? AS JSON))`, protocol.Param{Value: tree})
	if err != nil {
		return "", err
	}
	if c.deparsed == nil || len(c.deparsed) >= deparsedMax {
		c.deparsed = map[string]string{}
	}
	sql = protocol.Text(found[0][0])
	c.deparsed[tree] = sql
	return sql, nil
}
