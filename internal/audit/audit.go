// Package verify holds what came of a run against what went in: every event
// with an id from 1 to n must be a row, dropped on purpose or a dead letter, and
// be that exactly once.
//
// It believes no counter of the run. Its caller reads the ids back from where
// they ended, and says of every other id, from the event itself, whether the
// script drops it. A Ledger is not safe for concurrent use.
package audit

import (
	"errors"
	"fmt"
)

// A Audit counts where every id was seen. It takes one byte per id.
type Audit struct {
	seen            []uint8 // by id: rows in the low half, dead letters in the high half
	rows            uint64
	dead            uint64
	unknownExamples []string // ids that no event has
	unknown         uint64
}

const (
	oneRow   = 1
	oneDead  = 1 << 4
	rowsMask = oneDead - 1
	maxCount = oneDead - 1 // more of the same are counted as this many

	maxExamples = 5
)

// New makes a ledger for ids 1 to events.
func New(events uint64) *Audit { return &Audit{seen: make([]uint8, events+1)} }

// AddRow notes an id that was read back from a table.
func (l *Audit) AddRow(id uint64) {
	l.rows++
	if l.checkID(id, "row") && l.seen[id]&rowsMask < maxCount {
		l.seen[id] += oneRow
	}
}

// AddDead notes the id of an event that is a dead letter.
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

// A Report is what became of the events.
type Report struct {
	Events     uint64 // that went in
	Rows       uint64 // read back
	Dropped    uint64 // in no place, as the script wants it
	Dead       uint64 // read back
	Lost       uint64 // in no place, though the script keeps them
	Duplicated uint64 // times that an event was found again
	Unexpected uint64 // found with an id that no event has, or as a row though the script drops it
	Examples   []string
}

// Report counts. drops tells of an id whether the script drops its event.
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
			r.addExample("id %d is a row, though the script drops it", id)
		}
	}
	return r
}

func (r *Report) addExample(format string, args ...any) {
	if len(r.Examples) < 2*maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// String says it in the words that every demo ends with.
func (r Report) String() string {
	return fmt.Sprintf("%d in, %d rows, %d dropped by script, %d dead letters, %d lost, %d duplicated",
		r.Events, r.Rows, r.Dropped, r.Dead, r.Lost, r.Duplicated)
}

// Err is nil when every event was settled exactly once, and otherwise names
// some that were not.
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
