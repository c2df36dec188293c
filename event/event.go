// Package event holds what flows through Perigee: batches of JSON documents on
// the way in, rows for sinks on the way out, and ranges of positions, which name
// both.
//
// Documents stay bytes. A batch is one flat buffer plus end offsets, so that it
// crosses into a script, into C and onto a socket without a copy per event. The
// package imports no other package of Perigee.
//
// No type of this package is safe for concurrent use: a Batch, an Output and a
// Ranges each have one owner at a time.
package event

import (
	"fmt"
	"time"
	"unsafe"
)

// A Batch is a run of consecutive JSON documents from one partition. Its owner
// reuses it: a reader fills it, a script reads it, then it is filled again.
type Batch struct {
	Partition string
	Range     Range    // Range.Count == len(Ends)
	Data      []byte   // the documents, back to back
	Ends      []uint32 // Ends[i] is the offset in Data just past document i
	// Time is when the batch is processed, for columns that hold it and for scripts with a
	// state; zero means now.
	Time time.Time
	// State is what the script can read and change besides the events; nil if nothing.
	State State
	// Reads are snapshots of the states of other pipelines, in the order in which the script was told
	// their names: nil for one that is missing. They only read, and renew their snapshots in long runs.
	Reads []State
	// Timers says that the documents are timers that are due, {"key": …, "due": seconds}: the
	// function timer of the script runs on each, in place of main. The run removes each timer from
	// the state as it begins, and drops one that the state does not have any more. The state keeps
	// a timer that failed.
	Timers bool
	// Origins says of each document which pipeline wrote it, if the source knows; empty otherwise.
	// The pipeline drops documents that a state has seen before by it.
	Origins []Origin
	// Retry says that the documents are dead letters that run again: timers among them run
	// although the state does not have them any more.
	Retry bool
}

// An Origin names a row of another pipeline that has become a document. Rows of one name arrive in
// the order of position and number, and may be repeated from an earlier one on.
type Origin struct {
	Name     string // of the pipeline and the partition; "" for none
	Position uint64 // of the event in the partition
	Number   uint32 // of the row among those of the event
}

// A State is the state that a script reads and changes during the run on one batch. Its owner
// makes the changes durable with what the run returns, or drops them with it.
type State interface {
	// Session returns the session of the node database, an *ndb_session of nodedb/nodedb.h, in
	// which the script works. Only the run uses it, one thread at a time. It is in a transaction,
	// at a level that is not the run's to end. A run undoes what an event changed that fails or
	// that will run again. If a run fails as a whole, its owner drops the changes.
	Session() unsafe.Pointer
}

// Doc returns document i. It is valid until the batch is filled again.
func (b *Batch) Doc(i int) []byte {
	return b.Data[start(b.Ends, i):b.Ends[i]:b.Ends[i]]
}

// Len returns the number of documents.
func (b *Batch) Len() int { return len(b.Ends) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Data, b.Ends, b.Time, b.State, b.Reads, b.Timers, b.Retry = b.Data[:0], b.Ends[:0], time.Time{}, nil, nil, false, false
	b.Range, b.Origins = Range{Fingerprints: b.Range.Fingerprints[:0]}, b.Origins[:0]
}

// Append adds a copy of doc at the end. It does not change the range.
func (b *Batch) Append(doc []byte) {
	b.Data = append(b.Data, doc...)
	b.Ends = append(b.Ends, uint32(len(b.Data)))
}

// Tail returns the batch without its first n documents. It shares memory with b.
func (b *Batch) Tail(n int) Batch {
	from := uint32(start(b.Ends, n))
	t := Batch{Partition: b.Partition, Range: b.Range.Tail(uint64(n)), Data: b.Data[from:], Time: b.Time, State: b.State, Reads: b.Reads, Timers: b.Timers, Retry: b.Retry}
	if len(b.Origins) > 0 {
		t.Origins = b.Origins[n:]
	}
	t.Ends = make([]uint32, 0, len(b.Ends)-n)
	for _, end := range b.Ends[n:] {
		t.Ends = append(t.Ends, end-from)
	}
	return t
}

// Head returns the first n documents. It shares memory with b.
func (b *Batch) Head(n int) Batch {
	head := *b
	head.Range, head.Data, head.Ends = b.Range.Head(uint64(n)), b.Data[:start(b.Ends, n)], b.Ends[:n]
	if len(b.Origins) > 0 {
		head.Origins = b.Origins[:n]
	}
	return head
}

// An Output is what a script made of one batch for one sink. Columns are present
// only if the sink asked for them. For a sink that reads only columns, any
// document may be empty; Ends still has an entry for it.
type Output struct {
	Partition string
	Range     Range    // the input events that this output completes
	Data      []byte   // documents, back to back
	Ends      []uint32 // Ends[i] is the offset in Data just past document i
	From      []uint32 // From[i] is the input event, counted from 0 in the batch, that row i came from
	Columns   *Columns // row i is document i; nil unless the sink asked
	// To holds the set of sinks that row i was routed to, a bit for each; 0 means
	// that the script did not route the row. Only the code between a script and
	// its sinks uses it. It is empty if the script routed nothing.
	To []uint64
}

// Doc returns document i. It is valid until the output is filled again.
func (o *Output) Doc(i int) []byte {
	return o.Data[start(o.Ends, i):o.Ends[i]:o.Ends[i]]
}

// Len returns the number of rows.
func (o *Output) Len() int { return len(o.Ends) }

// Position returns the position in the partition of the event that row i came from.
func (o *Output) Position(i int) uint64 { return o.Range.First + uint64(o.From[i]) }

// Reset empties the output and keeps its memory.
func (o *Output) Reset() {
	o.Data, o.Ends, o.From, o.To = o.Data[:0], o.Ends[:0], o.From[:0], o.To[:0]
	o.Partition, o.Range = "", Range{}
	if o.Columns != nil {
		o.Columns.Reset()
	}
}

// SetRange sets partition and range to those of the first n events of the batch
// that the output was made of.
func (o *Output) SetRange(b *Batch, n int) {
	o.Partition = b.Partition
	o.Range.First, o.Range.Count, o.Range.Fingerprints = b.Range.First, uint64(n), b.Range.Fingerprints // not Head, which copies more
	if len(o.Range.Fingerprints) > 0 {
		o.Range.Fingerprints = o.Range.Fingerprints[:n:n]
	}
}

// A Result is everything that a script made of one batch. It accounts for every
// input event below Ran: the event is in an output, dead, or counted in Dropped.
type Result struct {
	Outputs []Output // one for each sink of the pipeline, in the pipeline's order
	Dead    []DeadLetter
	Dropped int // events that the script dropped on purpose
	Ran     int // input events that ran; the rest of the batch must run again
}

// Reset empties the result and its outputs and keeps their memory.
func (r *Result) Reset() {
	for i := range r.Outputs {
		r.Outputs[i].Reset()
	}
	r.Dead, r.Dropped, r.Ran = r.Dead[:0], 0, 0
}

// A DeadLetter is an event that could not be processed, or one row of it that a sink
// cannot take, with what a person needs to repair it. It owns its memory.
type DeadLetter struct {
	Position  uint64 // in the partition
	Sink      string // the sink that lacks the row; empty if the event itself failed, for all sinks
	Number    uint32 // the row's number among the event's rows in that sink; 0 if the event itself failed
	Stage     string // "parse", "script", "column" or "sink"
	Error     string
	Traceback string // of the script, if it was running
	Script    string // name and version of the script that ran
	Original  []byte // the event as it was read
	// Row and Document are for an event whose changes of a State are kept. A retry does not run the
	// script on it again: it goes on from what the script returned. At most one of them is set.
	Row      []byte // the row that a sink rejected, as package pipeline encodes it
	Document []byte // the row before its computed columns, if one of them failed or a column rejected its value
}

func (d *DeadLetter) String() string {
	return fmt.Sprintf("position %d: %s: %s", d.Position, d.Stage, d.Error)
}

func start(ends []uint32, i int) int {
	if i == 0 {
		return 0
	}
	return int(ends[i-1])
}
