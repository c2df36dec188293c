//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlworker"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/durable"
)

// oldFile is the one file of stores before the log.
const oldFile = "events.duckdb"

// tempFolder is for the files of workers, which none needs after its end.
const tempFolder = "temp"

const (
	queriesDefault   = 16
	queryTimeDefault = 30 * time.Second
	memoryDefault    = 256 << 20
	writersMemory    = 256 << 20 // of the two workers that write files
)

// Options are the settings of a store. The zero value is good.
type Options struct {
	Memory  int64 // bytes that one query may use; default 256 MiB
	Threads int   // that one query may use; default: one per core
	Queries int   // that may run at the same time; default 16
	// QueryTime bounds a query, until its Rows are closed; default 30 s.
	QueryTime time.Duration
	System    []SystemTable // beside those that every store has
	Log       *slog.Logger  // of what maintenance cannot do; default none

	// A segment is what arrives until a file of the log has SegmentBytes, 64 MiB by
	// default, or its first row SegmentAge, 10 minutes by default.
	SegmentBytes int64
	SegmentAge   time.Duration

	// ReadOnly opens a damaged store to read what is left of it. Nothing in the folder is
	// changed. Store.Damage says what is missing.
	ReadOnly bool
}

// A Store is an open event store.
type Store struct {
	folder  string
	options Options
	lock    io.Closer
	log     *wal.Log
	worker  *sqlworker.Client
	damage  error // of files; nil in a store that is sound

	queries    queries
	slots      chan struct{} // of queries
	closing    chan struct{}
	once       sync.Once
	background sync.WaitGroup
	sealer     chan struct{}   // wakes runSealer
	compactor  chan struct{}   // wakes runCompactor
	unmerged   map[string]bool // files too large in memory to be merged; for runCompactor alone
	stuckTime  time.Duration   // see the constant

	appends inFlight // of which frames in the log may not be accounted for yet

	rewriting sync.RWMutex // held for reading while rows go into new files without those of deletes

	// Held, in this order, while a table is restructured: files are rewritten and merged, closed
	// files of the log are sealed, and tables are opened, only at other times.
	compacting, sealing sync.Mutex
	creating            sync.Mutex // held while a table is made
	restructures        inFlight
	unsaved             atomic.Bool // a version that a restructure could not save may be on the disk
	changing            sync.Mutex  // held while the manifest is changed
	version             uint64      // last version that was saved, or of which a Save failed; under changing

	mu       sync.Mutex
	segment  uint64 // last number of a segment that was used
	manifest *manifest.Manifest
	canceled map[uint64]bool   // deletes, by their number
	pins     map[uint64]int    // readers of a version of the manifest
	garbage  []garbage         // oldest version first
	tables   map[string]*Table // by lower-case name
	backlog  backlog
	computed map[string][]ComputedColumn // by the lower-case name of a table
}

// Open opens the store in folder, which is made if it is missing. The folder belongs to
// this Store until Close. An *event.PermanentError says that the folder cannot be trusted,
// and what is missing; Options.ReadOnly opens it all the same.
func Open(folder string, o Options) (*Store, error) {
	folder, err := filepath.Abs(folder) // workers may open files by absolute paths only
	if err != nil {
		return nil, fmt.Errorf("eventstore: find the folder: %w", err)
	}
	if err := durable.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("eventstore: make the folder: %w", err)
	}
	lock, err := lockFolder(folder)
	if err != nil {
		return nil, err
	}
	s := &Store{
		folder: folder, options: o, lock: lock,
		slots: make(chan struct{}, cmp.Or(o.Queries, queriesDefault)), closing: make(chan struct{}), sealer: make(chan struct{}, 1), compactor: make(chan struct{}, 1),
		unmerged: map[string]bool{}, canceled: map[uint64]bool{}, pins: map[uint64]int{}, tables: map[string]*Table{},
	}
	s.stuckTime = stuckTime
	s.backlog.changed = make(chan struct{})
	s.options.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if err := s.recover(); err != nil {
		s.release()
		return nil, fmt.Errorf("eventstore: open %s: %w", folder, explainDamage(err))
	}
	s.worker = newWorker(folder, &s.options)
	if !o.ReadOnly {
		s.background.Go(s.runSealer)
		s.background.Go(s.runCompactor)
	}
	return s, nil
}

// lockFolder makes this process the owner of folder until the Closer is closed.
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

// recover reads manifest and log.
func (s *Store) recover() error {
	if _, err := os.Stat(filepath.Join(s.folder, oldFile)); err == nil {
		return &event.PermanentError{Err: errors.New("the folder holds a store of an earlier perigee, " + oldFile),
			Hint: "export its tables with the version that wrote it (perigee query --format ndjson), then move the folder away"}
	}
	m, err := s.loadManifest()
	if err != nil {
		return err
	}
	s.manifest, s.version, s.segment = m, m.Version, m.NextSegment-1
	if s.damage = m.Verify(s.folder); s.damage != nil && !s.options.ReadOnly {
		return s.damage
	}
	if !s.options.ReadOnly {
		if err := errors.Join(m.RemoveOthers(s.folder), os.RemoveAll(filepath.Join(s.folder, tempFolder))); err != nil {
			return err
		}
	}
	for _, t := range m.Tables {
		s.tables[strings.ToLower(t.Name)] = loadTable(s, t)
	}
	s.log, err = wal.Open(manifest.LogFolder(s.folder), wal.Options{
		Store: m.Store, First: m.LogStart, FileSize: s.options.SegmentBytes, FileAge: s.options.SegmentAge, ReadOnly: s.options.ReadOnly,
	}, s.recoverEntry)
	if err != nil || s.options.ReadOnly {
		return err
	}
	for _, t := range m.Tables {
		if err := s.tables[strings.ToLower(t.Name)].setUnique(t); err != nil {
			return err
		}
	}
	return nil
}

// loadManifest loads the manifest, or makes that of an empty store.
func (s *Store) loadManifest() (*manifest.Manifest, error) {
	m, err := manifest.Load(s.folder)
	if !errors.Is(err, os.ErrNotExist) || s.options.ReadOnly {
		return m, err
	}
	if logs, _ := os.ReadDir(manifest.LogFolder(s.folder)); len(logs) > 0 {
		return nil, &manifest.DamageError{File: filepath.Join(s.folder, "manifest"), Reason: "it is missing, but there is a log"}
	}
	m = manifest.New()
	m.Version = 1
	return m, m.Save(s.folder)
}

// recoverEntry accounts for a frame that the log has.
func (s *Store) recoverEntry(at wal.Position, e *wal.Entry) error {
	known := s.manifest.TableByID(e.Table)
	if s.manifest.WasDropped(e.Table) {
		return nil
	}
	if known == nil || e.Kind == wal.Rows && known.Schema(e.Schema) == nil {
		return &manifest.DamageError{File: filepath.Join(s.folder, "manifest"),
			Reason: fmt.Sprintf("log file %d has rows of table number %d, schema version %d, which it does not know", at.File, e.Table, e.Schema)}
	}
	t := s.tables[strings.ToLower(known.Name)]
	t.mu.Lock()
	defer t.mu.Unlock()
	change := rangeChange(e)
	change.Range.Prints = slices.Clone(change.Range.Prints)
	t.recordCommitted(at.File, e.Schema, change)
	return nil
}

// explainDamage says what to do about damage.
func explainDamage(err error) error {
	_, ofFile := errors.AsType[*manifest.DamageError](err)
	_, ofLog := errors.AsType[*wal.DamageError](err)
	if ofFile || ofLog {
		return &event.PermanentError{Err: err, Hint: "put the files back from a backup; opened read-only, the store answers queries over the rest"}
	}
	return err
}

// Damage says which files are missing or damaged in a store that was opened read-only, and
// is nil if none is.
func (s *Store) Damage() error {
	if lost := s.log.Damage(); len(lost) > 0 {
		return errors.Join(s.damage, &wal.DamageError{Damage: lost})
	}
	return s.damage
}

// change replaces the manifest by what f makes of a copy. After an error, readers may see
// the new version nevertheless, but the store goes on with the one before. Unless it is nil,
// remove is called once no reader needs what the new version has let go of.
func (s *Store) change(f func(next *manifest.Manifest) error, remove func() error) error {
	if s.options.ReadOnly {
		return errReadOnly
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	next := s.current().Clone()
	if err := f(next); err != nil {
		return err
	}
	s.version++
	next.Version = s.version
	s.mu.Lock()
	next.NextSegment = s.segment + 1
	s.mu.Unlock()
	if err := next.Save(s.folder); err != nil {
		return fmt.Errorf("eventstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifest = next
	if remove != nil {
		s.garbage = append(s.garbage, garbage{next.Version, remove})
		wake(s.sealer)
	}
	return nil
}

func (s *Store) current() *manifest.Manifest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manifest
}

// Close ends what runs and gives the folder free. Everything that was appended is in the
// log. No Rows may be open.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closing)
		for range cap(s.slots) { // until the last query has ended
			s.slots <- struct{}{}
		}
		s.background.Wait()
		s.restructures.wait()
		s.appends.wait()
		err = s.release()
	})
	return err
}

func (s *Store) release() error {
	var errs []error
	if s.worker != nil {
		errs = append(errs, s.worker.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

func (s *Store) isClosed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// untilClosed returns a context that ends with ctx or when the store is closed.
func (s *Store) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.closing:
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// A TableInfo describes a table.
type TableInfo struct {
	Name    string
	Time    string // the time column; "" when there is none
	Version uint64 // of the schema
	Columns []ColumnInfo
}

// A ColumnInfo is a column of a table or of a query's result.
type ColumnInfo = protocol.Column

// Tables describes the tables, sorted by name.
func (s *Store) Tables() []TableInfo { return tablesOf(s.current()) }

func tablesOf(m *manifest.Manifest) []TableInfo {
	var infos []TableInfo
	for _, t := range m.Tables {
		schema := t.Current()
		info := TableInfo{Name: t.Name, Time: t.Time, Version: schema.Version}
		for _, c := range schema.Columns {
			info.Columns = append(info.Columns, ColumnInfo{Name: c.Name, Type: c.SQLType()})
		}
		if schema.Rest {
			info.Columns = append(info.Columns, ColumnInfo{Name: restColumn, Type: "JSON"})
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b TableInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos
}
