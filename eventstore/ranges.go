//go:build linux && cgo

package eventstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/event/ledger"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

const (
	// Fingerprints are kept for fingerprintAge, and for at most the last fingerprintEvents events
	// of a partition.
	fingerprintAge    = 2 * time.Hour
	fingerprintEvents = 16_000_000
)

// missingRows returns the rows of out that come from missing positions.
func missingRows(out *event.Output, held ledger.Reservation) (rows rowRuns) {
	for first, end := range held.Rows(out) {
		rows = append(rows, rowRun{first, end})
	}
	return rows
}

// A rowRuns is an ascending list of row runs.
type rowRuns []rowRun

// A rowRun is the rows [first, end).
type rowRun struct{ first, end int }

// add appends a row, which must follow the others.
func (r rowRuns) add(row int) rowRuns {
	if n := len(r); n > 0 && r[n-1].end == row {
		r[n-1].end++
		return r
	}
	return append(r, rowRun{row, row + 1})
}

func (r rowRuns) count() (rows int) {
	for _, run := range r {
		rows += run.end - run.first
	}
	return rows
}

// readRanges returns the committed positions of a partition, with the fingerprints that are
// kept.
func (t *Table) readRanges(key partKey) (event.Ranges, error) {
	// A log file may be sealed between the two reads. Changes that are also in a
	// fingerprint file are then applied twice, which is idempotent.
	t.mu.Lock()
	committed, logged := t.state(key).ledger.Committed(), slices.Clone(t.state(key).logged)
	t.mu.Unlock()
	snapshot := t.store.snapshot()
	defer snapshot.release()

	var done event.Ranges
	entry := snapshot.manifest.TableByID(t.id)
	for _, file := range entry.Fingerprints {
		changes, err := manifest.ReadFingerprints(t.store.folder, entry, file.Number)
		if err != nil {
			return nil, fmt.Errorf("eventstore: read fingerprints of table %s: %w", t.Name(), err)
		}
		for _, c := range changes {
			if c.Pipeline == key.pipeline && c.Partition == key.partition {
				done = c.Apply(done)
			}
		}
	}
	for _, c := range logged {
		c.Range.Fingerprints = slices.Clone(c.Range.Fingerprints) // Ranges may append to them
		done = c.Apply(done)
	}
	return withRecentFingerprints(done, committed), nil
}

// withRecentFingerprints returns committed with the fingerprints from fingerprinted that
// belong to its newest fingerprintEvents positions.
func withRecentFingerprints(fingerprinted, committed event.Ranges) event.Ranges {
	var done event.Ranges
	from := newest(committed, fingerprintEvents)
	for _, r := range fingerprinted {
		if len(r.Fingerprints) > 0 && r.End() > from {
			done.Add(r)
		}
	}
	for _, r := range committed {
		done.Add(r)
	}
	return done
}

// newest returns the position at which the last n events of have start.
func newest(have event.Ranges, n uint64) uint64 {
	for _, r := range slices.Backward(have) {
		if r.Count >= n {
			return r.End() - n
		}
		n -= r.Count
	}
	return 0
}

// recentFingerprints returns the fingerprint files that are still needed: the recent ones, up to
// the maximum number of events.
func recentFingerprints(files []*manifest.FingerprintsFile, now time.Time) []*manifest.FingerprintsFile {
	var events uint64
	for i, f := range slices.Backward(files) {
		if now.Sub(f.Written) > fingerprintAge || events >= fingerprintEvents {
			return files[i+1:]
		}
		events += f.Events
	}
	return files
}
