package main

import (
	"encoding/json"
	"math"

	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// rewrittenProperty is the property of a table that records which of the files that other engines
// have added may have rows of the store. Snapshots tell that, but expire.
const rewrittenProperty = "perigee.rewritten"

// A rewrittenRecord is the value of that property.
type rewrittenRecord struct {
	// Seen is the sequence number up to which files are recorded.
	Seen int64 `json:"seen"`
	// Since has the sequence numbers of files that may have rows of the store; see
	// rewrites.since.
	Since map[int64]int64 `json:"since,omitempty"`
}

// recordedMax is the maximum number of sequence numbers in the property. Of a table with more, the
// files whose snapshots have expired count as unknown.
const recordedMax = 1000

const (
	always = int64(0)             // the file may have rows of any age
	never  = int64(math.MaxInt64) // the file has no rows of the store
)

// rewrites tells which files of other engines may have rows of the store, because these engines have
// rewritten files that had them. An engine that only appends its own rows has none.
type rewrites struct {
	record     rewrittenRecord
	snapshots  map[int64]*table.Snapshot // by ID
	bySequence map[int64]*table.Snapshot
}

func rewritesOf(meta table.Metadata) *rewrites {
	r := &rewrites{snapshots: map[int64]*table.Snapshot{}, bySequence: map[int64]*table.Snapshot{}}
	if err := json.Unmarshal([]byte(meta.Properties()[rewrittenProperty]), &r.record); err != nil {
		r.record = rewrittenRecord{} // then nothing is known of snapshots that have expired
	}
	for _, s := range meta.Snapshots() {
		r.snapshots[s.SnapshotID], r.bySequence[s.SequenceNumber] = &s, &s
	}
	return r
}

// since returns a time in milliseconds. Files of other engines with this sequence number may still
// contain rows of deletes made after it. Those that were added later than the delete by a change of
// rows count as written without the rows. A compaction keeps rows of any age, and so does an unknown
// change.
func (r *rewrites) since(sequence int64) int64 {
	if sequence <= 0 { // of a table that had format version 1
		return always
	}
	if sequence <= r.record.Seen {
		if since, found := r.record.Since[sequence]; found {
			return since
		}
		return never
	}
	s := r.bySequence[sequence]
	switch {
	case s == nil || s.Summary == nil || s.Summary.Operation == table.OpReplace:
		return always
	case isOwn(s):
		return never
	case s.Summary.Operation != table.OpAppend || removes(s):
		return s.TimestampMs
	case s.ParentSnapshotID == nil:
		return never
	}
	// Some engines overwrite rows by two snapshots of one commit.
	parent := r.snapshots[*s.ParentSnapshotID]
	switch {
	case parent == nil && sequence-1 <= r.record.Seen: // the commits were two
		return never
	case parent == nil || parent.Summary == nil:
		return always
	case !isOwn(parent) && (removes(parent) || parent.Summary.Operation == table.OpOverwrite || parent.Summary.Operation == table.OpDelete):
		return s.TimestampMs
	}
	return never
}

// isOwn reports whether a store has committed the files of a snapshot.
func isOwn(s *table.Snapshot) bool {
	_, found := s.Summary.Properties[misfitsProperty]
	return found
}

// removes reports whether a snapshot says that it has removed files.
func removes(s *table.Snapshot) bool { return s.Summary.Properties.GetInt("deleted-data-files", 0) > 0 }

// next returns the record with all files that the table has; ok is false if there is nothing to
// record.
func (r *rewrites) next(manifests map[string]*manifest, last int64) (value string, ok bool) {
	next, isNew := rewrittenRecord{Seen: last, Since: map[int64]int64{}}, false
	for _, m := range manifests {
		for _, others := range []map[int64]string{m.others, m.othersGone} {
			for sequence := range others {
				isNew = isNew || sequence > r.record.Seen
				if since := r.since(sequence); sequence > 0 && since != never {
					next.Since[sequence] = since
				}
			}
		}
	}
	text, err := json.Marshal(next)
	return string(text), isNew && err == nil && len(next.Since) <= recordedMax
}

// A purgeState is what a manifest or a snapshot has of the rows that purges remove.
type purgeState struct {
	own    lake.PurgedBy // by the files of the store
	others int64         // by those of other engines: the least time of rewrites.since
}

var noPurgeState = purgeState{lake.NoPurge, never}

func (t purgeState) with(other purgeState) purgeState {
	return purgeState{min(t.own, other.own), min(t.others, other.others)}
}

// purgeStateOf returns the purge state of files.
func (y *tidying) purgeStateOf(names []string, others map[int64]string) purgeState {
	t := purgeState{purgedBy(y.owner, names), never}
	for sequence := range others {
		t.others = min(t.others, y.rewrites.since(sequence))
	}
	return t
}

// rewrittenBy returns the time at which a rewrite by another engine counts as one without the rows
// of a purge. One that has begun before may end later.
func (y *tidying) rewrittenBy(p lake.Purge) int64 { return p.At.Add(y.Grace).UnixMilli() }

func (y *tidying) isInOthers(t purgeState, p lake.Purge) bool { return t.others < y.rewrittenBy(p) }
