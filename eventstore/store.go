//go:build cgo

package eventstore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/durable"
)

const (
	fileName = "events.duckdb"
	// DuckDB's default of 16 MB stops commits for up to 0.4 s every few hundred
	// thousand rows. With this one a restart after kill -9 replays for 1 to 2 s.
	checkpointBytes = 192 << 20
	memoryDefault   = 384 << 20
	tempMax         = "4GB" // what queries may spill to disk

	queryTimeDefault = 10 * time.Minute
)

// Options are the settings of a store. The zero value is good.
type Options struct {
	Memory  int64 // bytes that DuckDB may use for writing and queries together; default 384 MiB
	Threads int   // that one query may use; default: one per core
	Queries int   // that may run at the same time; default 4
	// QueryTime bounds a query, until its Rows are closed; default 10 minutes.
	QueryTime time.Duration
	External  []ExternalTable
}

// A Store is an open event store.
type Store struct {
	folder  string
	options Options
	lock    io.Closer
	db      duck.Database // under queries.gate

	requests chan request
	closing  chan struct{}
	closed   chan struct{} // the writer has ended
	once     sync.Once

	queries queries

	creating sync.Mutex // held while a table is made
	mu       sync.Mutex
	tables   map[string]*Table // by lower-case name

	// The writer's own.
	write    *conn
	log      *os.File // DuckDB's log, if its name is durable; nil before
	segments uint64   // the newest segment's number
	broken   bool     // the database has to be opened again to know what it holds
}

// Open opens the store in folder, which is made if it is missing. The folder
// belongs to this Store until Close.
func Open(folder string, o Options) (*Store, error) {
	if err := durable.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("eventstore: make the folder: %w", err)
	}
	lock, err := lockFolder(folder)
	if err != nil {
		return nil, err
	}
	s := &Store{
		folder: folder, options: o, lock: lock, tables: map[string]*Table{},
		requests: make(chan request), closing: make(chan struct{}), closed: make(chan struct{}),
		queries: newQueries(cmp.Or(o.Queries, 4)),
	}
	err = s.start()
	if err == nil {
		err = s.load()
	}
	if err != nil {
		s.release()
		if at := tornLog.FindStringSubmatch(err.Error()); at != nil {
			body, _ := strconv.ParseInt(at[1], 10, 64)
			return nil, configError(fmt.Sprintf(tornLogHint, body-logEntryHead, s.logPath()), "open %s: %w", folder, err)
		}
		return nil, fmt.Errorf("eventstore: open %s: %w", folder, err)
	}
	go s.writer()
	go s.queries.watchMemory(cmp.Or(o.Memory, memoryDefault)+memoryBeyond, s.closing)
	return s, nil
}

// lockFolder makes this process the owner of folder until the Closer is closed. DuckDB's
// own lock would not do: it does not hold within one process, and two instances on one
// file destroy it.
func lockFolder(folder string) (io.Closer, error) {
	lock, err := datafolder.LockFile(folder, "lock")
	if inUse, ok := errors.AsType[*datafolder.InUseError](err); ok {
		return nil, configError(inUse.ErrorHint(), "%w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("eventstore: %w", err)
	}
	return lock, nil
}

// create creates the database under another name, because one that was begun and not synced
// could never be opened again.
func (s *Store) create() error {
	path := filepath.Join(s.folder, fileName)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := openDuck(fresh, nil)
	if err != nil {
		return err
	}
	duck.Close(&db)
	return os.Rename(fresh, path)
}

// start opens the database.
func (s *Store) start() (err error) {
	if err := s.create(); err != nil {
		return err
	}
	o := s.options
	temp := filepath.Join(s.folder, "temp")
	s.db, err = openDuck(filepath.Join(s.folder, fileName), map[string]string{
		"memory_limit":            strconv.FormatInt(cmp.Or(o.Memory, memoryDefault)>>20, 10) + "MiB",
		"threads":                 strconv.Itoa(cmp.Or(o.Threads, runtime.NumCPU())),
		"temp_directory":          temp,
		"max_temp_directory_size": tempMax,
		// Without them, DuckDB's own allocator keeps what a thread has freed until that
		// thread works again.
		"allocator_background_threads": "true",
		"checkpoint_threshold":         strconv.Itoa(checkpointBytes>>20) + "MiB",
	})
	if err != nil {
		return err
	}
	if s.write, err = connect(s.db); err != nil {
		return err
	}
	if err := s.write.exec(lockdownSQL + metaSQL); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(s.folder), s.syncLog())
}

// tornLog is in DuckDB's message about a log with an entry that is not whole. DuckDB goes on
// without one that is cut off, but not without one of which a sector is missing. It names
// the position behind the size and the checksum of the entry.
var tornLog = regexp.MustCompile(`Corrupt WAL file: entry at byte position (\d+)`)

const (
	logEntryHead = 16
	tornLogHint  = "if the power failed, what the log has from there on was not acknowledged; keep a copy of it, and run: truncate -s %d %s"
)

func (s *Store) logPath() string { return filepath.Join(s.folder, fileName+".wal") }

// syncLog makes DuckDB's log and its name durable when the log is another file than before:
// DuckDB syncs what it writes to the log, and not the folder, and reads a log that a killed
// process had not synced. The log stays open, so that the next one is not taken for it.
func (s *Store) syncLog() error {
	path := s.logPath()
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) { // all is in the database
		return nil
	}
	if err != nil {
		return err
	}
	if s.log != nil {
		if held, err := s.log.Stat(); err == nil && os.SameFile(held, info) {
			return nil
		}
		s.log.Close()
		s.log = nil
	}
	log, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(log.Sync(), durable.SyncDir(s.folder)); err != nil {
		return errors.Join(err, log.Close())
	}
	s.log = log
	return nil
}

// User SQL runs in the same instance, so the whole instance is locked down. When
// segments become files of their own, allowed_directories has to name the
// folder. Columns of type TIMESTAMP are UTC, and so must now() and the
// arithmetic of dates be. A database that is closed because it is broken must
// not write what it believes to hold over what it has logged.
const lockdownSQL = `
PRAGMA disable_checkpoint_on_shutdown;
SET GLOBAL TimeZone = 'UTC';
SET GLOBAL autoinstall_known_extensions = false;
SET GLOBAL autoload_known_extensions = false;
SET GLOBAL allow_community_extensions = false;
SET GLOBAL enable_external_access = false;
SET GLOBAL lock_configuration = true;
`

// The store's own tables. There is no index: they are read whole at open, and
// an index would cost every commit.
const metaSQL = `
CREATE SCHEMA IF NOT EXISTS perigee;
CREATE SCHEMA IF NOT EXISTS segment;
CREATE TABLE IF NOT EXISTS perigee.tables (name VARCHAR, time VARCHAR);
CREATE TABLE IF NOT EXISTS perigee.schemas (name VARCHAR, version UBIGINT, content VARCHAR);
CREATE TABLE IF NOT EXISTS perigee.segments (name VARCHAR, number UBIGINT, version UBIGINT);
CREATE TABLE IF NOT EXISTS perigee.ranges (name VARCHAR, pipeline VARCHAR, part VARCHAR, first UBIGINT, events UBIGINT, committed BIGINT, prints BLOB);
`

// load reads the tables that are there.
func (s *Store) load() error {
	tables, err := s.write.run(`SELECT name, time FROM perigee.tables`)
	if err != nil {
		return err
	}
	for _, row := range tables {
		t := newTable(s, row[0].(string), row[1].(string))
		if err := t.load(); err != nil {
			return fmt.Errorf("table %s: %w", t.name, err)
		}
		s.tables[strings.ToLower(t.name)] = t
	}
	return nil
}

// Close ends the writer after what it has begun, writes the log into the
// database file, and gives the folder free. No Rows may be open.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closing)
		<-s.closed
		s.queries.close()
		s.release()
	})
	return nil
}

func (s *Store) release() {
	if s.write != nil {
		if !s.broken {
			_ = s.write.exec("CHECKPOINT") // what fails is in the log
		}
		s.write.close()
	}
	duck.Close(&s.db)
	if s.log != nil {
		s.log.Close()
	}
	s.lock.Close()
}

// A TableInfo describes a table.
type TableInfo struct {
	Name    string
	Time    string // the time column; "" when there is none
	Version uint64 // of the schema
	Columns []ColumnInfo
}

// A ColumnInfo is a column of a table or of a query's result.
type ColumnInfo struct {
	Name string `json:"name"`
	Type string `json:"type"` // as SQL knows it
}

// Tables describes the tables, sorted by name.
func (s *Store) Tables() []TableInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []TableInfo
	for _, t := range s.tables {
		if info, ok := t.info(); ok {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b TableInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos
}
