package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lake"
)

const (
	// Small manifests are merged once there are manifestsMax.
	manifestsMax = 100
	manifestSize = 4 << 20 // a manifest of at least this size is not small
	// expiredMin is the number of snapshots that one commit expires, unless one of them is
	// much too old or has rows that must go.
	expiredMin = 20
)

// A tidying expires snapshots of one table and removes unreferenced objects. Each step reloads the
// table, so the work may stop at any point.
type tidying struct {
	*lake.Tidy
	catalog catalog.Catalog
	order   *lake.TableOrder
	report  *lake.TableReport

	table       *table.Table
	owner       *lake.Owner
	references  *references
	rewrites    *rewrites
	purgeStates map[*manifest]purgeState // of all manifests
	seen        map[string]bool          // objects that the table named once since the tidying began
	done        lake.Tidied
}

// tidy carries out the part Tidy of an order that the table covers. It returns nil if there was
// nothing to do.
func tidy(ctx context.Context, o *lake.TableOrder, report *lake.TableReport) *lake.Tidied {
	y := &tidying{Tidy: o.Tidy, order: o, report: report, seen: map[string]bool{}}
	err := y.run(ctx)
	switch {
	case errors.Is(err, errUnrecorded) && len(y.Purges) == 0:
		return nil
	case err != nil:
		err = explain(&o.Settings, err)
		y.done.Error, y.done.Hint = err.Error(), event.HintOf(err)
	}
	return &y.done
}

func (y *tidying) run(ctx context.Context) error {
	var err error
	if y.catalog, err = openCatalog(ctx, &y.order.Settings, false); err != nil {
		return err
	}
	defer closeCatalog(y.catalog)
	wait, before := firstWait, ""
	for attempt := 1; ; attempt++ {
		settled, err := y.commitOnce(ctx)
		if err == nil && settled {
			break
		}
		if err == nil { // it has committed
			loaded := y.table.MetadataLocation()
			if loaded == before {
				err = errors.New("the catalog answered a commit that it has not carried out")
			}
			before = loaded
		}
		if err != nil && (attempt >= attempts || errors.Is(err, lake.ErrMoved) || event.IsPermanent(err) || ctx.Err() != nil) {
			return err
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait *= 2
		}
	}
	return y.removeObjects(ctx)
}

// errGCDisabled reports a table whose properties forbid to remove anything.
var errGCDisabled = permanent("set gc.enabled of the table to true", "the table's property gc.enabled is false: no snapshots and files are removed")

// errUnrecorded reports a table whose UUID or location differs from the recorded one. A new table
// has nothing to remove.
var errUnrecorded = permanent("wait for the next order, which checks again", "the store has not recorded this table at this location yet: no snapshots and files are removed")

// claim records the location of a table that has none recorded, and returns the table with it.
// That of a table that the store knows already must be the one that it knows.
func (y *tidying) claim(ctx context.Context, t *table.Table) (*table.Table, error) {
	isNew := y.order.UUID == "" && y.order.Location == ""
	if t.Properties()[lake.LocationProperty] != "" || !isNew && !y.isRecorded(t) {
		return t, nil
	}
	if err := y.checkUnclaimed(ctx, t); err != nil {
		return nil, err
	}
	if err := setProperty(ctx, y.catalog, t, lake.LocationProperty, t.Location()); err != nil {
		return nil, err
	}
	return y.catalog.LoadTable(ctx, t.Identifier())
}

// checkUnclaimed returns an error if the location of a table has files that the table does not name
// and the store has not put there. The catalog has chosen the location, which may have files of others.
func (y *tidying) checkUnclaimed(ctx context.Context, t *table.Table) error {
	owner, err := lake.OwnerOf(y.order, t.Properties())
	if err != nil {
		return err
	}
	store, err := openObjects(t.Location())
	if err != nil {
		return err
	}
	objects, err := listObjects(ctx, store)
	if err != nil {
		return err
	}
	named, err := readReferences(ctx, t, nil)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if !named.named[object.Name] && !owner.MayLeave(object.Name) {
			return permanent(fmt.Sprintf("let the table have another location; or, if no other table or program has files in the folders data and metadata of %[1]s, set the property %[2]s of the table to %[1]s", t.Location(), lake.LocationProperty),
				"%s is a file of another table or program: no snapshots and files are removed", strings.TrimSuffix(t.Location(), "/")+"/"+object.Name)
		}
	}
	return nil
}

// isRecorded reports whether a table is the one that the store has recorded.
func (y *tidying) isRecorded(t *table.Table) bool {
	return t.Metadata().TableUUID().String() == y.order.UUID && isSameLocation(t.Location(), y.order.Location)
}

func isSameLocation(a, b string) bool {
	return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/")
}

// checkPlace returns an error if objects at the location of a table may not be removed: it was
// given another one, which may have files of others, or it is another table.
func (y *tidying) checkPlace(t *table.Table) error {
	if known := t.Properties()[lake.LocationProperty]; known != "" && !isSameLocation(known, t.Location()) {
		return permanent(fmt.Sprintf("set the location back; or, if no other table or program has files in the folders data and metadata of %[1]s, set the property %[2]s of the table to %[1]s", t.Location(), lake.LocationProperty),
			"the table was given the location %s, and its property %s is %s: no snapshots and files are removed", t.Location(), lake.LocationProperty, known)
	}
	if !y.isRecorded(t) {
		return errUnrecorded
	}
	return nil
}

// errChanged reports a table that was changed since it was loaded.
var errChanged = errors.New("the table was changed meanwhile")

// load reads the table and all that it names.
func (y *tidying) load(ctx context.Context) error {
	t, err := y.catalog.LoadTable(ctx, catalog.ToIdentifier(strings.Split(y.order.Table, ".")...))
	if err != nil {
		return err
	}
	if t.Metadata().TableUUID().String() != y.report.UUID {
		return lake.ErrMoved
	}
	if t.Properties().Get(table.GCEnabledKey, "true") != "true" {
		return errGCDisabled
	}
	if t, err = y.claim(ctx, t); err != nil {
		return err
	}
	y.report.Metadata = t.MetadataLocation()
	if err := y.checkPlace(t); err != nil {
		return err
	}
	if y.owner, err = lake.OwnerOf(y.order, t.Properties()); err != nil {
		return err
	}
	if y.references, err = readReferences(ctx, t, y.references); err != nil {
		return err
	}
	for name := range y.references.named {
		y.seen[name] = true
	}
	y.rewrites, y.purgeStates = rewritesOf(t.Metadata()), map[*manifest]purgeState{}
	for _, m := range y.references.manifests {
		y.purgeStates[m] = y.purgeStateOf(m.live, m.others).with(y.purgeStateOf(m.gone, m.othersGone))
	}
	y.table = t
	return nil
}

// isDirty reports whether a purge of the order must remove something with a purge state.
func (y *tidying) isDirty(t purgeState) bool {
	return slices.ContainsFunc(y.Purges, func(p lake.Purge) bool { return y.includes(t, p) })
}

func (y *tidying) includes(t purgeState, p lake.Purge) bool {
	return t.own.Includes(p) || y.isInOthers(t, p)
}

// snapshotPurgeState returns the purge state of a snapshot.
func (y *tidying) snapshotPurgeState(id int64) purgeState {
	t := noPurgeState
	for _, m := range y.references.snapshots[id] {
		t = t.with(y.purgeStates[m])
	}
	return t
}

// mustExpire reports whether a snapshot must expire for a purge. As long as the newest one has files
// of other engines with the rows, no older one goes for such files.
func (y *tidying) mustExpire(t, newest purgeState, p lake.Purge) bool {
	return t.own.Includes(p) || y.isInOthers(t, p) && !y.isInOthers(newest, p)
}

// newestPurgeState returns the purge state of the newest snapshot.
func (y *tidying) newestPurgeState() purgeState {
	if current := y.table.CurrentSnapshot(); current != nil {
		return y.snapshotPurgeState(current.SnapshotID)
	}
	return noPurgeState
}

// commitOnce commits the next change of the table's metadata. settled reports that there is none.
func (y *tidying) commitOnce(ctx context.Context) (settled bool, err error) {
	if err := y.load(ctx); err != nil {
		return false, err
	}
	onPoint("tidying")
	current := y.table.CurrentSnapshot()
	if current == nil {
		return true, nil
	}
	if value, ok := y.rewrites.next(y.references.manifests, y.table.Metadata().LastSequenceNumber()); ok {
		return false, setProperty(ctx, y.catalog, y.table, rewrittenProperty, value)
	}
	if rewrite := y.manifestsToRewrite(current.SnapshotID); len(rewrite) > 0 {
		return false, y.rewriteManifests(ctx, rewrite)
	}
	expired := y.expired(time.Now())
	if len(expired) == 0 {
		return true, nil
	}
	onPoint("expiring")
	// No requirement excludes a branch or tag that was made since the table was loaded. So load it
	// again: only during the commit itself may a new one lose its snapshot.
	now, err := y.catalog.LoadTable(ctx, y.table.Identifier())
	if err == nil && now.MetadataLocation() != y.table.MetadataLocation() {
		err = errChanged
	}
	if err != nil {
		return false, err
	}
	requirements := []table.Requirement{table.AssertTableUUID(y.table.Metadata().TableUUID())}
	for name, ref := range y.table.Metadata().Refs() {
		requirements = append(requirements, table.AssertRefSnapshotID(name, &ref.SnapshotID))
	}
	// The library removes no files: only its own commits do that.
	after, _, err := y.catalog.CommitTable(ctx, y.table.Identifier(), requirements, []table.Update{table.NewRemoveSnapshotsUpdate(expired, false)})
	if err == nil && after.SnapshotByID(expired[0]) != nil {
		err = errors.New("the answer to the commit has snapshots that it removes")
	}
	if err == nil {
		y.done.Expired += len(expired)
	}
	return false, err
}

// manifestsToRewrite returns the addresses of the current manifests that must be written again:
// those that know values of files that must go, and small ones once there are many.
func (y *tidying) manifestsToRewrite(current int64) map[string]bool {
	dirty, small := map[string]bool{}, map[string]bool{}
	for _, m := range y.references.snapshots[current] {
		if m.file.ManifestContent() != iceberg.ManifestContentData {
			continue
		}
		if y.isDirty(y.purgeStateOf(m.gone, m.othersGone)) {
			dirty[m.file.FilePath()] = true
		}
		if m.file.Length() < manifestSize {
			small[m.file.FilePath()] = true
		}
	}
	if len(small) >= manifestsMax {
		for address := range dirty {
			small[address] = true
		}
		return small
	}
	return dirty
}

// rewriteManifests commits a snapshot with the same files, whose manifests have only these.
func (y *tidying) rewriteManifests(ctx context.Context, addresses map[string]bool) error {
	transaction := y.table.NewTransaction()
	if err := transaction.AssertRefSnapshotID(""); err != nil {
		return err
	}
	_, err := transaction.RewriteManifests(ctx,
		table.WithRewriteManifestPredicate(func(m iceberg.ManifestFile) bool { return addresses[m.FilePath()] }),
		table.WithRewriteManifestClusterBy(func(iceberg.DataFile) any { return true })) // without a key, a single manifest stays as it is
	if err != nil {
		return err
	}
	return commit(ctx, y.catalog, transaction)
}

// snapshots returns the snapshots of the table and its branches and tags.
func (y *tidying) snapshots() (all []lake.Snapshot, refs []lake.Ref) {
	meta := y.table.Metadata()
	replaced := map[int64]time.Time{}
	later := func(id, at int64) {
		if t := time.UnixMilli(at); t.After(replaced[id]) {
			replaced[id] = t
		}
	}
	last := int64(0)
	for entry := range meta.SnapshotLogs() {
		later(last, entry.TimestampMs)
		last = entry.SnapshotID
	}
	first := map[int64]int64{} // time of the first snapshot after it
	for _, s := range meta.Snapshots() {
		later(s.SnapshotID, s.TimestampMs)
		if parent := s.ParentSnapshotID; parent != nil && (first[*parent] == 0 || s.TimestampMs < first[*parent]) {
			first[*parent] = s.TimestampMs
		}
	}
	newest := y.newestPurgeState()
	for _, s := range meta.Snapshots() {
		later(s.SnapshotID, first[s.SnapshotID])
		t := y.snapshotPurgeState(s.SnapshotID)
		isDirty := slices.ContainsFunc(y.Purges, func(p lake.Purge) bool { return y.mustExpire(t, newest, p) })
		one := lake.Snapshot{ID: s.SnapshotID, Taken: time.UnixMilli(s.TimestampMs), Replaced: replaced[s.SnapshotID], Dirty: isDirty}
		if s.ParentSnapshotID != nil {
			one.Parent = *s.ParentSnapshotID
		}
		all = append(all, one)
	}
	age, keep := y.maxAge(), y.Keep
	if _, found := y.table.Properties()[table.MinSnapshotsToKeepKey]; found {
		keep = y.table.Properties().GetInt(table.MinSnapshotsToKeepKey, y.Keep)
	}
	for name, ref := range meta.Refs() {
		one := lake.Ref{Name: name, Head: ref.SnapshotID, Branch: ref.SnapshotRefType == table.BranchRef, Age: age, Keep: keep}
		if ref.MaxSnapshotAgeMs != nil {
			one.Age = milliseconds(*ref.MaxSnapshotAgeMs)
		}
		if ref.MinSnapshotsToKeep != nil {
			one.Keep = *ref.MinSnapshotsToKeep
		}
		refs = append(refs, one)
	}
	return all, refs
}

// maxAge returns the age at which snapshots of the table expire.
func (y *tidying) maxAge() time.Duration {
	value, found := y.table.Properties()[table.MaxSnapshotAgeMsKey]
	ms, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if !found || err != nil && !errors.Is(err, strconv.ErrRange) { // out of range, ms is the nearest number
		return y.Age
	}
	return milliseconds(ms)
}

// milliseconds returns a duration. One that is too long for the type, such as the greatest number,
// means for ever.
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// expired returns the snapshots that one commit must expire now.
func (y *tidying) expired(now time.Time) []int64 {
	all, refs := y.snapshots()
	limits := *y.Tidy
	limits.Age = y.maxAge()
	expired := limits.Expired(all, refs, now)
	isUrgent := func(s lake.Snapshot) bool {
		return slices.Contains(expired, s.ID) && (s.Dirty || now.Sub(s.Taken) > y.Age+y.Age/10)
	}
	if len(expired) < expiredMin && !slices.ContainsFunc(all, isUrgent) {
		return nil
	}
	return expired
}

// listTime bounds the time between the listing of objects and their removal: files that a slow
// committer puts meanwhile are younger than the grace time.
const listTime = 10 * time.Second

// removeObjects removes the objects that the table does not name. It reads what the table names
// after it has listed the objects, so that it knows all commits of objects that were there.
func (y *tidying) removeObjects(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(y.Grace/2, listTime))
	defer cancel()
	store, err := openObjects(y.table.Location())
	if err != nil {
		return err
	}
	now := time.Now()
	objects, err := listObjects(ctx, store)
	if err != nil {
		return err
	}
	onPoint("listed")
	if err := y.load(ctx); err != nil {
		return err
	}
	if err := y.checkNeighbours(ctx, objects); err != nil {
		return err
	}
	y.done.Kept = len(y.table.Metadata().Snapshots())
	dropped := map[string]bool{}
	for name := range y.seen {
		dropped[name] = !y.references.named[name]
	}
	orphans, err := y.readOrphans(ctx, objects)
	if err != nil {
		return err
	}
	for name := range orphans.dirty {
		dropped[name] = true
	}
	removable := y.owner.Removable(y.Tidy, objects, y.references.named, dropped, now)
	onPoint("removing")
	n, size, refused, err := store.remove(ctx, removable)
	y.done.Objects, y.done.Bytes, y.done.Refused = n, size, refused[:min(len(refused), lake.RefusedMax)]
	if err != nil || len(y.Purges) == 0 {
		return err
	}
	if len(removable) > 0 {
		if objects, err = listObjects(ctx, store); err != nil {
			return err
		}
	}
	y.done.Purged = y.purged(objects, orphans, dropped, refused)
	return nil
}

func listObjects(ctx context.Context, store objectStore) (all []lake.Object, err error) {
	for _, folder := range []string{lake.DataFolder, lake.MetadataFolder} {
		objects, err := store.list(ctx, folder)
		if err != nil {
			return nil, fmt.Errorf("list the objects of the table: %w", err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

// checkNeighbours returns an error if metadata of another table are among the objects: the others
// may be files of that one.
func (y *tidying) checkNeighbours(ctx context.Context, objects []lake.Object) error {
	fs, err := y.table.FS(ctx)
	if err != nil {
		return err
	}
	names := y.unnamed(objects, ".metadata.json")
	uuids := make([]string, len(names))
	err = inParallel(ctx, len(names), func(i int) (err error) {
		uuids[i], err = readUUID(fs, y.address(names[i]))
		if isMissing(err) { // somebody else has removed it
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the metadata that the table does not name: %w", err)
	}
	own := y.table.Metadata().TableUUID().String()
	for i, uuid := range uuids {
		if uuid != "" && !strings.EqualFold(uuid, own) {
			return permanent("let one of the two tables have another location; if no catalog has the other one any more, remove its metadata from the folder",
				"%s is metadata of another table, with the UUID %s: no files are removed", y.address(names[i]), uuid)
		}
	}
	return nil
}

// address returns the address of an object below the location.
func (y *tidying) address(name string) string {
	return strings.TrimSuffix(y.table.Location(), "/") + "/" + name
}

// unnamed returns the names of the metadata objects that the table does not name, with a suffix.
func (y *tidying) unnamed(objects []lake.Object, suffix string) (names []string) {
	for _, object := range objects {
		if strings.HasPrefix(object.Name, lake.MetadataFolder) && strings.HasSuffix(object.Name, suffix) && !y.references.named[object.Name] {
			names = append(names, object.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names) // an object may have several versions
}

// orphans are manifests that no snapshot has: those of commits that failed, and of snapshots that
// somebody else has expired.
type orphans struct {
	dirty      map[string]bool // they know values of files of the store that must go
	maybeDirty map[string]bool // they may know rows that must go, and may yet be committed
}

func (y *tidying) readOrphans(ctx context.Context, objects []lake.Object) (orphans, error) {
	all := orphans{map[string]bool{}, map[string]bool{}}
	if len(y.Purges) == 0 {
		return all, nil
	}
	fs, err := y.table.FS(ctx)
	if err != nil {
		return all, err
	}
	names := y.unnamed(objects, ".avro")
	dirty, maybeDirty := make([]bool, len(names)), make([]bool, len(names))
	err = inParallel(ctx, len(names), func(i int) error {
		m, err := readOrphan(fs, y.address(names[i]), y.references.location)
		switch {
		case isMissing(err): // unless it is gone, its older versions have them
			dirty[i] = true
		case errors.Is(err, errTorn):
			maybeDirty[i] = true
		case err != nil:
			return err
		case m != nil:
			dirty[i] = y.isDirty(purgeState{m.purgedBy(y.owner), never})
			maybeDirty[i] = y.isDirty(y.purgeStateOf(nil, m.others).with(y.purgeStateOf(nil, m.othersGone)))
		}
		return nil
	})
	for i, name := range names {
		if dirty[i] {
			all.dirty[name] = true
		} else if maybeDirty[i] {
			all.maybeDirty[name] = true
		}
	}
	return all, err
}

// A leftover is an object that no snapshot names, or one of its versions.
type leftover struct {
	purgedBy lake.PurgedBy
	foreign  bool // of another engine, or of a commit that failed
	modified time.Time
	grace    time.Duration // after which a foreign one is removed
	stays    string        // its name if only a person may remove it
}

// purged returns how far each purge is, with these objects.
func (y *tidying) purged(objects []lake.Object, orphans orphans, dropped map[string]bool, refused []string) (results []lake.Purged) {
	var left []leftover
	for _, object := range objects {
		file, isData := strings.CutPrefix(object.Name, lake.DataFolder)
		one := leftover{purgedBy: lake.NoPurge, modified: object.Modified}
		grace, removable := y.owner.GraceOf(y.Tidy, object.Name, dropped[object.Name])
		if one.grace = grace; !removable {
			one.stays = y.address(object.Name)
		}
		switch {
		case orphans.dirty[object.Name]:
			one.purgedBy = -1
		case orphans.maybeDirty[object.Name]:
			one.foreign = true
		case y.references.named[object.Name] || !isData:
			continue
		default:
			one.purgedBy, one.foreign = y.owner.PurgedBy(file), !y.owner.IsOwn(file)
		}
		left = append(left, one)
	}
	snapshots, refs := y.snapshots()
	purgeStates := make([]purgeState, len(snapshots))
	for i, s := range snapshots {
		purgeStates[i] = y.snapshotPurgeState(s.ID)
	}
	for _, p := range y.Purges {
		result := y.waitsForSnapshots(p, snapshots, purgeStates, refs)
		result.merge(y.waitsForObjects(p, left, refused))
		results = append(results, lake.Purged{Waits: strings.Join(result.reasons, "; "), Until: result.until})
	}
	return results
}

// A waitReason tells why a purge waits, and until when at least.
type waitReason struct {
	reasons []string
	until   time.Time // zero if time does not end it
}

func (h *waitReason) add(until time.Time, format string, args ...any) {
	h.reasons = append(h.reasons, fmt.Sprintf(format, args...))
	h.until = later(h.until, until)
}

func (h *waitReason) merge(other waitReason) {
	h.reasons = append(h.reasons, other.reasons...)
	h.until = later(h.until, other.until)
}

func (y *tidying) waitsForSnapshots(p lake.Purge, snapshots []lake.Snapshot, purgeStates []purgeState, refs []lake.Ref) (h waitReason) {
	number, until, newest := 0, time.Time{}, y.newestPurgeState()
	for i, s := range snapshots {
		if !y.includes(purgeStates[i], p) {
			continue
		}
		if at := slices.IndexFunc(refs, func(r lake.Ref) bool { return r.Head == s.ID }); at < 0 {
			if y.mustExpire(purgeStates[i], newest, p) {
				number++
				until = later(until, s.Replaced.Add(y.Grace))
			}
		} else if name := refs[at].Name; name == table.MainBranch {
			if purgeStates[i].own.Includes(p) {
				h.add(time.Time{}, "the newest snapshot has files that another engine has rewritten in part: delete the rows there, too")
			}
			if y.isInOthers(purgeStates[i], p) {
				h.add(time.Time{}, "another engine has rewritten files of this store, and its own in the newest snapshot, such as %s, may have the rows: delete them there, too, after %s",
					y.otherFile(s.ID, p), time.UnixMilli(y.rewrittenBy(p)).UTC().Format(time.RFC3339))
			}
		} else {
			h.add(time.Time{}, "branch or tag %s keeps a snapshot with the rows: drop it", name)
		}
	}
	if number > 0 {
		h.add(until, "%d snapshots have files with the rows, and may be read until %s", number, until.UTC().Format(time.RFC3339))
	}
	return h
}

// otherFile returns a file of another engine in a snapshot that may have rows of a purge.
func (y *tidying) otherFile(snapshot int64, p lake.Purge) (address string) {
	for _, m := range y.references.snapshots[snapshot] {
		for _, others := range []map[int64]string{m.othersGone, m.others} {
			for sequence, one := range others {
				if y.rewrites.since(sequence) < y.rewrittenBy(p) {
					address = one
				}
			}
		}
	}
	return address
}

func (y *tidying) waitsForObjects(p lake.Purge, left []leftover, refused []string) (h waitReason) {
	number, until := 0, time.Time{}
	foreign, foreignUntil, stays := 0, time.Time{}, ""
	for _, one := range left {
		switch {
		case one.purgedBy.Includes(p):
			number++
			until = later(until, one.modified.Add(y.Grace))
		case one.foreign && one.stays != "" && one.modified.Before(p.At.Add(y.Grace)):
			stays = one.stays
		case one.foreign && one.modified.Before(p.At.Add(y.Grace)):
			foreign++
			foreignUntil = later(foreignUntil, one.modified.Add(one.grace))
		}
	}
	if number > 0 && len(refused) > 0 {
		h.add(time.Time{}, "%d objects or versions have the rows, and the store refuses to remove them: %s", number, refused[0])
	} else if number > 0 {
		h.add(until, "%d objects or versions have the rows until %s", number, until.UTC().Format(time.RFC3339))
	}
	if stays != "" {
		h.add(time.Time{}, "%s is a file of another program, which may have the rows: remove it", stays)
	}
	if foreign > 0 {
		h.add(foreignUntil, "%d files of other engines or failed commits, which no snapshot has, may have the rows until %s", foreign, foreignUntil.UTC().Format(time.RFC3339))
	}
	return h
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
