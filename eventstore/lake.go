//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/lakecache"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/publishing"
	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/durable"
)

const (
	// lakeCacheDefault is the default of Options.LakeCache.
	lakeCacheDefault = 1 << 30
	// A query that needs files of a lake asks for a new report if the last one is older than
	// lookAge: other engines may have deleted rows there meanwhile. lookTime bounds how long that
	// may take.
	lookAge  = time.Minute
	lookTime = 20 * time.Second
	// fetchingFactor is the number of queries that may wait for files of lakes for each one that may run.
	fetchingFactor = 4
	// unreadAge is how long the state of a lake shows that data could not be read.
	unreadAge = time.Hour
	// A file that maintenance could not fetch is fetched again after maintenanceRetry, and each time
	// after twice as long, up to fetchRetryMax.
	fetchRetryMax = 5 * time.Minute
	// leavingMax is the maximum number of files of a table that leave the disk in one round, and
	// leaveTime bounds how long that takes.
	leavingMax = 64
	leaveTime  = 5 * time.Minute
)

// A lakes holds what the store knows of its lakes besides the manifest.
type lakes struct {
	cache   *lakecache.Cache
	looking chan struct{} // has an element while the committer looks at tables
	checked bool          // whether the committer has been looked for; Store.publishing protects it

	mu       sync.Mutex
	looked   map[uint32]time.Time  // when the committer last reported of a table
	failed   map[uint32]failedLook // the last look at a table that failed
	orders   int                   // number of orders that it was given
	running  int                   // of these
	returned map[string]bool       // paths of files that came back and whose footers readers may still need
	fetches  map[uint32]*lakeFetch // for maintenance, by table
}

// A failedLook is a look that failed. Callers that waited for it return its error.
type failedLook struct {
	at  time.Time
	err error
}

// runPublisher publishes tables in their lakes until the store is closed, at most once a minute.
// Then it lets data leave the disk that the lakes have.
func (s *Store) runPublisher() {
	ctx, cancel := s.untilClosed(context.Background())
	defer cancel()
	for !s.isClosed() {
		now := time.Now()
		if err := errors.Join(s.publish(ctx, now), s.leave(ctx, now)); err != nil && !s.isClosed() { // tables have lakes of their own
			s.logErrors("event store: publishing failed, will retry", err)
		}
		s.pause(nil, s.publisher)
	}
}

// CheckCommitter checks that the program that publishes tables is installed and has the version
// of this one.
func CheckCommitter(ctx context.Context) error { return publishing.CheckProgram(ctx) }

// CheckLakes tests whether the catalogs and the warehouses of lakes can be used. The result has an
// error or nil for each of them. It changes nothing.
func CheckLakes(ctx context.Context, all []catalog.Lake) []error {
	settings := make([]lake.Settings, len(all))
	for i, l := range all {
		settings[i] = lake.Settings{Warehouse: l.Warehouse, Catalog: l.Catalog, Table: l.Table}
	}
	return publishing.Check(ctx, settings)
}

// errUnchanged ends a change of the manifest that is not needed.
var errUnchanged = errors.New("nothing has changed")

// publish orders the committer to add what the lakes are missing, if anything.
func (s *Store) publish(ctx context.Context, now time.Time) error {
	begun := time.Now()
	if !slices.ContainsFunc(s.current().Tables, func(t *manifest.Table) bool { return t.Lake != nil }) {
		return nil
	}
	s.publishing.Lock() // a later order must not reach the committer first
	defer s.publishing.Unlock()
	if !s.lakes.checked { // files are due only after some minutes
		s.lakes.checked = true
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		if err := publishing.CheckProgram(ctx); err != nil && !s.isClosed() {
			s.options.Log.Warn("event store: tables cannot be published in their lakes", "error", err, "hint", event.HintOf(err))
		}
	}
	var order *lake.Order
	s.compacting.Lock()              // a merge must know which files are ordered
	now = now.Add(time.Since(begun)) // files were sealed meanwhile
	err := s.change(func(next *manifest.Manifest) error {
		if order = publishing.Prepare(next, s.folder, s.opening, now); order == nil {
			return errUnchanged
		}
		return nil
	}, nil)
	s.compacting.Unlock()
	if order == nil || err != nil {
		if errors.Is(err, errUnchanged) {
			err = nil
		}
		return err
	}
	defer s.lakes.begin()()
	report, failed := s.askCommitter(ctx, order)
	if failed != nil && s.isClosed() { // the next order reports the outcome of this one
		return failed
	}
	for i, r := range report.Tables {
		if i < len(order.Tables) && r.UUID != "" && order.Tables[i].UUID != "" && r.UUID != order.Tables[i].UUID {
			s.options.Log.Warn("event store: the lake table is another one than before: all rows are published again", "lake table", r.Table, "location", r.Location)
		}
		if len(r.Gone) > 0 {
			s.options.Log.Warn("event store: another engine has rewritten files in the lake: they are not published again", "lake table", r.Table, "files", len(r.Gone))
		}
		s.logTidied(&r)
	}
	return errors.Join(failed, s.applyReport(order, report, now))
}

// logTidied logs what the committer has tidied of a lake table.
func (s *Store) logTidied(r *lake.TableReport) {
	switch t := r.Tidied; {
	case t == nil:
	case t.Error != "":
		s.options.Log.Warn("event store: the lake could not be tidied, will retry", "lake table", r.Table, "error", t.Error, "hint", t.Hint)
	case len(t.Refused) > 0:
		s.options.Log.Warn("event store: objects of the lake could not be removed", "lake table", r.Table, "objects", t.Refused)
	default:
		s.options.Log.Info("event store: the lake was tidied", "lake table", r.Table, "snapshots", t.Kept, "expired", t.Expired, "objects removed", t.Objects, "bytes", t.Bytes)
	}
}

// begin counts an order that changes lakes.
func (l *lakes) begin() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders++
	l.running++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running--
	}
}

// askCommitter gives an order to the committer. An error is also in the report.
func (s *Store) askCommitter(ctx context.Context, order *lake.Order) (*lake.Report, error) {
	for _, t := range s.current().Tables {
		if slices.ContainsFunc(order.Tables, func(o lake.TableOrder) bool { return publishing.IsOf(t, &o) }) {
			defer s.keepFiles(t.ID)()
		}
	}
	report, failed := publishing.Run(ctx, order)
	if failed != nil {
		report = &lake.Report{}
		for _, o := range order.Tables {
			report.Tables = append(report.Tables, lake.TableReport{Table: o.Table, Error: failed.Error(), Hint: event.HintOf(failed)})
		}
		return report, failed
	}
	for _, r := range report.Tables {
		if r.Error != "" {
			failed = errors.Join(failed, &event.PermanentError{Err: fmt.Errorf("lake table %s: %s", r.Table, r.Error), Hint: r.Hint})
		}
	}
	return report, failed
}

// applyReport records a report in the manifest.
func (s *Store) applyReport(order *lake.Order, report *lake.Report, now time.Time) error {
	err := s.change(func(next *manifest.Manifest) error {
		if publishing.Apply(next, order, report, time.Now()) {
			next.BeginAfterSetBack(time.Now())
		} else if sameLakes(s.current(), next) {
			return errUnchanged
		}
		return nil
	}, nil)
	wake(s.compactor) // published files can be rewritten for a wider column
	if err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	s.lakes.mu.Lock()
	defer s.lakes.mu.Unlock()
	for i := range report.Tables {
		for _, t := range s.current().Tables {
			if report.Tables[i].Error == "" && publishing.IsOf(t, &order.Tables[i]) {
				s.lakes.looked[t.ID] = now
			}
		}
	}
	return nil
}

// sameLakes reports whether two versions of the manifest have the same lake metadata and files.
func sameLakes(a, b *manifest.Manifest) bool {
	return slices.EqualFunc(a.Tables, b.Tables, func(a, b *manifest.Table) bool {
		return reflect.DeepEqual(a.Lake, b.Lake) && slices.Equal(a.Files, b.Files)
	})
}

// look asks the committer for a report on the tables whose last report is older than lookAge.
func (s *Store) look(parent context.Context, tables []uint32) error {
	ctx, cancel := context.WithTimeoutCause(parent, lookTime, fmt.Errorf("no answer within %v", lookTime))
	defer cancel()
	begun := time.Now()
	if len(s.lakes.unseen(tables)) == 0 {
		return nil
	}
	select {
	case s.lakes.looking <- struct{}{}:
		defer func() { <-s.lakes.looking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	old := s.lakes.unseen(tables)
	if len(old) == 0 {
		return nil
	}
	old, failed := s.lakes.withoutFailed(old, begun)
	if len(old) == 0 {
		return failed
	}
	s.lakes.mu.Lock()
	orders, running := s.lakes.orders, s.lakes.running
	s.lakes.mu.Unlock()
	now := time.Now()
	order := publishing.Look(s.current(), s.folder, old)
	report, err := s.askCommitter(ctx, order)
	s.lakes.mu.Lock()
	alone := running == 0 && orders == s.lakes.orders
	s.lakes.mu.Unlock()
	for i := range report.Tables {
		if !alone {
			publishing.KeepOthers(s.current(), &order.Tables[i], &report.Tables[i])
		}
	}
	err = errors.Join(err, s.applyReport(order, report, now))
	if err != nil && parent.Err() == nil {
		s.lakes.fail(s.lakes.unseen(old), err)
	}
	return errors.Join(failed, err)
}

// withoutFailed leaves out the tables at which a look has failed since a time, and returns its errors.
func (l *lakes) withoutFailed(tables []uint32, since time.Time) (others []uint32, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range tables {
		if look, found := l.failed[id]; found && look.at.After(since) {
			failed = errors.Join(failed, look.err)
		} else {
			others = append(others, id)
		}
	}
	return others, failed
}

func (l *lakes) fail(tables []uint32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range tables {
		l.failed[id] = failedLook{time.Now(), err}
	}
}

// lakeState describes how far a table with a lake is published, and why its data could not be read there.
func (s *Store) lakeState(t *manifest.Table) catalog.LakeState {
	state := publishing.State(t, time.Now())
	if state.Error != "" {
		return state
	}
	if at, err := s.readFailure(t); err != nil && time.Since(at) < unreadAge {
		state.Error, state.Hint = "rows that are only there could not be read: "+err.Error(), event.HintOf(err)
	}
	return state
}

// readFailure returns when and why a look at a table, or a fetch of one of its files, last failed, if none
// has succeeded since.
func (s *Store) readFailure(t *manifest.Table) (at time.Time, err error) {
	s.lakes.mu.Lock()
	if look, found := s.lakes.failed[t.ID]; found && look.at.After(s.lakes.looked[t.ID]) {
		at, err = look.at, look.err
	}
	s.lakes.mu.Unlock()
	failures := s.lakes.cache.Failures()
	if len(failures) == 0 {
		return at, err
	}
	for _, f := range t.Files {
		if failure, found := failures[t.Path(s.folder, f.Name)]; found && f.Remote != nil && failure.At.After(at) {
			at, err = failure.At, failure.Err
		}
	}
	return at, err
}

// unseen returns the tables whose last report is older than lookAge.
func (l *lakes) unseen(tables []uint32) []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(tables), func(id uint32) bool { return time.Since(l.looked[id]) < lookAge })
}

// rewriteForLake rewrites some of the files that cannot be published as they are, and those of the lake
// that were fetched. If more may remain, it wakes the compactor again.
func (s *Store) rewriteForLake(ctx context.Context) error {
	var failed error
	for _, t := range s.current().Tables {
		var groups [][]*manifest.File
		for _, f := range publishing.NeedRewrite(t) {
			switch {
			case !s.isHere(t, f):
			case f.Remote != nil: // first, so that no other file keeps it from being rewritten
				groups = slices.Insert(groups, 0, []*manifest.File{f})
			case !s.unmerged[f.Name] && len(groups) < rewriteMax:
				groups = append(groups, []*manifest.File{f})
			}
		}
		if len(groups) == 0 {
			continue
		}
		done, err := s.rewriteFiles(ctx, t.ID, groups, rewriteOptions{all: true})
		if errors.Is(err, protocol.ErrMemory) {
			_, err = s.rewriteFiles(ctx, t.ID, groups[done:], rewriteOptions{all: true, wide: true})
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("rewrite files of table %s for its lake: %w", t.Name, err))
			continue
		}
		if t.Lake.Widening != nil {
			wake(s.publisher) // the last of these files lets the lake have the column
		}
		wake(s.compactor)
	}
	return failed
}

// WidenInLake begins to give a column the type in the table's lake that it has in the table. It
// runs in the background and resumes after a crash. Other engines see either all values in the
// old type or all in the new one.
func (s *Store) WidenInLake(table, column string) (catalog.LakeState, error) {
	return s.changeLake(table, func(t *manifest.Table) error {
		changed, err := publishing.Widen(t, column, time.Now())
		if err == nil && !changed {
			err = errUnchanged
		}
		return err
	})
}

// CancelWidenInLake ends what WidenInLake began. The lake keeps the type of the column.
func (s *Store) CancelWidenInLake(table, column string) (catalog.LakeState, error) {
	return s.changeLake(table, func(t *manifest.Table) error { return publishing.CancelWiden(t, column) })
}

func (s *Store) changeLake(table string, change func(t *manifest.Table) error) (state catalog.LakeState, err error) {
	if s.options.ReadOnly {
		return state, errReadOnly
	}
	s.compacting.Lock() // no order is prepared meanwhile
	defer s.compacting.Unlock()
	err = s.change(func(next *manifest.Manifest) error {
		t := next.Table(table)
		if t == nil {
			return unknownTable(table)
		}
		err := change(t)
		if t.Lake != nil {
			state = s.lakeState(t)
		}
		return err
	}, nil)
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	wake(s.compactor)
	wake(s.publisher)
	return state, err
}

// leave lets the data of files leave the disk, whose rows are old enough and which their lake has.
// It goes on with other tables after an error.
func (s *Store) leave(ctx context.Context, now time.Time) error {
	var tables []uint32
	for _, t := range s.current().Tables {
		if len(s.leavingFiles(t, now)) > 0 {
			tables = append(tables, t.ID)
		}
	}
	if len(tables) == 0 {
		return nil
	}
	failed := s.look(ctx, tables) // other engines may have deleted rows
	unseen := s.lakes.unseen(tables)
	for _, id := range tables {
		m := s.current()
		t := m.TableByID(id)
		if t == nil || slices.Contains(unseen, id) {
			continue
		}
		if err := s.leaveFiles(ctx, m, t, s.leavingFiles(t, now)); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	wake(s.compactor) // a delete may wait for room
	return failed
}

// leaveFiles lets the data of files of a table leave the disk. A slow lake holds up the others for at
// most leaveTime.
func (s *Store) leaveFiles(ctx context.Context, m *manifest.Manifest, t *manifest.Table, files []*manifest.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, leaveTime, fmt.Errorf("it took longer than %v", leaveTime))
	defer cancel()
	for i, f := range files {
		err := s.leaveFile(ctx, m, t, f)
		if err != nil && i > 0 && context.Cause(ctx) != nil { // the next round goes on
			return nil
		}
		if err != nil {
			return fmt.Errorf("file %s of table %s stays on this disk: %w", f.Name, t.Name, err)
		}
	}
	return nil
}

// leavingFiles returns files whose data may leave the disk: they are old, their lake has exactly
// these files, and nothing is to be done with them. Their order is random, so that one that cannot
// leave does not keep the others here.
func (s *Store) leavingFiles(t *manifest.Table, now time.Time) (files []*manifest.File) {
	if t.Lake == nil || t.Lake.Local == 0 {
		return nil
	}
	oldest := now.Add(-time.Duration(t.Lake.Local))
	busy := map[*manifest.File]bool{}
	s.compacting.Lock() // protects unmerged
	groups := s.mergeableFiles(t)
	s.compacting.Unlock()
	for _, group := range groups {
		for _, some := range append(similarFiles(group), quietFiles(group, now.Add(100*365*24*time.Hour))...) {
			for _, f := range some {
				busy[f] = true
			}
		}
	}
	m := s.current()
	for _, f := range t.Files {
		newest := time.UnixMicro(f.MaxTime)
		if t.Time == "" {
			newest = time.Unix(f.Sealed, 0)
		}
		if newest.Before(oldest) && !busy[f] && !f.Undivided && f.Deleted >= lastDelete(t) && t.NextRecompute(f) == nil && publishing.Published(m, t, f) != "" {
			files = append(files, f)
		}
	}
	rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	return files[:min(len(files), leavingMax)]
}

// leaveFile lets the data of a file leave the disk, after it has compared them with the object in
// the lake.
func (s *Store) leaveFile(ctx context.Context, m *manifest.Manifest, t *manifest.Table, f *manifest.File) error {
	defer s.keepFiles(t.ID)()
	path := t.Path(s.folder, f.Name)
	entry := s.current().TableByID(t.ID)
	if entry == nil || !slices.Contains(entry.Files, f) || s.lakes.isReturned(path) {
		return nil
	}
	remote, footer, err := s.lakes.cache.Verify(ctx, path, lake.Address(t.Lake.Location, publishing.Published(m, t, f)))
	if err != nil {
		return err
	}
	if err := durable.WriteFile(t.Path(s.folder, manifest.FooterName(f.Name)), footer, 0o600); err != nil {
		return err
	}
	left := *f
	left.Remote = &remote
	s.compacting.Lock() // no file is merged now
	defer s.compacting.Unlock()
	s.lakes.cache.Leave(lakecache.Of(s.folder, t, &left))
	err = s.change(func(next *manifest.Manifest) error {
		entry := next.TableByID(t.ID)
		if entry == nil || entry.Lake == nil || !entry.Lake.IsAt(t.Lake.Lake) || publishing.Published(next, entry, f) == "" {
			return errUnchanged
		}
		i := slices.Index(entry.Files, f)
		if i < 0 || f.Deleted < lastDelete(entry) || entry.NextRecompute(f) != nil {
			return errUnchanged
		}
		entry.Files[i] = &left
		return nil
	}, &garbage{table: t.ID, remove: func() error {
		s.lakes.cache.Left(path)
		return nil
	}})
	if err != nil {
		s.lakes.cache.Stay(path)
		if errors.Is(err, errUnchanged) { // the next look at the file decides again
			return t.RemoveFile(s.folder, manifest.FooterName(f.Name))
		}
	}
	return err
}

// returnFiles takes back the files that were fetched and whose lake is no longer that of their table, or
// has lost them.
func (s *Store) returnFiles() error {
	var failed error
	for _, t := range s.current().Tables {
		for _, f := range t.Files {
			if !t.MustReturn(f) || !s.isHere(t, f) {
				continue
			}
			if err := s.returnFile(t, f); err != nil {
				failed = errors.Join(failed, fmt.Errorf("take back file %s of table %s: %w", f.Name, t.Name, err))
			}
		}
	}
	return failed
}

// isReturned reports whether a file came back and its former footer is yet to be removed. Until then
// it must not leave again, with another footer of that name.
func (l *lakes) isReturned(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.returned[path]
}

func (l *lakes) setReturned(path string, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if is {
		l.returned[path] = true
	} else {
		delete(l.returned, path)
	}
}

func (s *Store) returnFile(t *manifest.Table, f *manifest.File) error {
	path := t.Path(s.folder, f.Name)
	defer s.lakes.cache.Stay(path) // also after an error: the manifest may be saved
	back := *f
	back.Remote = nil
	s.lakes.setReturned(path, true) // after an error, until the store is opened again
	err := s.change(func(next *manifest.Manifest) error {
		entry := next.TableByID(t.ID)
		if entry == nil {
			return errUnchanged
		}
		i := slices.Index(entry.Files, f)
		if i < 0 {
			return errUnchanged
		}
		entry.Files[i] = &back
		wake(s.publisher)
		return nil
	}, &garbage{table: t.ID, remove: func() error {
		err := t.RemoveFile(s.folder, manifest.FooterName(f.Name))
		if err == nil {
			s.lakes.setReturned(path, false)
		}
		return err
	}})
	if errors.Is(err, errUnchanged) {
		s.lakes.setReturned(path, false)
		return nil
	}
	return err
}

// removeData removes a file that no manifest needs, on disk; the committer removes it in the lake.
func (s *Store) removeData(t *manifest.Table, f *manifest.File) error {
	if f.Remote == nil {
		return t.RemoveFile(s.folder, f.Name)
	}
	s.lakes.cache.Remove(t.Path(s.folder, f.Name))
	return t.RemoveFile(s.folder, manifest.FooterName(f.Name))
}

// A lakeFetch brings a file whose data are in a lake to the disk, for maintenance.
type lakeFetch struct {
	file   string // its name
	pinned *lakecache.Pinned
	err    error
	ended  time.Time // zero while it runs
	inUse  bool      // by the running round of the compactor

	failures int // of the fetches before, without one that succeeded
}

// wait returns how long to wait after the fetch before the next one.
func (f *lakeFetch) wait() time.Duration {
	return min(maintenanceRetry<<min(f.failures, 10), fetchRetryMax)
}

// fetchTime bounds how long a file is fetched for maintenance.
const fetchTime = 30 * time.Minute

// nextFile returns a file that needs maintenance and that it can have now, or nil: one that was fetched,
// before it is given up, or else the newest.
func (s *Store) nextFile(t *manifest.Table, needs func(f *manifest.File) bool) (next *manifest.File) {
	for _, f := range t.Files {
		switch {
		case !needs(f) || !s.isHere(t, f) && !t.HasLost(f):
		case f.Remote != nil:
			return f
		case next == nil || f.MaxTime > next.MaxTime:
			next = f
		}
	}
	return next
}

// isHere reports whether maintenance can read a file now.
func (s *Store) isHere(t *manifest.Table, f *manifest.File) bool {
	if f.Remote == nil {
		return true
	}
	s.lakes.mu.Lock()
	defer s.lakes.mu.Unlock()
	fetch := s.lakes.fetches[t.ID]
	return fetch != nil && fetch.inUse && fetch.pinned != nil && fetch.file == f.Name
}

// fetchNext begins to fetch a file of each table that maintenance needs, unless one is being fetched. A
// lake that is slow or away holds up only its own tables.
func (s *Store) fetchNext(ctx context.Context) {
	s.lakes.mu.Lock()
	defer s.lakes.mu.Unlock()
	for _, t := range s.current().Tables {
		last, failures := s.lakes.fetches[t.ID], 0
		if last != nil && (last.err == nil || time.Since(last.ended) < last.wait()) {
			continue
		}
		if last != nil {
			failures = last.failures + 1
		}
		delete(s.lakes.fetches, t.ID)
		f := s.neededFile(t)
		if f == nil {
			continue
		}
		fetch := &lakeFetch{file: f.Name, failures: failures}
		s.lakes.fetches[t.ID] = fetch
		s.background.Go(func() {
			pinned, err := s.fetchFile(ctx, t.ID, f.Name)
			s.lakes.mu.Lock()
			fetch.pinned, fetch.err, fetch.ended = pinned, err, time.Now()
			s.lakes.mu.Unlock()
			s.mu.Lock()
			s.signalChange() // for awaitDeletesInLake
			s.mu.Unlock()
			wake(s.compactor)
		})
	}
}

// neededFile returns a file of a table that maintenance needs and whose data are in a lake, or nil: any
// of them, so that one that cannot be fetched does not keep the others there.
func (s *Store) neededFile(t *manifest.Table) *manifest.File {
	var files []*manifest.File
	last, isFull, rewrite, live := lastDelete(t), s.isFull(t), publishing.NeedRewrite(t), s.tableByID(t.ID)
	for _, f := range t.Files {
		isNeeded := t.MustReturn(f) || slices.Contains(rewrite, f) || !isFull && (f.Deleted < last || f.Undivided || live.needsRecompute(t, f))
		if f.Remote != nil && !t.HasLost(f) && isNeeded {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil
	}
	return files[rand.IntN(len(files))]
}

// fetchFile brings a file to the disk, unless it is there or its rows are no longer the store's.
func (s *Store) fetchFile(ctx context.Context, table uint32, name string) (*lakecache.Pinned, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("it took longer than %v", fetchTime))
	defer cancel()
	lost, err := s.checkRewritten(ctx, table, name)
	if err != nil || lost {
		return nil, err
	}
	t, f := fileOf(s.current(), protocol.NeededFile{Table: table, Name: name})
	if f == nil || f.Remote == nil {
		return nil, nil
	}
	return s.lakes.cache.Pin(ctx, []lakecache.File{lakecache.Of(s.folder, t, f)}, true)
}

// checkRewritten asks the lake whether other engines have rewritten a file whose data are there; see
// manifest.Table.HasLost. It returns an error if they may have deleted rows of it by other means: a
// change of the store would show them again.
func (s *Store) checkRewritten(ctx context.Context, table uint32, name string) (lost bool, err error) {
	one := protocol.NeededFile{Table: table, Name: name}
	t, f := fileOf(s.current(), one)
	switch {
	case f != nil && t.HasLost(f):
		return true, nil
	case f == nil || f.Remote == nil || t.MustReturn(f) || t.Lake.UUID == "":
		return false, nil
	}
	if err := s.look(ctx, []uint32{table}); err != nil {
		return false, fmt.Errorf("ask the lake what other engines have changed: %w", err)
	}
	t, f = fileOf(s.current(), one)
	switch {
	case f != nil && t.HasLost(f):
		return true, nil
	case f == nil || f.Remote == nil || t.MustReturn(f):
		return false, nil
	case t.Lake.Deletes > 0:
		return false, &event.Fault{Message: fmt.Sprintf("another engine has deleted rows of table %s in the lake, by %d delete files, and the data of file %s are only there", t.Name, t.Lake.Deletes, name),
			Hint: "compact the lake table with that engine"}
	}
	return false, nil
}

// useFetched lets a round of the compactor use the files that were fetched since the last one.
func (s *Store) useFetched() (failed error) {
	s.lakes.mu.Lock()
	defer s.lakes.mu.Unlock()
	for table, fetch := range s.lakes.fetches {
		if fetch.ended.IsZero() || fetch.inUse {
			continue
		}
		fetch.inUse = true
		if fetch.err == nil {
			continue
		}
		if t := s.current().TableByID(table); t != nil {
			failed = errors.Join(failed, fmt.Errorf("fetch file %s of table %s: %w", fetch.file, t.Name, fetch.err))
		} else {
			delete(s.lakes.fetches, table)
		}
	}
	return failed
}

// releaseFetched ends the use of files by a round of the compactor. It keeps the errors of failed
// fetches until the next attempt.
func (s *Store) releaseFetched() {
	s.lakes.mu.Lock()
	defer s.lakes.mu.Unlock()
	for table, fetch := range s.lakes.fetches {
		if fetch.inUse && fetch.err == nil {
			fetch.pinned.Release()
			delete(s.lakes.fetches, table)
		}
	}
}

// fetchError returns why no file of a table can be fetched for maintenance, or nil.
func (s *Store) fetchError(t *manifest.Table) error {
	if t.Lake != nil && t.Lake.Error != "" && s.isFull(t) {
		return &event.PermanentError{Err: fmt.Errorf("too many rewritten files wait for the lake: %s", t.Lake.Error), Hint: t.Lake.Hint}
	}
	s.lakes.mu.Lock()
	defer s.lakes.mu.Unlock()
	if fetch := s.lakes.fetches[t.ID]; fetch != nil {
		return fetch.err
	}
	return nil
}

// isFull reports whether too many rewritten files wait to be published. They take disk space, so no
// more are fetched then.
func (s *Store) isFull(t *manifest.Table) bool {
	bytes := int64(0)
	for _, f := range t.Files {
		if t.Publication(f) == manifest.Unknown && !f.Gone {
			bytes += f.Bytes
		}
	}
	return bytes > max(s.options.LakeCache, lakeCacheDefault)
}

// adoptFiles takes over the files of lakes that an earlier process has fetched.
func (s *Store) adoptFiles() {
	s.lakes.looking = make(chan struct{}, 1)
	s.lakes.looked, s.lakes.failed, s.lakes.returned = map[uint32]time.Time{}, map[uint32]failedLook{}, map[string]bool{}
	s.lakes.fetches = map[uint32]*lakeFetch{}
	limit := s.options.LakeCache
	if limit == 0 {
		limit = lakeCacheDefault
	}
	s.lakes.cache = lakecache.New(filepath.Join(s.folder, tempFolder, "lake"), limit)
	if s.options.ReadOnly {
		return
	}
	for _, t := range s.manifest.Tables {
		for _, f := range t.Files {
			if f.Remote == nil {
				continue
			}
			if file := lakecache.Of(s.folder, t, f); lakecache.Has(file) {
				s.lakes.cache.Adopt(file)
			}
		}
	}
}
