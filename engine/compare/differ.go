package compare

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/engine/rowtext"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/pure"
)

// A differ compares outcomes and counts the differences.
type differ struct {
	groups
	sinks  []sinkColumns
	errors [2]*errorTexts

	compared  uint64
	different uint64
	number    uint64 // of the event that is compared, from 1
	found     bool   // it differs
	outcomes  [2]outcome
	entries   [2][]entry
	docs      [2]pure.Document
	json      [2][]byte // of appendJSONColumns
	walk      walk
	text      []byte
}

// sinkColumns describe what a sink stores.
type sinkColumns struct {
	Sink
	covered map[string]coverage // by the first key of their paths
}

// A coverage says how the columns of a sink store a field.
type coverage uint8

const (
	uncovered coverage = iota
	typed              // as a typed value
	asJSON             // as JSON
)

func (d *differ) setSinks(sinks []Sink) {
	for _, s := range sinks {
		one := sinkColumns{s, map[string]coverage{}}
		for _, c := range s.Columns {
			how := typed
			if c.Type == event.JSON {
				how = asJSON
			}
			first := firstKey(&c)
			one.covered[first] = max(one.covered[first], how)
		}
		d.sinks = append(d.sinks, one)
	}
}

// compareBatch compares what the versions made of a batch.
func (d *differ) compareBatch(in *event.Batch, sides *[2]cursor) {
	before := d.compared
	d.compared += uint64(in.Len())
	if d.sameResults(in.Len(), sides) {
		return
	}
	for i := range in.Len() {
		d.number = before + uint64(i) + 1
		for k := range sides {
			sides[k].next(i, in.Range.First+uint64(i), &d.outcomes[k])
		}
		if d.sameRows(&d.outcomes[0], &d.outcomes[1]) && len(d.outcomes[0].dead)+len(d.outcomes[1].dead) == 0 {
			continue
		}
		d.found = false
		d.compareEvent(&d.outcomes[0], &d.outcomes[1])
		if d.found {
			d.different++
		}
	}
}

// sameResults reports whether the results of a whole batch of n events are the same.
func (d *differ) sameResults(n int, sides *[2]cursor) bool {
	a, b := sides[0].Result, sides[1].Result
	if a.Ran != n || b.Ran != n || len(a.Dead)+len(b.Dead) > 0 {
		return false
	}
	for i := range a.Outputs {
		x, y := &a.Outputs[i], &b.Outputs[i]
		if !bytes.Equal(x.Data, y.Data) || !slices.Equal(x.Ends, y.Ends) || !slices.Equal(x.From, y.From) {
			return false
		}
		if d.sinks[i].ColumnsOnly && !sameColumns(d.sinks[i].Columns, x.Columns, y.Columns) {
			return false
		}
	}
	return true
}

// sameRows reports whether the rows of two outcomes have the same bytes.
func (d *differ) sameRows(a, b *outcome) bool {
	for s := range a.rows {
		x, y := a.rows[s], b.rows[s]
		if x[1]-x[0] != y[1]-y[0] {
			return false
		}
		for k := range x[1] - x[0] {
			if !d.sameRow(s, x[0]+k, y[0]+k) {
				return false
			}
		}
	}
	return true
}

// sameRow reports whether two rows of a sink have the same bytes, or columns if only those count.
func (d *differ) sameRow(sink, x, y int) bool {
	s := &d.sinks[sink]
	if !s.ColumnsOnly {
		return bytes.Equal(d.doc(0, sink, x), d.doc(1, sink, y))
	}
	for i := range s.Columns {
		if !sameCell(s.Columns[i].Type, d.cells(sink, i), [2]int{x, y}) {
			return false
		}
	}
	return true
}

// compareEvent compares the outcomes of one event.
func (d *differ) compareEvent(a, b *outcome) {
	x, y := a.failed(), b.failed()
	switch {
	case x != nil || y != nil:
		d.compareDead(allSinks, x, y, func(side int) []byte { return d.describe(side) })
	case a.isDropped() && b.isDropped():
	case b.isDropped():
		d.record(key{kind: NowDropped, sink: allSinks, stored: true}, allSinks, "", d.describe)
	case a.isDropped():
		d.record(key{kind: NoLongerDropped, sink: allSinks, stored: true}, allSinks, "", d.describe)
	default:
		for s := range d.sinks {
			d.compareSink(s)
		}
	}
}

// allSinks is the sink of differences that concern all of them.
const allSinks = -1

// compareDead compares two dead letters. One of them may be nil.
func (d *differ) compareDead(sink int, x, y *event.DeadLetter, describe func(side int) []byte) {
	k := key{sink: sink, stored: true}
	var detail string
	switch {
	case x == nil:
		k.kind, detail = NowDead, d.errors[1].textOf(y)
	case y == nil:
		k.kind, detail = NoLongerDead, d.errors[0].textOf(x)
	default:
		before, after := d.errors[0].textOf(x), d.errors[1].textOf(y)
		if before == after {
			return
		}
		k.kind, detail = DeadForAnotherReason, before+" → "+after
	}
	k.detail = kindOf(shorten([]byte(detail), textBytesMax))
	d.record(k, sink, detail, describe)
}

// record counts a difference of the event in a sink. detail is shown; show returns what a side has,
// for an example.
func (d *differ) record(k key, sink int, detail string, show func(side int) []byte) {
	d.found = true
	c, more := d.find(k, d.number)
	if c == nil {
		return
	}
	if sink != allSinks {
		c.sinks |= 1 << sink
	}
	if c.Detail == "" {
		c.Detail = shorten([]byte(detail), textBytesMax)
	}
	if more {
		e := Example{Event: d.number}
		e.Old = shorten(show(0), textBytesMax)
		e.New = shorten(show(1), textBytesMax)
		c.Examples = append(c.Examples, e)
	}
}

// describe returns what came of the event in a version: its first row, or its dead letter.
func (d *differ) describe(side int) []byte {
	o := &d.outcomes[side]
	if dead := o.failed(); dead != nil {
		return d.describeDead(side, dead)
	}
	for s, rows := range o.rows {
		if rows[0] < rows[1] {
			return d.row(side, s, rows[0])
		}
	}
	if len(o.dead) > 0 {
		return d.describeDead(side, &o.dead[0])
	}
	return []byte("dropped")
}

func (d *differ) describeDead(side int, dead *event.DeadLetter) []byte {
	d.text = fmt.Appendf(d.text[:0], "dead: %s", d.errors[side].textOf(dead))
	return d.text
}

// row returns a row as its sink stores it.
func (d *differ) row(side, sink, row int) []byte {
	s := &d.sinks[sink]
	d.text = rowtext.AppendRow(d.text[:0], s.Columns, s.Documents, "", &d.outcomes[side].result.Outputs[sink], row)
	return d.text
}

// An entry is what a version made for one sink: a row, or the dead letter of a rejected row.
type entry struct {
	row  int
	dead *event.DeadLetter
}

// listEntries lists the entries of the event for a sink, in the order in which the script made
// them.
func (d *differ) listEntries(side, sink int) []entry {
	o := &d.outcomes[side]
	all := d.entries[side][:0]
	row, end := o.rows[sink][0], o.rows[sink][1]
	for i := range o.dead {
		dead := &o.dead[i]
		if dead.Sink != d.sinks[sink].Name {
			continue
		}
		for ; row < end && len(all) < int(dead.Number); row++ {
			all = append(all, entry{row: row})
		}
		all = append(all, entry{dead: dead})
	}
	for ; row < end; row++ {
		all = append(all, entry{row: row})
	}
	d.entries[side] = all
	return all
}

// compareSink compares what the versions made of the event for a sink.
func (d *differ) compareSink(sink int) {
	a, b := d.listEntries(0, sink), d.listEntries(1, sink)
	extra := len(b) - len(a)
	same := func(x, y entry) bool {
		return x.dead == nil && y.dead == nil && d.sameRow(sink, x.row, y.row)
	}
	for len(a) > 0 && len(b) > 0 && same(a[0], b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && same(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	for i := range min(len(a), len(b)) {
		d.compareEntries(sink, a[i], b[i])
	}
	if extra == 0 {
		return
	}
	k := key{kind: NewRows, sink: sink, stored: true}
	side, rest := 1, b
	if extra < 0 {
		k.kind, side, rest = FewerRows, 0, a
	}
	further := rest[min(len(a), len(b))]
	d.record(k, sink, "", func(of int) []byte {
		switch {
		case of != side:
			return nil
		case further.dead != nil:
			return d.describeDead(side, further.dead)
		}
		return d.row(side, sink, further.row)
	})
}

func (d *differ) doc(side, sink, row int) []byte {
	return d.outcomes[side].result.Outputs[sink].Doc(row)
}

// compareEntries compares two entries of a sink.
func (d *differ) compareEntries(sink int, x, y entry) {
	if x.dead == nil && y.dead == nil {
		d.compareRows(sink, x.row, y.row)
		return
	}
	d.compareDead(sink, x.dead, y.dead, func(side int) []byte {
		one := [2]entry{x, y}[side]
		if one.dead != nil {
			return d.describeDead(side, one.dead)
		}
		return d.row(side, sink, one.row)
	})
}
