package admin

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/perigeedb/perigee/engine/rowtext"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// A Filter selects dead letters. An empty field selects all.
type Filter struct {
	Pipeline string    `json:"pipeline,omitempty"`
	Stage    string    `json:"stage,omitempty"` // where the event failed: parse, script, column or sink; or damaged
	Sink     string    `json:"sink,omitempty"`  // sink that rejected a row of the event
	Text     string    `json:"text,omitempty"`  // text in the error or the event; case does not matter
	Since    time.Time `json:"since,omitzero"`  // last stored at this time or later
	Before   time.Time `json:"before,omitzero"` // last stored before this time
	IDs      []string  `json:"ids,omitempty"`   // full IDs or their first characters
}

// A DeadLetter is a failed event, or a row of it that a sink rejected.
type DeadLetter struct {
	ID          string    `json:"id"`
	Pipeline    string    `json:"pipeline"`
	Partition   string    `json:"partition"`
	Position    uint64    `json:"position"`
	Sink        string    `json:"sink,omitempty"` // sink that rejected the row
	Number      uint32    `json:"number"`         // index of the row among the rows of the event, from 0
	First       time.Time `json:"first"`          // when it was first stored
	Time        time.Time `json:"time"`           // when it was last stored
	Retried     int       `json:"retried"`        // number of retries
	Uncommitted bool      `json:"uncommitted"`    // its batch is not committed: the event may be read again
	Stage       string    `json:"stage"`
	Error       string    `json:"error"`
	Traceback   string    `json:"traceback,omitempty"`
	Script      string    `json:"script,omitempty"`
	Original    string    `json:"original,omitempty"`
	Bytes       []byte    `json:"original_base64,omitempty"` // set instead of Original if the event is not UTF-8
	Row         string    `json:"row,omitempty"`             // the row that a retry goes on from, as JSON, in place of the event
}

// Event returns the bytes of the event as read.
func (d *DeadLetter) Event() []byte {
	if d.Bytes != nil {
		return d.Bytes
	}
	return []byte(d.Original)
}

// NewDeadLetter describes a stored dead letter.
func NewDeadLetter(l deadletter.Letter) DeadLetter {
	d := DeadLetter{
		ID: l.ID(), Pipeline: l.Pipeline, Partition: l.Partition, Position: l.Position, Sink: l.Sink, Number: l.Number,
		First: l.First, Time: l.Time, Retried: l.Retried, Uncommitted: l.Uncommitted,
		Stage: l.Stage, Error: l.Error, Traceback: l.Traceback, Script: l.Script, Original: string(l.Original),
	}
	if !utf8.Valid(l.Original) {
		d.Original, d.Bytes = "", l.Original
	}
	d.Row = string(l.Document)
	if len(l.Row) > 0 {
		d.Row = rowText(l.Row)
	}
	return d
}

// rowText returns a row that a sink rejected as JSON. A row that another version has stored may be
// unreadable; its retry says so.
func rowText(row []byte) string {
	out, err := pipeline.DecodeRow(row)
	if err != nil {
		return ""
	}
	var columns []event.Column
	if out.Columns != nil {
		columns = out.Columns.Spec
	}
	return string(rowtext.AppendRow(nil, columns, false, "", out, 0))
}

// DeadLetters yields the selected dead letters by pipeline, partition and position. It
// ends after the first error.
func (a *Admin) DeadLetters(ctx context.Context, f Filter) iter.Seq2[DeadLetter, error] {
	if a.remote != nil {
		return stream[DeadLetter](ctx, a.remote, "dead-letters", f)
	}
	return func(yield func(DeadLetter, error) bool) {
		filter, err := a.resolve(f)
		if err != nil {
			yield(DeadLetter{}, err)
			return
		}
		if a.deadLetters == nil {
			return
		}
		for l, err := range a.deadLetters.List(filter) {
			if err != nil {
				yield(DeadLetter{}, err)
				return
			}
			if !yield(NewDeadLetter(l), nil) {
				return
			}
		}
	}
}

// CountDeadLetters returns the number of dead letters that f selects.
func (a *Admin) CountDeadLetters(ctx context.Context, f Filter) (int, error) {
	if a.remote != nil {
		return call[int](ctx, a.remote, "count-dead-letters", f)
	}
	filter, err := a.resolve(f)
	if err != nil || a.deadLetters == nil {
		return 0, err
	}
	return a.deadLetters.Count(filter)
}

// PurgeDeadLetters deletes the selected dead letters with their events, and returns their
// number.
func (a *Admin) PurgeDeadLetters(ctx context.Context, f Filter) (int, error) {
	if a.remote != nil {
		return call[int](ctx, a.remote, "purge-dead-letters", f)
	}
	filter, err := a.resolve(f)
	if err != nil || a.deadLetters == nil {
		return 0, err
	}
	return a.deadLetters.Purge(filter)
}

// A Queue counts the dead letters that wait for their retry.
type Queue struct {
	Waiting map[string]int `json:"waiting"`           // by pipeline
	Orphans []string       `json:"orphans,omitempty"` // pipelines in Waiting that the running engine does not have
}

// A RetryResult is the result of RetryDeadLetters.
type RetryResult struct {
	Queued      int `json:"queued"`
	Uncommitted int `json:"uncommitted"` // skipped, because their events may be read again without a retry
	Queue
}

// RetryDeadLetters moves the selected dead letters into the queues of their pipelines,
// which read them like new events. Without an engine they wait for the next one.
func (a *Admin) RetryDeadLetters(ctx context.Context, f Filter) (r RetryResult, err error) {
	if a.remote != nil {
		return call[RetryResult](ctx, a.remote, "retry-dead-letters", f)
	}
	filter, err := a.resolve(f)
	if err != nil || a.deadLetters == nil {
		return r, err
	}
	outcome, err := a.deadLetters.Retry(filter)
	if err != nil {
		return r, err
	}
	r.Queued, r.Uncommitted = outcome.Queued, outcome.Uncommitted
	r.Queue, err = a.DeadLetterQueue(ctx)
	return r, err
}

// DeadLetterQueue counts the dead letters that wait for their retry.
func (a *Admin) DeadLetterQueue(ctx context.Context) (q Queue, err error) {
	if a.remote != nil {
		return call[Queue](ctx, a.remote, "dead-letter-queue", nil)
	}
	if a.deadLetters == nil {
		return q, nil
	}
	if q.Waiting, err = a.deadLetters.Queued(); err != nil || !a.engine {
		return q, err
	}
	names, err := a.names()
	for _, pipeline := range slices.Sorted(maps.Keys(q.Waiting)) {
		if !slices.Contains(names, pipeline) {
			q.Orphans = append(q.Orphans, pipeline)
		}
	}
	return q, err
}

// resolve checks a filter and completes its IDs. A pipeline that was removed from the
// configuration may still have dead letters.
func (a *Admin) resolve(f Filter) (deadletter.Filter, error) {
	filter := deadletter.Filter{Pipeline: f.Pipeline, Stage: f.Stage, Sink: f.Sink, Text: f.Text, Since: f.Since, Before: f.Before}
	if f.Pipeline != "" {
		var stored map[string]int
		if a.deadLetters != nil {
			var err error
			if stored, err = a.deadLetters.Sizes(); err != nil {
				return filter, err
			}
		}
		if err := a.checkName(f.Pipeline, slices.Sorted(maps.Keys(stored))...); err != nil {
			return filter, err
		}
	}
	if len(f.IDs) == 0 {
		return filter, nil
	}
	if a.deadLetters == nil {
		return filter, event.WithHint(fmt.Errorf("no dead letters in data folder %s", a.data), hintOfFolder)
	}
	ids, err := a.deadLetters.Resolve(f.IDs)
	filter.IDs = ids
	return filter, event.WithHint(err, "perigee dlq list shows the IDs")
}
