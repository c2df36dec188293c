//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	duck "github.com/duckdb/duckdb-go-bindings"
	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// sentGroupRows is DuckDB's default row group size.
const sentGroupRows = 122_880

// parquetHead is the length of a Parquet file's magic number. These bytes are held back until
// more arrive, so that a query that fails at its first row sends no data.
const parquetHead = 4

// sendParquet runs a query and sends its rows as a Parquet file. DuckDB writes the file into
// a pipe: it takes no disk space, and the query runs at the speed of its reader.
func (s *session) sendParquet(q *protocol.Query, params []protocol.Param, in *job) error {
	if q.Limits.Rows > 0 {
		return &event.Fault{Message: "Parquet output does not support a row limit", Hint: "write LIMIT in the SQL"}
	}
	pipe, path, err := s.makePipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer os.Remove(path)
	stmt, err := s.prepareParquet(q.SQL, path)
	if err != nil {
		_ = pipe.Close()
		return err
	}
	sent := make(chan error, 1)
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		go func() { sent <- sendPipe(reader, in) }()
		err = s.run(stmt, params)
	} else {
		sent <- err
	}
	duck.DestroyPrepare(&stmt) // closes DuckDB's end of the pipe if it failed
	_ = pipe.Close()
	if failed := <-sent; err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}

// run executes a statement and discards its result.
func (s *session) run(stmt duck.PreparedStatement, params []protocol.Param) error {
	if err := duckdb.Bind(stmt, params); err != nil {
		return err
	}
	var res duck.Result
	defer duck.DestroyResult(&res)
	if duck.ExecutePrepared(stmt, &res) == duck.StateError {
		return duckdb.NewError(duck.ResultError(&res))
	}
	return nil
}

// makePipe creates a named pipe where DuckDB may write. The returned file holds the pipe open
// until DuckDB has opened it.
func (s *session) makePipe() (*os.File, string, error) {
	folder := s.worker.settings.Temp()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, "", err
	}
	path := filepath.Join(folder, fmt.Sprintf("pipe-%d", s.worker.pipes.Add(1)))
	if err := unix.Mknodat(unix.AT_FDCWD, path, unix.S_IFIFO|0o600, 0); err != nil {
		return nil, "", os.NewSyscallError("mknodat", err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = os.Remove(path)
	}
	return pipe, path, err
}

// prepareParquet prepares a checked statement to write its rows to a file.
func (s *session) prepareParquet(sql, path string) (stmt duck.PreparedStatement, err error) {
	checked, err := s.prepare(sql, true)
	if err != nil {
		return stmt, err
	}
	dictionary := sentGroupRows / 20 // DuckDB's default
	if mayHaveDoubles(checked) {
		dictionary = 0
	}
	duck.DestroyPrepare(&checked)
	parts := sqltext.Split(sql)
	if len(parts) != 1 {
		return stmt, statement.ErrNotReading("only a single reading statement is allowed")
	}
	copied := fmt.Sprintf("COPY (%s\n) TO %s (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE %d, DICTIONARY_SIZE_LIMIT %d, WRITE_BLOOM_FILTER false, USE_TMP_FILE false)", parts[0].SQL, sqltext.Literal(path), sentGroupRows, dictionary)
	if duck.Prepare(s.conn.Native, copied, &stmt) == duck.StateError {
		err = duckdb.NewError(duck.PrepareError(stmt))
		duck.DestroyPrepare(&stmt)
	}
	return stmt, err
}

// mayHaveDoubles reports whether the rows of a statement may have doubles. A dictionary of
// DuckDB merges the two zeros of doubles.
func mayHaveDoubles(stmt duck.PreparedStatement) bool {
	for i := range duck.PreparedStatementColumnCount(stmt) {
		switch duck.PreparedStatementColumnType(stmt, i) {
		case duck.TypeDouble, duck.TypeFloat, duck.TypeList, duck.TypeArray, duck.TypeStruct, duck.TypeMap, duck.TypeUnion, duck.TypeInvalid, duck.TypeAny:
			return true
		}
	}
	return false
}

// sendPipe sends the data of a pipe until its end. If sending fails, it keeps reading, so
// that DuckDB does not block on the pipe forever.
func sendPipe(pipe *os.File, in *job) error {
	defer pipe.Close()
	buffer := make([]byte, 256<<10)
	n, err := io.ReadAtLeast(pipe, buffer, parquetHead+1)
	if n <= parquetHead { // the query failed and reports the error
		_, _ = io.Copy(io.Discard, pipe)
		return err
	}
	failed := in.out.WriteJSON(protocol.ColumnsMessage, []protocol.ResultColumn{})
	for err == nil {
		if failed == nil {
			if failed = in.out.Write(protocol.StreamMessage, buffer[:n]); failed == nil {
				failed = in.out.Flush()
			}
		}
		n, err = pipe.Read(buffer)
	}
	if err != io.EOF {
		return err
	}
	return failed
}
