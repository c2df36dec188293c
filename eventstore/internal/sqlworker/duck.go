//go:build linux && cgo

package sqlworker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"

	"github.com/apache/arrow-go/v18/arrow"
	duck "github.com/duckdb/duckdb-go-bindings"
)

// A conn is one connection to DuckDB. It is used by one goroutine at a time,
// except for interrupt. The low-level bindings are used instead of
// database/sql because they stream results, hand them over as Arrow, and tell
// what kind a statement is before it runs.
type conn struct {
	c       duck.Connection
	spelled map[string]string // see spell
}

func openDuck(settings map[string]string) (duck.Database, error) {
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

func connect(db duck.Database) (*conn, error) {
	c := &conn{}
	if duck.Connect(db, &c.c) == duck.StateError {
		return nil, errors.New("cannot connect to the database: out of memory")
	}
	return c, nil
}

func (c *conn) close()     { duck.Disconnect(&c.c) }
func (c *conn) interrupt() { duck.Interrupt(c.c) }

// exec runs statements whose results do not matter.
func (c *conn) exec(sql string) error {
	var res duck.Result
	defer duck.DestroyResult(&res)
	if duck.Query(c.c, sql, &res) == duck.StateError {
		return duckError(duck.ResultError(&res))
	}
	return nil
}

// run executes one of the worker's own statements and returns its rows.
func (c *conn) run(sql string, params ...protocol.Param) ([][]any, error) {
	var stmt duck.PreparedStatement
	defer func() { duck.DestroyPrepare(&stmt) }()
	if duck.Prepare(c.c, sql, &stmt) == duck.StateError {
		return nil, duckError(duck.PrepareError(stmt))
	}
	if err := bind(stmt, params); err != nil {
		return nil, err
	}
	result := &result{}
	defer result.close()
	if duck.ExecutePrepared(stmt, &result.res) == duck.StateError {
		return nil, duckError(duck.ResultError(&result.res))
	}
	if err := result.describe(); err != nil {
		return nil, err
	}
	var rows [][]any
	for {
		batch, err := result.next()
		if batch == nil || err != nil {
			return rows, err
		}
		for i := range int(batch.NumRows()) {
			rows = append(rows, decodeRow(batch, result.types, i))
		}
		batch.Release()
	}
}

// A streaming is a statement whose rows are read as they come.
type streaming struct {
	stmt    duck.PreparedStatement
	pending duck.PendingResult
	result  result
}

// open begins a statement. Close what it returns before the next statement of the connection.
func (c *conn) open(sql string) (*streaming, error) {
	s := &streaming{}
	var err error
	switch {
	case duck.Prepare(c.c, sql, &s.stmt) == duck.StateError:
		err = duckError(duck.PrepareError(s.stmt))
	case duck.PendingPreparedStreaming(s.stmt, &s.pending) == duck.StateError:
		err = duckError(duck.PendingError(s.pending))
	case duck.ExecutePending(s.pending, &s.result.res) == duck.StateError:
		err = duckError(duck.ResultError(&s.result.res))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *streaming) close() {
	s.result.close()
	duck.DestroyPending(&s.pending)
	duck.DestroyPrepare(&s.stmt)
}

// stream calls each for the rows of a statement, many at a time.
func (c *conn) stream(sql string, each func(arrow.RecordBatch) error) error {
	s, err := c.open(sql)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.result.describe(); err != nil {
		return err
	}
	for {
		batch, err := s.result.next()
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

// bind gives a statement the values of its parameters.
func bind(stmt duck.PreparedStatement, params []protocol.Param) error {
	if have, want := len(params), int(duck.NParams(stmt)); have != want {
		return &protocol.QueryError{Message: fmt.Sprintf("the query has %d parameters, and %d values are given", want, have)}
	}
	for i, p := range params {
		index := duck.IdxT(i + 1)
		if p.Name != "" && duck.BindParameterIndex(stmt, &index, p.Name) == duck.StateError {
			return &protocol.QueryError{Message: "the query has no parameter $" + p.Name}
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
			return fmt.Errorf("sqlworker: no binding for %T", value)
		}
		if state == duck.StateError {
			return duckError(duck.PrepareError(stmt))
		}
	}
	return nil
}

// literal makes a string literal of any text.
func literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
