//go:build linux && cgo

package eventservice

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/fileimport"
	"github.com/perigeedb/perigee/eventstore/lakecatalog"
	"github.com/perigeedb/perigee/eventstore/output"
	"github.com/perigeedb/perigee/eventstore/queryhttp"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/sink"
	eventsink "github.com/perigeedb/perigee/sink/eventstore"
)

// Available returns nil, because this build has an event store.
func Available() (err error) { return nil }

// RunWorker runs a worker of the event store if this process was started as one; it does not
// return then. Call it first in main: the store starts copies of the program for queries.
func RunWorker() { eventstore.RunWorker() }

// Version returns the version of the library that answers queries.
func Version() []string { return []string{eventstore.Version()} }

// StoreFormats describes the format versions of the event store. It is "" without one.
func StoreFormats() string { return eventstore.DataFormats() }

// Functions returns the functions that queries may call.
func Functions() []catalog.FunctionGroup { return eventstore.Functions() }

// Macros returns the macros that queries may call.
func Macros() []catalog.Macro { return eventstore.Macros() }

// A Store is the event store of one engine. It opens its files on first use, so they cost
// nothing in an engine that does not use them. A Store is safe for concurrent use.
type Store struct {
	elsewhere   *elsewhere // nil in the engine of the data folder
	mu          sync.Mutex
	folder      string              // empty until known
	deadLetters *deadletter.Store   // nil until their file exists
	host        *engine.Host        // nil without a running engine
	tables      []config.Table      // declared tables
	writers     map[string][]string // pipelines by the lower-case name of their table
	undeclared  map[string]bool     // tables that this store has created, until their first rows
	functions   []eventstore.Function
	computed    []eventstore.ComputedColumn
	log         *slog.Logger // nil before Start
	opened      *eventstore.Store
	query       config.Query
	listener    *listener                         // nil without listen
	imports     map[[2]string]*fileimport.Import  // by table and file
	writing     map[partitionKey]*remotePartition // of other processes
	closing     <-chan struct{}                   // closed when the engine starts to close
}

var _ engine.Service = (*Store)(nil)

// Kinds returns the kind of sink that writes to the store.
func (s *Store) Kinds() []sink.Kind {
	kind := eventsink.Kind(s.openTable, s.reportUndeclared)
	create := kind.New
	kind.New = func(env sink.Env, decode func(any) error) (sink.Sink, error) {
		if s.elsewhere != nil && s.elsewhere.remote {
			return s.newRemoteSink(env, decode)
		}
		s.setData(env.Data)
		return create(env, decode)
	}
	return []sink.Kind{kind}
}

func (s *Store) setData(data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.elsewhere != nil {
		data = s.elsewhere.data
	}
	s.folder = filepath.Join(data, folderName)
}

// Start implements engine.Service: it answers queries on the engine's socket.
func (s *Store) Start(h engine.Host) error {
	s.setData(h.Data)
	s.host, s.deadLetters, s.log, s.query, s.closing = &h, h.DeadLetters, h.Log, h.Query, h.Closing
	h.Handle("POST /query", s.handler(eventstore.Limits{}))
	s.handleOperations(h.Handle)
	if h.Query.Listen == "" {
		return nil
	}
	limits := eventstore.Limits{Time: cmp.Or(h.Query.Time, catalog.DefaultQueryTime)}
	l, err := listen(h.Query, s.handler(limits), h.States, lakecatalog.Handler(s.lakeTables, h.Log), h.Log)
	s.listener = l
	return err
}

// lakeTables lists the tables in lakes without a catalog of their own.
func (s *Store) lakeTables() (tables []lakecatalog.Table, err error) {
	if _, err := os.Stat(s.folder); err != nil {
		return nil, nil
	}
	store, err := s.open()
	if err != nil {
		return nil, err
	}
	for _, state := range store.LakeStates() {
		if state.Catalog == "" && state.Metadata != "" {
			tables = append(tables, lakecatalog.Table{Name: state.LakeTable, Metadata: state.Metadata})
		}
	}
	return tables, nil
}

// Address returns the HTTP address for SQL, or nil.
func (s *Store) Address() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.address
}

// Close implements engine.Service.
func (s *Store) Close() error {
	var err error
	if s.listener != nil {
		err = s.listener.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != nil {
		err = errors.Join(err, s.opened.Close())
		s.opened = nil
	}
	return errors.Join(err, s.elsewhere.close())
}

func (s *Store) open() (*eventstore.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == nil {
		opened, err := eventstore.Open(s.folder, s.options())
		if err != nil {
			return nil, err
		}
		s.opened, s.undeclared = opened, map[string]bool{}
		s.setFunctions()
		s.declareTables()
	}
	return s.opened, nil
}

func (s *Store) options() (o eventstore.Options) {
	o.Log, o.Memory, o.QueryTime, o.SlowQuery = s.log, int64(s.query.Memory), s.query.Time, s.query.Slow
	o.LakeCache = int64(s.query.LakeCache)
	o.System = s.systemTables()
	return o
}

// openExisting opens the store, and fails if it does not exist.
func (s *Store) openExisting() (*eventstore.Store, error) {
	if _, err := os.Stat(s.folder); err != nil {
		return nil, event.WithHint(fmt.Errorf("no event store: %w", err),
			"name the engine's data folder with --data, or its configuration with --config")
	}
	return s.open()
}

// openFor opens the store for a query. If it does not exist, an empty store answers queries
// about system tables.
func (s *Store) openFor(sql string) (store *eventstore.Store, release func() error, err error) {
	_, absent := os.Stat(s.folder)
	if absent == nil || s.deadLetters == nil || !s.readsSystemTable(sql) {
		store, err = s.openExisting()
		return store, func() error { return nil }, err
	}
	folder, err := os.MkdirTemp("", "perigee-query-")
	if err != nil {
		return nil, nil, fmt.Errorf("create a folder for the query: %w", err)
	}
	store, err = eventstore.Open(folder, s.options())
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	return store, func() error { return errors.Join(store.Close(), os.RemoveAll(folder)) }, nil
}

// handler answers SQL within limits.
func (s *Store) handler(limits eventstore.Limits) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sql bytes.Buffer // a longer text stays in the body, and the handler refuses it
		io.Copy(&sql, io.LimitReader(r.Body, sqlPrefixMax))
		r.Body = io.NopCloser(io.MultiReader(&sql, r.Body))
		store, release, err := s.openFor(sql.String())
		if err != nil {
			admin.Handler(func(io.Writer, *http.Request) error { return err }).ServeHTTP(w, r)
			return
		}
		defer release()
		queryhttp.Handler(store, limits).ServeHTTP(w, r)
	})
}

const sqlPrefixMax = 1 << 20

// answer answers a query.
func (s *Store) answer(ctx context.Context, q Request, out io.Writer) error {
	s.query.Memory = int(q.Memory)
	store, release, err := s.openFor(q.SQL)
	if err != nil {
		return err
	}
	return errors.Join(writeRows(ctx, store, q, out), release())
}

// withStore calls use with the store of a data folder in which no engine runs.
func withStore(data string, use func(folderStore) error) (err error) {
	s := &Store{folder: filepath.Join(data, folderName)}
	_, noEvents := os.Stat(s.folder)
	_, noDeadLetters := os.Stat(filepath.Join(data, deadletter.FileName))
	if noEvents == nil || noDeadLetters == nil {
		lock, err := datafolder.Lock(data)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	if noDeadLetters == nil {
		if s.deadLetters, err = deadletter.Open(data); err != nil {
			return err
		}
		defer s.deadLetters.Close()
	}
	return errors.Join(use(s), s.Close())
}

func writeRows(ctx context.Context, store *eventstore.Store, q Request, out io.Writer) error {
	statement := eventstore.Statement{
		SQL: q.SQL, Format: eventstore.Format(q.Format), Shown: q.Shown, Limits: eventstore.Limits{Rows: q.Rows, Time: q.Time}, Client: "perigee query",
	}
	for _, p := range q.Params {
		name, text, _ := strings.Cut(p, "=")
		parsed, err := queryhttp.ParseParam(name, text)
		if err != nil {
			return err
		}
		statement.Params = append(statement.Params, parsed)
	}
	rows, err := store.Execute(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	return output.Write(out, rows)
}

func (s *Store) readIDs(ctx context.Context, table, column string, each func(id uint64)) error {
	store, err := s.openExisting()
	if err != nil {
		return err
	}
	rows, err := store.Query(ctx, fmt.Sprintf("SELECT %q FROM %q", column, table))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		id, ok := rows.Row()[0].(int64)
		if !ok {
			return fmt.Errorf("column %s of a row is %v, not a whole number", column, rows.Row()[0])
		}
		each(uint64(id))
	}
	return rows.Err()
}
