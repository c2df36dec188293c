//go:build cgo

package eventstore

import (
	"errors"
	"fmt"
	"strings"

	duck "github.com/duckdb/duckdb-go-bindings"
)

// A conn is one connection to DuckDB. It is used by one goroutine at a time,
// except for interrupt. The low-level bindings are used instead of
// database/sql because they write and read column vectors in place, stream
// results, and tell what kind a statement is before it runs.
type conn struct{ c duck.Connection }

func openDuck(path string, settings map[string]string) (duck.Database, error) {
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
	if duck.OpenExt(path, &db, config, &message) == duck.StateError {
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

// run executes one of the store's own statements with parameters and returns
// its rows.
func (c *conn) run(sql string, args ...any) ([][]any, error) {
	var stmt duck.PreparedStatement
	defer func() { duck.DestroyPrepare(&stmt) }()
	if duck.Prepare(c.c, sql, &stmt) == duck.StateError {
		return nil, duckError(duck.PrepareError(stmt))
	}
	for i, arg := range args {
		bind(stmt, duck.IdxT(i+1), arg)
	}
	var res duck.Result
	defer func() { duck.DestroyResult(&res) }()
	if duck.ExecutePrepared(stmt, &res) == duck.StateError {
		return nil, duckError(duck.ResultError(&res))
	}
	types, err := resultTypes(&res)
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for chunk := duck.FetchChunk(res); chunk.Ptr != nil; chunk = duck.FetchChunk(res) {
		for row := range int(duck.DataChunkGetSize(chunk)) {
			rows = append(rows, decodeRow(chunk, types, row))
		}
		duck.DestroyDataChunk(&chunk)
	}
	return rows, nil
}

func bind(stmt duck.PreparedStatement, i duck.IdxT, arg any) {
	switch arg := arg.(type) {
	case string:
		duck.BindVarcharLength(stmt, i, arg, duck.IdxT(len(arg)))
	case uint64:
		duck.BindUInt64(stmt, i, arg)
	case int64:
		duck.BindInt64(stmt, i, arg)
	case []byte:
		duck.BindBlob(stmt, i, arg)
	default:
		panic(fmt.Sprintf("eventstore: no binding for %T", arg))
	}
}

// quote makes an identifier of any name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
