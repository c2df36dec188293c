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
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/eventstore/systemtable"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/durable"
)

// oldFile is the single file of a store in the format before the log.
const oldFile = "events.duckdb"

// tempFolder holds temporary files of workers. A worker's files are garbage after it ends.
const tempFolder = "temp"

const queriesDefault = 16

// Options configure a store. The zero value uses the defaults.
type Options struct {
	Memory  int64 // bytes per query; default catalog.DefaultQueryMemory
	Threads int   // threads per query; default: one per core
	Queries int   // concurrent queries; default 16
	// QueryTime limits the time of a query, until its Rows are closed; default
	// catalog.DefaultQueryTime.
	QueryTime time.Duration
	// Queries that take at least SlowQuery are logged and listed as slow; default 1 s, and less
	// than 0 for none.
	SlowQuery time.Duration
	System    []systemtable.Table // in addition to the built-in system tables
	Log       *slog.Logger        // receives maintenance failures; nil discards them

	// A log file is closed and sealed into a segment when it reaches SegmentBytes
	// (default 64 MiB) or when its first row is SegmentAge old (default 10 minutes).
	SegmentBytes int64
	SegmentAge   time.Duration

	// LakeCache is the disk space, in bytes, for data in lakes that queries read; default 1 GiB.
	LakeCache int64

	// ReadOnly opens even a damaged store, to read the remaining data. It changes nothing
	// in the folder. Store.Damage lists the missing files.
	ReadOnly bool
}

// A Store is an open event store.
type Store struct {
	folder  string
	opening string // ID of this opening; see manifest.Opening
	options Options
	lock    io.Closer
	log     *wal.Log
	worker  *sqlclient.Client
	damage  error // damaged files; nil in an intact store

	queries    queries
	slow       slowQueries
	slots      chan struct{} // limits concurrent queries
	fetching   chan struct{} // limits queries that wait for files of lakes
	closing    chan struct{}
	once       sync.Once
	background sync.WaitGroup
	sealer     chan struct{}   // wakes runSealer
	compactor  chan struct{}   // wakes runCompactor
	publisher  chan struct{}   // wakes runPublisher
	publishing sync.Mutex      // held from the preparation of an order until its report is recorded
	unmerged   map[string]bool // files that need too much memory to merge; protected by compacting
	lakes      lakes

	appends inFlight // appends whose log frames may not be recorded yet

	collecting sync.Mutex // held while garbage is removed

	rewriting sync.RWMutex // read-locked while files are rewritten without deleted rows

	// A restructure of a table holds these locks, in this order. They exclude rewriting
	// and merging files, sealing closed log files, and opening tables.
	compacting, sealing sync.Mutex
	creating            sync.Mutex // held while a table is created
	restructures        inFlight
	reading             inFlight // queries
	released            bool     // the lock is given up; changing protects it
	merging             merging
	unsaved             atomic.Bool // a version that a restructure failed to save may be on disk
	changing            sync.Mutex  // held while the manifest changes; protects manifests and version
	manifests           *manifest.Writer
	version             uint64 // last version saved or attempted

	mu       sync.Mutex
	segment  uint64 // last segment number used
	manifest *manifest.Manifest
	canceled map[uint64]bool   // deletes, by number
	pins     map[pin]int       // number of readers
	garbage  []*garbage        // oldest version first
	changed  chan struct{}     // closed and replaced when the manifest changes or garbage is removed
	tables   map[string]*Table // by lower-case name
	backlog  backlog
	computed map[string][]ComputedColumn // by the lower-case name of a table
}

// Open opens the store in folder and creates the folder if it is missing. The Store owns the
// folder until Close. An *event.PermanentError reports that the folder is damaged, and which
// files are missing; Options.ReadOnly opens it nevertheless.
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
		opening: manifest.NewID(),
		folder:  folder, options: o, lock: lock, manifests: manifest.NewWriter(folder),
		slots: make(chan struct{}, cmp.Or(o.Queries, queriesDefault)), fetching: make(chan struct{}, fetchingFactor*cmp.Or(o.Queries, queriesDefault)), closing: make(chan struct{}), sealer: make(chan struct{}, 1), compactor: make(chan struct{}, 1), publisher: make(chan struct{}, 1),
		unmerged: map[string]bool{}, canceled: map[uint64]bool{}, pins: map[pin]int{}, tables: map[string]*Table{},
	}
	s.changed, s.backlog.changed = make(chan struct{}), make(chan struct{})
	s.options.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s.options.SlowQuery = cmp.Or(o.SlowQuery, slowQueryDefault)
	if err := s.recover(); err != nil {
		s.release()
		return nil, fmt.Errorf("eventstore: open %s: %w", folder, explainDamage(err))
	}
	s.worker = newWorker(folder, &s.options)
	if !o.ReadOnly {
		s.background.Go(s.runSealer)
		s.background.Go(s.runCompactor)
		s.background.Go(s.runPublisher)
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

// recover reads the manifest and the log.
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
	s.adoptFiles()
	for _, t := range m.Tables {
		s.tables[strings.ToLower(t.Name)] = loadTable(s, t)
	}
	s.log, err = wal.Open(manifest.LogFolder(s.folder), wal.Options{
		Store: m.Store, First: m.LogStart, FileSize: s.options.SegmentBytes, FileAge: s.options.SegmentAge, ReadOnly: s.options.ReadOnly,
	}, s.recoverEntry)
	if err != nil {
		return err
	}
	for _, t := range s.tables {
		t.loadLedgers()
	}
	if s.options.ReadOnly {
		return nil
	}
	for _, t := range m.Tables {
		if err := s.tables[strings.ToLower(t.Name)].setUnique(t); err != nil {
			return err
		}
	}
	return nil
}

// loadManifest loads the manifest, or creates an empty one for a new store. It begins a new
// incarnation if the folder is not the one that the store was last opened in.
func (s *Store) loadManifest() (*manifest.Manifest, error) {
	m, err := manifest.Load(s.folder)
	if s.options.ReadOnly {
		return m, err
	}
	if errors.Is(err, os.ErrNotExist) {
		if logs, _ := os.ReadDir(manifest.LogFolder(s.folder)); len(logs) > 0 {
			return nil, &manifest.DamageError{File: filepath.Join(s.folder, "manifest"), Reason: "it is missing, but there is a log"}
		}
		m, err = manifest.New(), nil
	}
	if err != nil {
		return nil, err
	}
	place := manifest.Place(s.folder)
	if m.IsAt(place) {
		return m, nil
	}
	m = m.Clone()
	m.BeginIncarnation(place, time.Now())
	m.Version++
	return m, s.manifests.Save(m)
}

// recoverEntry records a frame found in the log.
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
	change.Range.Fingerprints = slices.Clone(change.Range.Fingerprints)
	t.recordLogged(at.File, e.Schema, change)
	return nil
}

// explainDamage adds advice to an error that reports damage.
func explainDamage(err error) error {
	_, ofFile := errors.AsType[*manifest.DamageError](err)
	_, ofLog := errors.AsType[*wal.DamageError](err)
	if ofFile || ofLog {
		return &event.PermanentError{Err: err, Hint: "put the files back from a backup; opened read-only, the store answers queries over the rest"}
	}
	return err
}

// Damage lists the missing or damaged files of a store that was opened read-only. It returns
// nil if the store is intact.
func (s *Store) Damage() error {
	if lost := s.log.Damage(); len(lost) > 0 {
		return errors.Join(s.damage, &wal.DamageError{Damage: lost})
	}
	return s.damage
}

// change replaces the manifest with a copy that f changes. After an error the store continues
// with the previous version, although readers may see the new one. dropped, unless nil, removes
// the files that the new version drops, once no reader needs them.
func (s *Store) change(f func(next *manifest.Manifest) error, dropped *garbage) error {
	if s.options.ReadOnly {
		return errReadOnly
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.released {
		return ErrClosed
	}
	next := s.current().Clone()
	if err := f(next); err != nil {
		return err
	}
	s.version++
	next.Version = s.version
	s.mu.Lock()
	next.NextSegment = s.segment + 1
	s.mu.Unlock()
	if err := s.manifests.Save(next); err != nil {
		return fmt.Errorf("eventstore: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifest = next
	if dropped != nil {
		dropped.version = next.Version
		s.garbage = append(s.garbage, dropped)
		wake(s.sealer)
	}
	s.signalChange()
	return nil
}

func (s *Store) current() *manifest.Manifest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manifest
}

// Close stops background work and releases the directory lock. Everything that was appended
// is durable in the log. Close all Rows first.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closing)
		s.reading.wait()
		for range cap(s.slots) { // wait for the last Tail
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
	if s.lakes.cache != nil {
		s.lakes.cache.Close()
	}
	if s.worker != nil {
		errs = append(errs, s.worker.Close())
	}
	s.changing.Lock() // another process may own the manifest from now on
	s.released = true
	s.changing.Unlock()
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

// untilClosed returns a context that is canceled with ctx or when the store is closed.
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
