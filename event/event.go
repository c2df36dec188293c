// Package event holds what flows through Perigee: batches of JSON documents on
// the way in, rows for sinks on the way out, and the ranges of positions by
// which both are named.
//
// Documents are bytes and stay bytes. A batch is one flat buffer plus end
// offsets, so that it crosses into a script, into C and onto a socket without a
// copy per event. The package imports nothing of ours.
//
// Nothing here is safe for concurrent use: a Batch, an Output and a Ranges each
// have one owner at a time.
package event

import "fmt"

// A Batch is a run of consecutive JSON documents from one partition. Its owner
// reuses it: a reader fills it, a script reads it, then it is filled again.
type Batch struct {
	Partition string
	Range     Range    // Range.Count == len(Ends)
	Data      []byte   // the documents, back to back
	Ends      []uint32 // Ends[i] is the offset in Data just past document i
	// Only has an entry for each document, or is empty: which part of what comes
	// of it is wanted. It is for events that are tried again, of which the other
	// parts are durable already. Scripts ignore it; the pipeline heeds it.
	Only []Part
}

// A Part is one row of what comes of an event in one sink. The zero Part is all.
type Part struct {
	Sink   string // name of the sink; empty for all rows of all sinks
	Number uint32 // of the row among those of the event in that sink, counted from 0
}

// Doc returns document i, valid until the batch is filled again.
func (b *Batch) Doc(i int) []byte {
	return b.Data[start(b.Ends, i):b.Ends[i]:b.Ends[i]]
}

// Len is the number of documents.
func (b *Batch) Len() int { return len(b.Ends) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Data, b.Ends, b.Only = b.Data[:0], b.Ends[:0], b.Only[:0]
	b.Range = Range{Prints: b.Range.Prints[:0]}
}

// Append adds a copy of doc at the end. It does not touch the range.
func (b *Batch) Append(doc []byte) {
	b.Data = append(b.Data, doc...)
	b.Ends = append(b.Ends, uint32(len(b.Data)))
}

// Tail returns the batch without its first n documents. It shares memory with b.
func (b *Batch) Tail(n int) Batch {
	from := uint32(start(b.Ends, n))
	t := Batch{Partition: b.Partition, Range: b.Range.Tail(uint64(n)), Data: b.Data[from:]}
	t.Ends = make([]uint32, 0, len(b.Ends)-n)
	for _, end := range b.Ends[n:] {
		t.Ends = append(t.Ends, end-from)
	}
	if len(b.Only) > 0 {
		t.Only = b.Only[n:]
	}
	return t
}

// Head returns the first n documents. It shares memory with b.
func (b *Batch) Head(n int) Batch {
	h := Batch{Partition: b.Partition, Range: b.Range.Head(uint64(n)), Data: b.Data[:start(b.Ends, n)], Ends: b.Ends[:n]}
	if len(b.Only) > 0 {
		h.Only = b.Only[:n]
	}
	return h
}

// An Output is what a script made of one batch for one sink. Columns are there only
// where the sink asked for them. For a sink that reads nothing else, documents may be
// empty, each on its own; there is an entry in Ends for each all the same.
type Output struct {
	Partition string
	Range     Range    // the input that is settled once this output is durable
	Data      []byte   // documents, back to back
	Ends      []uint32 // Ends[i] is the offset in Data just past document i
	From      []uint32 // From[i] is the input event, counted from 0 in the batch, that output i came from
	Columns   *Columns // row i is document i; nil unless the sink asked
	// To is for what stands between a script and its sinks, and empty elsewhere: the
	// set of sinks that output i was routed to, a bit for each, 0 where the script did
	// not say. It is empty also where the script routed nothing.
	To []uint64
}

// Doc returns document i, valid until the output is filled again.
func (o *Output) Doc(i int) []byte {
	return o.Data[start(o.Ends, i):o.Ends[i]:o.Ends[i]]
}

// Len is the number of documents.
func (o *Output) Len() int { return len(o.Ends) }

// Position is the place in the partition of the input event that output i came from.
func (o *Output) Position(i int) uint64 { return o.Range.First + uint64(o.From[i]) }

// Reset empties the output and keeps its memory.
func (o *Output) Reset() {
	o.Data, o.Ends, o.From, o.To = o.Data[:0], o.Ends[:0], o.From[:0], o.To[:0]
	o.Partition, o.Range = "", Range{}
	if o.Columns != nil {
		o.Columns.Reset()
	}
}

// SetRange names the output after the first n events of the batch that it came of.
func (o *Output) SetRange(b *Batch, n int) {
	o.Partition = b.Partition
	o.Range.First, o.Range.Count, o.Range.Prints = b.Range.First, uint64(n), b.Range.Prints // Head copies more
	if len(o.Range.Prints) > 0 {
		o.Range.Prints = o.Range.Prints[:n:n]
	}
}

// A Result is everything that came of one batch. Every input event below Ran is
// settled by it: it is in an output, dead, or counted in Dropped.
type Result struct {
	Outputs []Output // one for each sink of the pipeline, in the pipeline's order
	Dead    []Dead
	Dropped int // events that a script dropped on purpose
	Ran     int // input events that ran; the rest of the batch must be run again
}

// Reset empties the result and its outputs and keeps their memory.
func (r *Result) Reset() {
	for i := range r.Outputs {
		r.Outputs[i].Reset()
	}
	r.Dead, r.Dropped, r.Ran = r.Dead[:0], 0, 0
}

// Dead is an event that could not be processed, with what a person needs to
// mend it. It owns its memory.
type Dead struct {
	Position  uint64 // in the partition
	Sink      string // the sink that lacks the row; empty when the event itself failed, for all sinks
	Number    uint32 // which row of the event in that sink, counted from 0; 0 when the event itself failed
	Stage     string // "parse", "script", "column" or "sink"
	Error     string
	Traceback string // of the script, if it got that far
	Script    string // name and version of the script that ran
	Original  []byte // the event as it was read
}

func (d *Dead) String() string {
	return fmt.Sprintf("position %d: %s: %s", d.Position, d.Stage, d.Error)
}

func start(ends []uint32, i int) int {
	if i == 0 {
		return 0
	}
	return int(ends[i-1])
}
