package pipeline

import (
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
)

// This file drops events that the pipeline which wrote them has written again, after a crash, to a
// sink that delivers at least once. A unit remembers the last row of each origin.

// origins is the tree of the last rows: ^%origins(name, "position") and ^%origins(name, "number").
var origins = nodedb.Name("^%origins")

// repeats are the events of one run that the unit has seen before. Its memory is reused.
type repeats struct {
	last  map[string]event.Origin // by name: after the events so far
	seen  []bool                  // by event; empty if none was
	batch event.Batch             // the events, with an empty document for each that was seen
}

// find finds the events of a batch that the state has seen.
func (r *repeats) find(tx *nodedb.Tx, b *event.Batch) error {
	r.last, r.seen = map[string]event.Origin{}, r.seen[:0]
	for i, o := range b.Origins {
		if o.Name == "" {
			continue
		}
		last, known := r.last[o.Name]
		if !known {
			var err error
			if last, err = readOrigin(tx, o.Name); err != nil {
				return err
			}
		}
		if last.Name != "" && !isAfter(o, last) {
			r.last[o.Name] = last
			r.seen = append(r.seen, make([]bool, i+1-len(r.seen))...)
			r.seen[i] = true
			continue
		}
		r.last[o.Name] = o
	}
	return nil
}

func isAfter(a, b event.Origin) bool {
	return a.Position > b.Position || a.Position == b.Position && a.Number > b.Number
}

// readOrigin returns the last row of an origin; its name is empty if there is none.
func readOrigin(tx *nodedb.Tx, name string) (o event.Origin, err error) {
	at := origins.At(name)
	values, err := tx.GetAll(at.At("position"), at.At("number"))
	if err != nil || !values[0].Exists() {
		return o, err
	}
	position, _ := values[0].Int()
	number, _ := values[1].Int()
	return event.Origin{Name: name, Position: uint64(position), Number: uint32(number)}, nil
}

// leaveOut returns the batch with an empty document, which every script rejects, in the place of each
// event that was seen.
func (r *repeats) leaveOut(b *event.Batch) *event.Batch {
	if len(r.seen) == 0 {
		return b
	}
	r.batch.Data, r.batch.Ends = r.batch.Data[:0], r.batch.Ends[:0]
	for i := range b.Len() {
		if r.wasSeen(i) {
			r.batch.Append(nil)
		} else {
			r.batch.Append(b.Doc(i))
		}
	}
	left := *b
	left.Data, left.Ends = r.batch.Data, r.batch.Ends
	return &left
}

func (r *repeats) wasSeen(i int) bool { return i < len(r.seen) && r.seen[i] }

// finish counts the events that were seen as dropped, and remembers the last rows of those that ran.
func (r *repeats) finish(tx *nodedb.Tx, b *event.Batch, result *event.Result) (dropped uint64, err error) {
	result.Dead = slices.DeleteFunc(result.Dead, func(d event.DeadLetter) bool {
		return d.Sink == "" && r.wasSeen(int(d.Position-b.Range.First))
	})
	for i := range min(result.Ran, len(r.seen)) {
		if r.seen[i] {
			dropped++
		}
	}
	result.Dropped += int(dropped)
	last := map[string]event.Origin{}
	for i, o := range b.Origins[:min(result.Ran, len(b.Origins))] {
		if o.Name != "" && !r.wasSeen(i) {
			last[o.Name] = o
		}
	}
	for name, o := range last {
		at := origins.At(name)
		err := tx.SetAll(nodedb.Assignment{Path: at.At("position"), Value: int64(o.Position)}, nodedb.Assignment{Path: at.At("number"), Value: int64(o.Number)})
		if err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}
