//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/publishing"
)

const (
	// backlogMax is the number of closed, unsealed log files at which appends start to
	// wait.
	backlogMax = 4
	// maintenanceInterval is the interval between searches for expired rows. Sealing and
	// deletes do not wait for it.
	maintenanceInterval = time.Minute
	// maintenanceRetry is the retry delay after a failure. Appends that wait for space
	// fail meanwhile.
	maintenanceRetry = 5 * time.Second
)

// wake makes a maintenance loop look for work now.
func wake(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}

// runSealer seals log files as they are closed, and removes files that no reader needs, until
// the store is closed.
func (s *Store) runSealer() {
	ctx, cancel := s.untilClosed(context.Background())
	defer cancel()
	for !s.isClosed() {
		s.sealing.Lock()
		err := s.sealClosedFiles(ctx)
		s.sealing.Unlock()
		s.setBacklog(err)
		s.pause(errors.Join(err, s.collectGarbage()), s.sealer)
	}
}

// runCompactor expires, rewrites and merges Parquet files until the store is closed.
func (s *Store) runCompactor() {
	ctx, cancel := s.untilClosed(context.Background())
	defer cancel()
	for !s.isClosed() {
		s.pause(s.compact(ctx), s.compactor)
	}
}

// compact is one round of runCompactor. Files whose data are in lakes are fetched between the rounds.
func (s *Store) compact(ctx context.Context) error {
	s.compacting.Lock()
	defer s.compacting.Unlock()
	failed := s.useFetched()
	failed = errors.Join(failed, s.removeOldFiles(time.Now()), s.rewriteForDeletes(ctx), s.divideFile(ctx), s.recomputeFile(ctx), s.rewriteForLake(ctx), s.returnFiles())
	s.releaseFetched()
	failed = errors.Join(failed, s.mergeUnlessChanged(ctx))
	s.fetchNext(ctx)
	return failed
}

// logErrors logs each of the errors that were joined, which have hints of their own.
func (s *Store) logErrors(text string, err error) {
	if all, joined := err.(interface{ Unwrap() []error }); joined {
		for _, one := range all.Unwrap() {
			s.logErrors(text, one)
		}
		return
	}
	s.options.Log.Error(text, "error", err, "hint", event.HintOf(err))
}

// pause waits until a maintenance loop has work. After an error it waits for a shorter time.
func (s *Store) pause(err error, loop chan struct{}) {
	wait := maintenanceInterval
	if err != nil && !s.isClosed() {
		wait = maintenanceRetry
		s.logErrors("event store: maintenance failed, will retry", err)
	}
	closed := s.log.Closed()
	if loop != s.sealer {
		closed = nil
	}
	select {
	case <-s.closing:
	case <-closed:
	case <-loop:
	case <-time.After(wait):
	}
}

// A backlog tracks closed log files that are not sealed yet; appends wait for it. Store.mu
// protects it.
type backlog struct {
	err     error         // of the last attempt to seal a file
	changed chan struct{} // closed and replaced when sealing a file succeeds or fails
}

func (s *Store) setBacklog(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backlog.err = err
	close(s.backlog.changed)
	s.backlog.changed = make(chan struct{})
}

// waitForRoom waits while too many closed log files are unsealed. It fails if sealing fails.
func (s *Store) waitForRoom(ctx context.Context) error {
	for {
		s.mu.Lock()
		state, start := s.backlog, s.manifest.LogStart
		s.mu.Unlock()
		waiting := 0
		for _, f := range s.log.Ends() {
			if f.Closed && f.Number >= start {
				waiting++
			}
		}
		if waiting <= backlogMax {
			return nil
		}
		if state.err != nil {
			return fmt.Errorf("eventstore: %d closed files of the log could not be written as Parquet: %w", waiting, state.err)
		}
		select {
		case <-state.changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		}
	}
}

// removeOldFiles removes files whose rows have all passed their table's retention.
func (s *Store) removeOldFiles(now time.Time) error {
	old := map[uint32]map[string]bool{}
	for _, t := range s.current().Tables {
		if t.Retention == 0 || t.Time == "" {
			continue
		}
		oldest := now.Add(-time.Duration(t.Retention)).UnixMicro()
		for _, f := range t.Files {
			if f.MaxTime < oldest {
				if old[t.ID] == nil {
					old[t.ID] = map[string]bool{}
				}
				old[t.ID][f.Name] = true
			}
		}
	}
	for id, names := range old {
		if err := s.expireFiles(id, names); err != nil {
			return fmt.Errorf("eventstore: remove old files: %w", err)
		}
	}
	return nil
}

// expireFiles removes files of a table with all their rows.
func (s *Store) expireFiles(table uint32, names map[string]bool) error {
	return s.swapFiles(table, names, nil, func(*manifest.Table) error { return nil })
}

// replaceFiles replaces file entries of a table in one manifest change. Files left without an
// entry are deleted once no reader needs them. It fails if another engine has rewritten one of them
// in the lake since it was read: its rows, among which some may be deleted there, would come back.
func (s *Store) replaceFiles(table uint32, names map[string]bool, fresh []*manifest.File) error {
	return s.exchangeFiles(table, names, fresh, func(*manifest.Table) {})
}

// exchangeFiles is like replaceFiles, but also applies a further change to the table.
func (s *Store) exchangeFiles(table uint32, names map[string]bool, fresh []*manifest.File, also func(next *manifest.Table)) error {
	return s.swapFiles(table, names, fresh, func(t *manifest.Table) error {
		for _, f := range t.Files {
			stays := slices.ContainsFunc(fresh, func(same *manifest.File) bool {
				return same.Name == f.Name && same.Remote != nil && same.Gone == f.Gone
			})
			if names[f.Name] && !stays && isChangedInLake(t, f) {
				return fmt.Errorf("another engine has rewritten file %s of table %s meanwhile, or deleted rows of it", f.Name, t.Name)
			}
		}
		also(t)
		return nil
	})
}

// isChangedInLake reports whether the data of a file are only in a lake and another engine has changed
// them there.
func isChangedInLake(t *manifest.Table, f *manifest.File) bool {
	return t.HasLost(f) || f.Remote != nil && !t.MustReturn(f) && t.Lake.Deletes > 0
}

// swapFiles replaces file entries of a table, after check has agreed and changed what else must change.
func (s *Store) swapFiles(table uint32, names map[string]bool, fresh []*manifest.File, check func(t *manifest.Table) error) error {
	var gone []*manifest.File
	t := s.current().TableByID(table)
	dropped := &garbage{table: table, remove: func() (err error) {
		for _, f := range gone {
			err = errors.Join(err, s.removeData(t, f))
			if f.Bloom != "" {
				err = errors.Join(err, t.RemoveFile(s.folder, f.Bloom))
			}
		}
		return err
	}}
	return s.change(func(next *manifest.Manifest) error {
		t := next.TableByID(table)
		if err := check(t); err != nil {
			return err
		}
		var kept []*manifest.File
		stays := map[string]bool{}
		for _, f := range fresh {
			stays[f.Name] = true
		}
		for _, f := range t.Files {
			switch {
			case !names[f.Name]:
				kept = append(kept, f)
			case !stays[f.Name]:
				gone = append(gone, f)
			}
		}
		t.Files = append(kept, fresh...)
		s.pruneTable(next, t)
		return nil
	}, dropped)
}

// pruneTable drops schema versions that nothing references, and finished deletes.
func (s *Store) pruneTable(next *manifest.Manifest, entry *manifest.Table) {
	needed := map[uint64]bool{entry.Current().Version: true}
	for _, f := range entry.Files {
		needed[f.Schema] = true
	}
	t := s.tableByID(entry.ID)
	t.mu.Lock()
	for version := range t.encoding {
		needed[version] = true
	}
	for file, versions := range t.schemasOf {
		for version := range versions {
			needed[version] = needed[version] || file >= next.LogStart
		}
	}
	t.mu.Unlock()
	entry.Schemas = keep(entry.Schemas, func(v *manifest.Schema) bool { return needed[v.Version] })
	entry.Deletes = keep(entry.Deletes, func(d *manifest.Delete) bool {
		done := isCarriedOut(next, entry, d)
		if done {
			next.EndDelete(entry, d, time.Now())
		}
		return !done
	})
	endRecomputes(next, entry)
}

// keep returns a new slice of the elements that satisfy f.
func keep[E any](all []E, f func(E) bool) (kept []E) {
	for _, e := range all {
		if f(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

const (
	// mergeMin is the number of files, of about the same size and each smaller than
	// mergeSmall, that are merged together. A row is thus rewritten only when its file
	// grows several times as large.
	mergeMin   = 4
	mergeSmall = 32 << 20
	// quietAfter is the time without new rows after which the files of a day are merged
	// into as few as mergeMax allows, for each mergeSmall bytes that this rewrites. A late
	// row thus causes few rewrites of a large day.
	quietAfter = time.Hour
	// mergeMax and mergeMaxFiles bound one merge request, in bytes and in number of
	// files. The manifest records the finished merges between requests.
	mergeMax      = 256 << 20
	mergeMaxFiles = 1024
	// mergeMemory bounds the memory for reading the files of a merge. Files with rows
	// wider than mergeRowMax are not merged.
	mergeMemory = 48 << 20
	mergeRowMax = 256 << 10
)

// A merging is the running merge of small files, if there is one. A change of a table cancels it:
// merges take long and run at a low priority, and the files can be merged later.
type merging struct {
	mu      sync.Mutex
	changes int                // that wait or run
	cancel  context.CancelFunc // of the running merge
}

// begin returns the context of a merge, which is canceled while a change waits.
func (m *merging) begin(ctx context.Context) (merge context.Context, end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	merge, m.cancel = context.WithCancel(ctx)
	if m.changes > 0 {
		m.cancel()
	}
	return merge, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.cancel()
		m.cancel = nil
	}
}

// interrupt cancels the running merge, and those that begin before the caller calls resume.
func (m *merging) interrupt() (resume func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	if m.cancel != nil {
		m.cancel()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.changes--
	}
}

// mergeUnlessChanged is mergeSmallFiles, which ends early if a change of a table waits for it.
func (s *Store) mergeUnlessChanged(ctx context.Context) error {
	merge, end := s.merging.begin(ctx)
	defer end()
	err := s.mergeSmallFiles(merge)
	if merge.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// mergeSmallFiles merges small files of each table and day. If more may remain, it wakes the
// compactor again.
func (s *Store) mergeSmallFiles(ctx context.Context) error {
	for _, t := range s.current().Tables {
		groups := s.nextMerge(t, time.Now())
		if len(groups) == 0 {
			continue
		}
		done, err := s.rewriteFiles(ctx, t.ID, groups, rewriteOptions{})
		if errors.Is(err, protocol.ErrMemory) && done < len(groups) {
			s.options.Log.Warn("event store: files stay small, because merging them needs too much memory", "table", t.Name, "day", groups[done][0].Day)
			for _, f := range groups[done] {
				s.unmerged[f.Name] = true
			}
			err = nil
		}
		if err != nil {
			return fmt.Errorf("merge files of table %s: %w", t.Name, err)
		}
		wake(s.compactor)
	}
	return nil
}

// nextMerge returns groups of files of a table to merge, or nil: files of about the same size,
// and those of quiet days. Files that wait for the same recompute are merged with each other
// only; undivided files are left out.
func (s *Store) nextMerge(t *manifest.Table, now time.Time) (groups [][]*manifest.File) {
	bytes, count := int64(0), 0
	for _, files := range s.mergeableFiles(t) {
		found := similarFiles(files)
		if len(found) == 0 {
			found = quietFiles(files, now)
		}
		for _, group := range found {
			for _, f := range group {
				bytes += f.Bytes
			}
			if count += len(group); len(groups) > 0 && (bytes > mergeMax || count > mergeMaxFiles) {
				return groups
			}
			groups = append(groups, group)
		}
	}
	return groups
}

// mergeableFiles returns the files of a table that may be merged with each other, in groups.
// Those in a lake are left out: fetching them costs more than a merge gains.
func (s *Store) mergeableFiles(t *manifest.Table) (groups [][]*manifest.File) {
	type day struct {
		name        string
		recompute   *manifest.Recompute // the next one that the files wait for
		publication manifest.Publication
	}
	index := map[day]int{}
	for _, f := range t.Files {
		d := day{f.Day, t.NextRecompute(f), t.Publication(f)}
		if f.Remote != nil || f.RowBytes() > mergeRowMax || s.unmerged[f.Name] || f.Undivided || d.publication == manifest.Unknown {
			continue
		}
		i, found := index[d]
		if !found {
			i = len(groups)
			index[d], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// similarFiles returns groups of at least mergeMin small files of about the same size.
func similarFiles(files []*manifest.File) (groups [][]*manifest.File) {
	bySize := map[int][]*manifest.File{} // by roughly the log base 4 of their size
	var sizes []int
	for _, f := range files {
		if f.Bytes >= mergeSmall {
			continue
		}
		size := bits.Len64(uint64(f.Bytes)>>16) / 2
		if bySize[size] = append(bySize[size], f); len(bySize[size]) == mergeMin {
			sizes = append(sizes, size)
		}
	}
	for _, size := range sizes {
		if group := mergeable(bySize[size]); len(group) > 1 {
			groups = append(groups, group)
		}
	}
	return groups
}

// quietFiles returns groups of files, largest first, that become one file each once their day
// has been quiet for long enough.
func quietFiles(files []*manifest.File, now time.Time) (groups [][]*manifest.File) {
	newest := int64(0)
	for _, f := range files {
		newest = max(newest, f.Sealed)
	}
	bySize := slices.SortedFunc(slices.Values(files), func(a, b *manifest.File) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Name, b.Name))
	})
	for len(bySize) > 1 {
		group := mergeable(bySize)
		bytes := int64(0)
		for _, f := range group {
			bytes += f.Bytes
		}
		quiet := time.Duration(float64(quietAfter) * max(1, float64(bytes)/mergeSmall))
		if len(group) > 1 && !now.Before(time.Unix(newest, 0).Add(quiet)) {
			groups = append(groups, group)
		}
		bySize = bySize[max(1, len(group)):]
	}
	return groups
}

// mergeable returns the longest prefix of files that one merge can take.
func mergeable(files []*manifest.File) []*manifest.File {
	bytes, memory := int64(mergeMax), int64(mergeMemory)
	for i, f := range files {
		bytes -= f.Bytes
		memory -= f.ReadMemory()
		if bytes < 0 || memory < 0 {
			return files[:i]
		}
	}
	return files
}

// mergedFile returns the manifest entry of a file that was merged from others of a table of m.
func mergedFile(m *manifest.Manifest, t *manifest.Table, f manifest.File, of []*manifest.File, segment, deleted uint64) *manifest.File {
	f.Segment, f.Deleted, f.Computed, f.Undivided = segment, deleted, of[0].Computed, of[0].Undivided
	f.Replaces, f.Changed = publishing.Replaced(m, t, of, f.Rows)
	for _, old := range of {
		f.Sealed = max(f.Sealed, old.Sealed)
		f.Log = max(f.Log, old.Log)
		f.Computed = min(f.Computed, old.Computed)
	}
	return &f
}

// lastDelete returns the number of the newest delete in a version of the manifest.
func lastDelete(t *manifest.Table) (number uint64) {
	for _, d := range t.Deletes {
		number = max(number, d.Number)
	}
	return number
}

// nextSegment returns an unused segment number.
func (s *Store) nextSegment() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segment++
	return s.segment
}
