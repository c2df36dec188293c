// Package audit checks that a run delivered each event exactly once: every id from 1 to n
// must be one row, one dead letter, or dropped by the script.
//
// It does not trust the run's own counters. The caller reads the ids back from the table
// and the dead-letter stores, and decides from the event itself whether the script drops
// an id. Demos and benchmarks use it; runs with faults, several sinks or scripts that
// make several rows of an event are checked by package chaos.
package audit

import (
	"errors"
	"fmt"
)

// An Audit counts where every id was found, in one byte per id. It is not safe for
// concurrent use.
type Audit struct {
	seen            []uint8 // by id: rows in the low half, dead letters in the high half
	rows            uint64
	dead            uint64
	unknownExamples []string // messages on ids out of range
	unknown         uint64
}

const (
	oneRow   = 1
	oneDead  = 1 << 4
	rowsMask = oneDead - 1
	maxCount = oneDead - 1 // at which counting stops

	maxExamples = 5
)

// New returns an audit of the ids 1 to events.
func New(events uint64) *Audit { return &Audit{seen: make([]uint8, events+1)} }

// AddRow counts an id that was read back from a table.
func (l *Audit) AddRow(id uint64) {
	l.rows++
	if l.checkID(id, "row") && l.seen[id]&rowsMask < maxCount {
		l.seen[id] += oneRow
	}
}

// AddDead counts the id of a dead letter.
func (l *Audit) AddDead(id uint64) {
	l.dead++
	if l.checkID(id, "dead letter") && l.seen[id]>>4 < maxCount {
		l.seen[id] += oneDead
	}
}

func (l *Audit) checkID(id uint64, what string) bool {
	if id >= 1 && id < uint64(len(l.seen)) {
		return true
	}
	l.unknown++
	if len(l.unknownExamples) < maxExamples {
		l.unknownExamples = append(l.unknownExamples, fmt.Sprintf("a %s has id %d, which no event has", what, id))
	}
	return false
}

// A Report counts what happened to the events.
type Report struct {
	Events     uint64 // read by the run
	Rows       uint64 // found in the table
	Dropped    uint64 // not found, and dropped by the script
	Dead       uint64 // found in dead-letter stores
	Lost       uint64 // not found, although the script keeps them
	Duplicated uint64 // rows and dead letters in excess of one per event
	Unexpected uint64 // ids out of range, and rows of events that the script drops
	Examples   []string
}

// Report returns the counts. drops reports whether the script drops the event with an id.
func (l *Audit) Report(drops func(id uint64) bool) Report {
	r := Report{
		Events: uint64(len(l.seen) - 1), Rows: l.rows, Dead: l.dead,
		Unexpected: l.unknown, Examples: l.unknownExamples,
	}
	for id := uint64(1); id < uint64(len(l.seen)); id++ {
		rows, letters := uint64(l.seen[id]&rowsMask), uint64(l.seen[id]>>4)
		dropped := drops(id)
		switch found := rows + letters; {
		case found == 0 && dropped:
			r.Dropped++
		case found == 0:
			r.Lost++
			r.addExample("id %d is lost", id)
		case found > 1:
			r.Duplicated += found - 1
			r.addExample("id %d is in %d rows and %d dead letters", id, rows, letters)
		}
		if rows > 0 && dropped {
			r.Unexpected++
			r.addExample("id %d is a row, although the script drops it", id)
		}
	}
	return r
}

func (r *Report) addExample(format string, args ...any) {
	if len(r.Examples) < 2*maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// String returns the line that every demo ends with.
func (r Report) String() string {
	return fmt.Sprintf("%d in, %d rows, %d dropped by script, %d dead letters, %d lost, %d duplicated",
		r.Events, r.Rows, r.Dropped, r.Dead, r.Lost, r.Duplicated)
}

// Err returns nil when every event was delivered or dropped exactly once, and otherwise
// an error with examples.
func (r Report) Err() error {
	if r.Lost+r.Duplicated+r.Unexpected == 0 {
		return nil
	}
	errs := []error{fmt.Errorf("%d events lost, %d duplicated, %d unexpected", r.Lost, r.Duplicated, r.Unexpected)}
	for _, e := range r.Examples {
		errs = append(errs, errors.New(e))
	}
	return errors.Join(errs...)
}
