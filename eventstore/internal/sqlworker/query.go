//go:build linux && cgo

package sqlworker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/tableview"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A session is one running request with a database of its own.
type session struct {
	worker   *worker
	ctx      context.Context
	database *database
	conn     *duckdb.Conn // the database's connection
	log      *logscan.View
	views    []*tableview.View
	external []protocol.ExternalTable // created tables
	next     wal.Position             // see outcome
	begun    bool                     // a transaction has begun
	ended    chan struct{}            // stops interruptWhenDone
	watching sync.WaitGroup
	failed   bool // do not reuse the database
}

// newSession takes a database. Close the session after use.
func (w *worker) newSession(ctx context.Context, memory int64) (*session, error) {
	db, err := w.databases.take(memory)
	if err != nil {
		return nil, err
	}
	s := &session{worker: w, ctx: ctx, database: db, conn: db.conn, ended: make(chan struct{})}
	s.watching.Go(s.interruptWhenDone)
	return s, nil
}

// connect opens a further connection to the session's database. Close it before the session.
func (s *session) connect() (*duckdb.Conn, error) {
	c, err := duckdb.Connect(s.database.db)
	if err != nil {
		return nil, err
	}
	if err := c.Exec(searchPathSQL); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// interruptWhenDone interrupts the query once its context is done. It repeats the interrupt,
// because DuckDB forgets one that arrives just before a statement begins.
func (s *session) interruptWhenDone() {
	select {
	case <-s.ctx.Done():
	case <-s.ended:
		return
	}
	for {
		s.conn.Interrupt()
		select {
		case <-time.After(5 * time.Millisecond):
		case <-s.ended:
			return
		}
	}
}

func (s *session) close() {
	close(s.ended)
	s.watching.Wait()
	// If a result is not read to its end, its query still reads the views until the next
	// statement. Rolling back ends it.
	err := s.rollBack()
	s.closeViews()
	s.failed = s.failed || err != nil || s.dropExternal() != nil
	if s.log != nil {
		s.log.Close()
	}
	s.worker.databases.put(s.database, s.failed || s.database.isOutdated(s.worker.settings.Folder, s.worker.manifests.last()))
}

// query answers a query.
func (w *worker) query(ctx context.Context, q *protocol.Query, in *job) error {
	ctx, stop := protocol.WithTimeLimit(ctx, cmp.Or(q.Limits.Time, catalog.DefaultQueryTime))
	defer stop()
	defer context.AfterFunc(ctx, in.setCloseDeadline)()
	s, err := w.newSession(ctx, min(cmp.Or(q.Limits.Memory, catalog.DefaultQueryMemory), w.settings.Memory*3/4))
	if err != nil {
		return err
	}
	defer s.close()
	setScriptCaller(s.database.number, &scriptCaller{ctx: ctx, job: in})
	defer setScriptCaller(s.database.number, nil)
	if err := s.answer(q, in); err != nil {
		s.failed = true
		return s.explainError(err, q.SQL)
	}
	return nil
}

// answer creates the tables that the query reads, and sends its result.
func (s *session) answer(q *protocol.Query, in *job) error {
	if err := s.createExternal(q.External, in); err != nil {
		return err
	}
	parsed, err := s.worker.statements.Parse(s.conn, q.SQL)
	if err != nil {
		return err
	}
	if parsed == nil {
		_, err := s.prepare(q.SQL, false)
		return err
	}
	params := protocol.DecodeParams(q.Params)
	steps, minRows, err := s.chooseSteps(q, parsed, params)
	if err != nil {
		return err
	}
	if q.Parquet {
		steps = steps[len(steps)-1:] // a file is written once
	}
	for i, step := range steps {
		if i == len(steps)-1 {
			minRows = 0
		}
		if files := step.remoteFiles(); len(files) > 0 {
			if i == 0 { // no step before has bound the statement
				err = s.bindLocally(q, params, step)
			}
			if err == nil {
				err = in.fetch(s.ctx, files)
			}
			if err != nil {
				return err
			}
		}
		if err := s.createViews(step); err != nil {
			return err
		}
		done, err := s.execute(q, params, minRows, in)
		if done || err != nil {
			return err
		}
		if err := s.rollBack(); err != nil {
			return err
		}
		s.closeViews()
	}
	return nil
}

// A step is one attempt to answer a query: the rows of each table that it reads.
type step []tableRows

type tableRows struct {
	table *manifest.Table
	rows  tableview.Selection
}

// chooseSteps returns the steps of a query, and the number of rows with which a step but the
// last is enough. A query has several if it needs only the newest rows of a table.
func (s *session) chooseSteps(q *protocol.Query, parsed *statement.Statement, params []protocol.Param) (steps []step, minRows int64, err error) {
	m, err := s.worker.manifests.load(q.Version)
	if err != nil {
		return nil, 0, err
	}
	if s.log, err = s.worker.log.Open(m.LogStart, q.Ends); err != nil {
		return nil, 0, err
	}
	read := slices.DeleteFunc(slices.Clone(m.Tables), func(t *manifest.Table) bool { return !parsed.Reads(t.Name) })
	if err := parsed.CheckOffsets(read, params); err != nil {
		return nil, 0, err
	}
	all := parsed.ReadsUnknown(m, q.External)
	var always step
	for _, t := range m.Tables {
		if !all && !parsed.Reads(t.Name) {
			continue
		}
		b := tableview.FindBounds(s.conn, parsed, t, params)
		from := tableview.Selection{Frames: s.log.Of(t.ID), Files: t.Files, Equal: b.Equal}.Within(t, b)
		from = from.Choose(&s.worker.blooms, s.worker.settings.Folder, t)
		if !parsed.ReadsRows(t.Name) {
			from = from.Local()
		}
		if n := tableview.LatestOf(parsed, t); n > 0 {
			minRows = n
			for _, newest := range from.LatestSteps(n) {
				steps = append(steps, step{{t, newest}})
			}
			continue
		}
		always = append(always, tableRows{t, from})
	}
	if steps == nil {
		steps = []step{nil}
	}
	for i := range steps {
		steps[i] = append(steps[i], always...)
	}
	return steps, minRows, nil
}

// remoteFiles returns the files of a step whose data are in a lake.
func (p step) remoteFiles() (files []protocol.NeededFile) {
	for _, r := range p {
		for _, f := range r.rows.Files {
			if f.Remote != nil {
				files = append(files, protocol.NeededFile{Table: r.table.ID, Name: f.Name})
			}
		}
	}
	return files
}

// bindLocally binds the statement to the rows on disk, so that an invalid statement fails before
// its files are fetched.
func (s *session) bindLocally(q *protocol.Query, params []protocol.Param, p step) error {
	local := slices.Clone(p)
	for i := range local {
		local[i].rows = local[i].rows.Local()
	}
	defer s.closeViews()
	if err := s.createViews(local); err != nil {
		return err
	}
	stmt, err := s.prepare(q.SQL, true)
	if err != nil {
		return err
	}
	defer duck.DestroyPrepare(&stmt)
	return duckdb.Bind(stmt, params)
}

// createViews creates views of the tables with the rows of a step.
func (s *session) createViews(p step) error {
	for _, r := range p {
		if err := s.createView(r.table, r.rows); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) createView(t *manifest.Table, from tableview.Selection) error {
	v, err := tableview.New(s.worker.settings.Folder, t, from, s.database.scanID)
	if err != nil {
		return fmt.Errorf("read table %s: %w", t.Name, err)
	}
	s.views = append(s.views, v)
	s.database.remember(s.worker.settings.Folder, t, from.Files)
	if err := s.database.createView(t.Name, v.SQL()); err != nil {
		if duckdb.IsOutOfMemory(err) {
			return err
		}
		return fmt.Errorf("read table %s: %s", t.Name, err.Error())
	}
	return nil
}

// closeViews releases the data of the tables. All results must be closed.
func (s *session) closeViews() {
	for _, v := range s.views {
		v.Close()
	}
	s.views = nil
}

// execute runs the query and sends its rows. If there are fewer than minRows rows, it sends
// none and returns false.
func (s *session) execute(q *protocol.Query, params []protocol.Param, minRows int64, in *job) (done bool, err error) {
	// The read-only transaction is a second defense after the check of the statement's
	// kind: EXPLAIN ANALYZE, for example, executes the statement that it explains.
	if err := s.conn.Exec("BEGIN TRANSACTION READ ONLY"); err != nil {
		return false, err
	}
	s.begun = true
	if q.Parquet {
		return true, s.sendParquet(q, params, in)
	}
	stmt, err := s.prepare(q.SQL, true)
	if err != nil {
		return false, err
	}
	defer duck.DestroyPrepare(&stmt)
	if err := duckdb.Bind(stmt, params); err != nil {
		return false, err
	}
	return s.send(stmt, q.Limits.Rows, minRows, in)
}

// rollBack ends the transaction, if one has begun.
func (s *session) rollBack() error {
	if !s.begun {
		return nil
	}
	s.begun = false
	return s.conn.Exec("ROLLBACK")
}

// prepare prepares a statement that only reads.
func (s *session) prepare(sql string, parsed bool) (stmt duck.PreparedStatement, err error) {
	var stmts duck.ExtractedStatements
	defer duck.DestroyExtracted(&stmts)
	n := duck.ExtractStatements(s.conn.Native, sql, &stmts)
	if message := duck.ExtractStatementsError(stmts); n == 0 && message != "" {
		return stmt, duckdb.NewError(message)
	}
	if n != 1 || !parsed {
		return stmt, statement.ErrNotReading("only a single reading statement is allowed")
	}
	if duck.PrepareExtractedStatement(s.conn.Native, stmts, 0, &stmt) == duck.StateError {
		err = duckdb.NewError(duck.PrepareError(stmt))
	} else if kind := duck.PreparedStatementType(stmt); kind != duck.StatementTypeSelect && kind != duck.StatementTypeExplain {
		err = statement.ErrNotReading("only reading statements are allowed")
	}
	if err != nil {
		duck.DestroyPrepare(&stmt)
	}
	return stmt, err
}

// send runs a statement and sends its rows, at most limit of them; 0 is no limit. For minRows
// see execute.
func (s *session) send(stmt duck.PreparedStatement, limit, minRows int64, in *job) (done bool, err error) {
	var pending duck.PendingResult
	defer duck.DestroyPending(&pending)
	if duck.PendingPreparedStreaming(stmt, &pending) == duck.StateError {
		return false, duckdb.NewError(duck.PendingError(pending))
	}
	r := &duckdb.Result{}
	defer r.Close()
	if duck.ExecutePending(pending, &r.Native) == duck.StateError {
		return false, duckdb.NewError(duck.ResultError(&r.Native))
	}
	if err := r.Describe(); err != nil {
		return false, err
	}
	var first []arrow.RecordBatch
	if minRows > 0 {
		if first, err = r.ReadAll(); err != nil {
			return false, err
		}
		if countRows(first) < minRows {
			release(first)
			return false, nil
		}
	}
	columns := []protocol.ResultColumn{}
	for i, name := range r.Names {
		columns = append(columns, protocol.ResultColumn{Name: name, Type: r.Types[i]})
	}
	if err := in.out.WriteJSON(protocol.ColumnsMessage, columns); err != nil {
		return false, err
	}
	truncated, err := s.sendRows(r, first, limit, in)
	if err != nil {
		return false, err
	}
	return true, in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{Truncated: truncated, Next: s.next})
}

// sendRows sends the rows read so far and the remaining ones.
func (s *session) sendRows(r *duckdb.Result, first []arrow.RecordBatch, limit int64, in *job) (truncated bool, err error) {
	defer func() { release(first) }()
	next := func() (batch arrow.RecordBatch, err error) {
		if len(first) == 0 {
			return r.Next()
		}
		batch, first = first[0], first[1:]
		return batch, nil
	}
	stream := ipc.NewWriter(arrowPieces{in.out}, ipc.WithSchema(r.Schema))
	for sent := int64(0); ; {
		if err := context.Cause(s.ctx); err != nil {
			return false, err
		}
		batch, err := next()
		if err != nil {
			return false, err
		}
		if batch == nil {
			return truncated, stream.Close()
		}
		rows := batch.NumRows()
		if truncated = limit > 0 && sent+rows > limit; truncated {
			whole := batch
			batch = whole.NewSlice(0, limit-sent)
			whole.Release()
		}
		err = stream.Write(batch)
		batch.Release()
		if err == nil {
			err = in.out.Flush()
		}
		if err != nil {
			return false, err
		}
		if sent += rows; truncated {
			return true, stream.Close()
		}
	}
}

// arrowPieces writes an Arrow IPC stream as a series of messages.
type arrowPieces struct{ out *protocol.Writer }

// Write implements io.Writer.
func (p arrowPieces) Write(b []byte) (int, error) {
	return len(b), p.out.Write(protocol.StreamMessage, b)
}

// explainError returns an error that tells the user why the query ended.
func (s *session) explainError(err error, sql string) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	if duckdb.IsOutOfMemory(err) {
		return protocol.ErrQueryMemory
	}
	return duckdb.ExplainError(err, sql)
}

// createExternal creates tables and fills them with the rows that the parent sends.
func (s *session) createExternal(tables []protocol.ExternalTable, in *job) error {
	inserts := make([]string, len(tables))
	for i, t := range tables {
		types := []byte(`[{`)
		var columns []string
		for j, c := range t.Columns {
			if j > 0 {
				types = append(types, ',')
			}
			types = protocol.AppendString(append(protocol.AppendString(types, c.Name), ':'), c.Type)
			columns = append(columns, sqltext.QuoteName(c.Name)+" "+c.Type)
		}
		types = append(types, `}]`...)
		name := externalName(t)
		if err := s.conn.Exec("CREATE TABLE " + name + " (" + strings.Join(columns, ", ") + ")"); err != nil {
			return err
		}
		s.external = append(s.external, t)
		inserts[i] = "INSERT INTO " + name + " BY NAME SELECT unnest(from_json(CAST(? AS JSON), " + sqltext.Literal(string(types)) + "), max_depth := 2)"
	}
	for {
		index, rows, err := in.nextRows()
		if err != nil || rows == nil {
			return err
		}
		if index >= len(inserts) {
			return protocol.ErrInvalidMessage
		}
		if _, err := s.conn.Run(inserts[index], protocol.Param{Value: string(rows)}); err != nil {
			return fmt.Errorf("copy %s for the query: %w", tables[index].Name, errors.New(err.Error()))
		}
	}
}

// externalName returns the SQL name of an external table.
func externalName(t protocol.ExternalTable) string {
	return "events." + statement.SystemSchema + "." + sqltext.QuoteName(t.Name)
}

// dropExternal drops the external tables.
func (s *session) dropExternal() error {
	for _, t := range s.external {
		if err := s.conn.Exec("DROP TABLE " + externalName(t)); err != nil {
			return err
		}
	}
	return nil
}

func countRows(batches []arrow.RecordBatch) (rows int64) {
	for _, b := range batches {
		rows += b.NumRows()
	}
	return rows
}

func release(batches []arrow.RecordBatch) {
	for _, b := range batches {
		b.Release()
	}
}
