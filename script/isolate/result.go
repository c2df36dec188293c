//go:build linux

package isolate

import (
	"fmt"
	"log/slog"
	"math"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// A frame is a worker's result for a part of a batch.
type frame struct {
	ran   int
	rows  event.Output // Data is in the shared memory, and the worker may change it at any time
	dead  []deadEvent
	limit *script.LimitError
	effects
}

// A deadEvent is an event that failed.
type deadEvent struct {
	event int // index in the part
	stage string
	fault script.Error
}

// effects are the side effects of a script.
type effects struct {
	lines   []logLine
	stats   []script.Stat
	refused uint64 // number of rejected measurements
}

// A logLine is a line that a script or its engine logged.
type logLine struct {
	level        slog.Level
	text, script string
	place        string
}

// Limits on data read from a worker.
const (
	linesMax  = 2000
	labelsMax = 64
	statsMax  = 10_000
	nameMax   = 1 << 10
	// textMax is the longest message, traceback or line, in bytes.
	textMax = 16 << 10
	// missingMax is the most restrictions that a kernel may lack.
	missingMax = 10
)

// bounds are the limits that a frame must meet.
type bounds struct {
	events int // in the part
	sinks  int
	output int  // bytes
	value  bool // every event that did not fail has exactly one row
	begun  bool // an earlier piece was read
	piece  bool // more answers follow
}

// read copies and checks a frame. It does not trust the shared memory: lengths come from the
// message, and only copies are checked. It neither copies nor checks the documents.
func (f *frame) read(m *message, shared *memory, text []byte, b bounds) error {
	rows := m.d &^ (hasSinks | isPiece)
	switch {
	case m.b > uint64(b.events):
		return fmt.Errorf("%w: %d of %d events ran", errFrame, m.b, b.events)
	case rows > uint64(len(shared.ends)) || m.c > uint64(min(len(shared.data), b.output)):
		return fmt.Errorf("%w: %d rows of %d bytes", errFrame, rows, m.c)
	}
	f.ran = int(m.b)
	f.rows.Data = shared.data[:m.c:m.c]
	f.rows.Ends = append(f.rows.Ends[:0], shared.ends[:rows]...)
	f.rows.From = append(f.rows.From[:0], shared.from[:rows]...)
	f.rows.To = f.rows.To[:0]
	if m.d&hasSinks != 0 {
		f.rows.To = append(f.rows.To, shared.to[:rows]...)
	}
	if err := f.checkRows(b); err != nil {
		return err
	}
	if err := f.readText(text); err != nil {
		return err
	}
	return f.checkEvents(b)
}

// checkRows checks that the rows are within the data, in the order of their events.
func (f *frame) checkRows(b bounds) error {
	end, from := uint32(0), uint32(0)
	for i, e := range f.rows.Ends {
		if e < end || f.rows.From[i] < from || int(f.rows.From[i]) >= f.ran {
			return fmt.Errorf("%w: row %d ends at %d and is of event %d", errFrame, i, e, f.rows.From[i])
		}
		end, from = e, f.rows.From[i]
	}
	if int(end) != len(f.rows.Data) {
		return fmt.Errorf("%w: rows end at %d of %d bytes", errFrame, end, len(f.rows.Data))
	}
	if b.sinks < 64 {
		for i, to := range f.rows.To {
			if to>>b.sinks != 0 {
				return fmt.Errorf("%w: row %d is for an unknown sink", errFrame, i)
			}
		}
	}
	return nil
}

// checkEvents checks that no event is counted twice, and that all events ran, unless a limit was
// exceeded.
func (f *frame) checkEvents(b bounds) error {
	switch {
	case b.piece && (f.ran == 0 || f.ran == b.events), !b.piece && f.limit == nil && f.ran != b.events, f.limit != nil && f.ran == 0 && !b.begun:
		return fmt.Errorf("%w: %d of %d events ran", errFrame, f.ran, b.events)
	}
	row := 0
	for i, dead := range f.dead {
		if dead.event >= f.ran || i > 0 && dead.event <= f.dead[i-1].event {
			return fmt.Errorf("%w: dead letter %d is of event %d", errFrame, i, dead.event)
		}
		for row < len(f.rows.From) && int(f.rows.From[row]) < dead.event {
			row++
		}
		if row < len(f.rows.From) && int(f.rows.From[row]) == dead.event {
			return fmt.Errorf("%w: event %d has rows and failed", errFrame, dead.event)
		}
	}
	if b.value {
		if len(f.rows.To) > 0 || len(f.rows.From)+len(f.dead) != f.ran {
			return fmt.Errorf("%w: %d values of %d events", errFrame, len(f.rows.From), f.ran)
		}
		for i := 1; i < len(f.rows.From); i++ {
			if f.rows.From[i] == f.rows.From[i-1] {
				return fmt.Errorf("%w: event %d has two values", errFrame, f.rows.From[i])
			}
		}
	}
	return nil
}

// stages are the stages that a script can give a dead letter.
var stages = [...]string{"script", "parse"}

func (f *frame) encodeText(e *encoder) {
	e.int(len(f.dead))
	for i := range f.dead {
		d := &f.dead[i]
		e.int(d.event)
		e.bool(d.stage == stages[1])
		e.short(d.fault.Message, textMax)
		e.short(d.fault.Traceback, textMax)
	}
	e.bool(f.limit != nil)
	if f.limit != nil {
		e.text(f.limit.Limit)
		encodeFault(e, f.limit.Err)
	}
	f.effects.encode(e)
}

func (f *frame) readText(text []byte) error {
	d := &decoder{buf: text}
	f.dead = f.dead[:0]
	for n := d.count(); n > 0 && d.err == nil; n-- {
		dead := deadEvent{event: d.int(math.MaxUint32), stage: stages[0]}
		if d.bool() {
			dead.stage = stages[1]
		}
		dead.fault = script.Error{Message: d.short(textMax), Traceback: d.short(textMax)}
		f.dead = append(f.dead, dead)
	}
	f.limit = nil
	if d.bool() {
		f.limit = &script.LimitError{Limit: d.short(nameMax), Err: decodeFault(d)}
	}
	f.effects.decode(d)
	return d.end()
}

func encodeFault(e *encoder, fault *script.Error) {
	if fault == nil {
		fault = &script.Error{}
	}
	e.short(fault.Script, textMax)
	e.int(fault.Line)
	e.int(fault.Column)
	e.short(fault.Message, textMax)
	e.short(fault.Hint, textMax)
	e.short(fault.Traceback, textMax)
}

func decodeFault(d *decoder) *script.Error {
	const positionMax = 1 << 30
	return &script.Error{
		Script: d.short(textMax), Line: d.int(positionMax), Column: d.int(positionMax),
		Message: d.short(textMax), Hint: d.short(textMax), Traceback: d.short(textMax),
	}
}

func (x *effects) encode(e *encoder) {
	e.int(len(x.lines))
	for _, line := range x.lines {
		e.int(int(line.level) + 128)
		e.short(line.text, textMax)
		e.short(line.script, textMax)
		e.short(line.place, textMax)
	}
	e.int(len(x.stats))
	for i := range x.stats {
		encodeStat(e, &x.stats[i])
	}
	e.uint(x.refused)
}

func (x *effects) decode(d *decoder) {
	x.lines, x.stats = x.lines[:0], x.stats[:0]
	for n := d.int(linesMax); n > 0 && d.err == nil; n-- {
		x.lines = append(x.lines, logLine{slog.Level(d.int(256) - 128), d.short(textMax), d.short(textMax), d.short(textMax)})
	}
	for n := d.int(statsMax); n > 0 && d.err == nil; n-- {
		x.stats = append(x.stats, decodeStat(d))
	}
	x.refused = d.uint()
}

func encodeStat(e *encoder, s *script.Stat) {
	e.int(int(s.Kind))
	e.text(s.Name)
	e.int(len(s.Labels))
	for _, l := range s.Labels {
		e.text(l.Name)
		e.text(l.Value)
	}
	e.float(s.Value)
	e.uint(s.Count)
	e.int(len(s.Buckets))
	for _, n := range s.Buckets {
		e.uint(n)
	}
}

func decodeStat(d *decoder) script.Stat {
	s := script.Stat{Kind: script.StatKind(d.int(int(script.Histogram))), Name: d.text()}
	for n := d.int(labelsMax); n > 0 && d.err == nil; n-- {
		s.Labels = append(s.Labels, script.Label{Name: d.text(), Value: d.text()})
	}
	s.Value, s.Count = d.float(), d.uint()
	for n := d.int(labelsMax); n > 0 && d.err == nil; n-- {
		s.Buckets = append(s.Buckets, d.uint())
	}
	return s
}
