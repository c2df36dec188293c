package script

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/report"
)

// A ResultBuilder builds the event.Result of one batch from what a language returns for
// its events. Every engine uses it, so that all of them route rows, fill columns, count
// dropped events and write dead letters in the same way.
//
// Call Start, then for every event in order: append each document to Rows().Data and call
// EndDocument, or call Fail. An event with neither was dropped. Finish completes the result.
//
// A builder keeps its memory from batch to batch. One goroutine uses it at a time.
type ResultBuilder struct {
	// Invalid is for a language whose documents may be anything: the builder then checks
	// that each is a JSON object, or with Options.ReturnsValue a JSON value, and fails the event
	// of one that is not with the stage and the error that Invalid returns. Nil trusts the
	// documents.
	Invalid func(reason string) (stage string, err error)
	// Source returns which row of its event a row of a sink is, and the document that the code
	// returned for it, for a caller that removed or changed rows before it added them. Nil
	// counts the rows of the sink.
	Source func(sink, row int) (number uint32, document []byte)

	opts   *Options
	script fmt.Stringer

	in     *event.Batch
	res    *event.Result
	rows   *event.Output // where documents are appended: the first output, or mixed
	mixed  event.Output  // rows of several sinks, until Finish distributes them
	events int           // that have rows
	failed []bool        // by event; empty until one fails
	behind bool          // a failed event may have rows before those of another event

	checked    []int                 // by output: rows that are valid and have columns
	invalid    bool                  // an event failed whose rows are still there
	extractors []*document.Extractor // by sink, made when first used
	checker    *document.Checker     // for sinks without columns, made when first used
	misfits    []int                 // rows of a sink
	ends       []uint32              // of the rows that are checked
}

// An Extractor adds rows to the columns of a sink, see ResultBuilder.FinishColumns.
type Extractor interface {
	Extract(data []byte, ends []uint32, columns *event.Columns) (report.Report, error)
}

// NewResultBuilder returns a builder for a script that was loaded with opts. Dead letters
// quote the script's String.
func NewResultBuilder(opts *Options, script fmt.Stringer) *ResultBuilder {
	return &ResultBuilder{opts: opts, script: script}
}

// Start begins the result of a batch. It resets res.
func (b *ResultBuilder) Start(in *event.Batch, res *event.Result) {
	res.Reset()
	b.mixed.Reset()
	b.in, b.res, b.rows = in, res, &b.mixed
	if b.opts.Direct() {
		b.rows = &res.Outputs[0]
	}
	b.events, b.failed, b.behind = 0, b.failed[:0], false
	b.checked = slices.Grow(b.checked[:0], len(res.Outputs))[:len(res.Outputs)]
	clear(b.checked)
}

// Rows is the output to whose Data documents are appended.
func (b *ResultBuilder) Rows() *event.Output { return b.rows }

// EndDocument ends the document that was appended to Rows: it came of an event, and goes
// to a set of sinks as Options.Route returns it; 0 means that the script named none.
//
// An error says that the batch has more output than its limit allows. A *LimitError ends
// the run: call Discard for the event, and Finish. With an *Error the event alone exceeds
// the limit: pass it to Fail.
func (b *ResultBuilder) EndDocument(event int, to uint64) error {
	out := b.rows
	if n := len(out.From); n == 0 || out.From[n-1] != uint32(event) {
		b.events++
	}
	if to != 0 || len(out.To) > 0 {
		out.To = append(out.To, make([]uint64, out.Len()-len(out.To))...)
		out.To = append(out.To, to)
	}
	out.Ends = append(out.Ends, uint32(len(out.Data)))
	out.From = append(out.From, uint32(event))
	if len(out.Data) > b.opts.Limits.Output {
		return b.outputLimit(event)
	}
	return nil
}

func (b *ResultBuilder) outputLimit(event int) error {
	limit := b.opts.Limits.Output
	fault := &Error{Script: b.script.String(), Message: fmt.Sprintf("output limit: more than %d bytes", limit)}
	if _, start := b.rowsBefore(event); len(b.rows.Data)-start > limit {
		return fault
	}
	return &LimitError{Limit: "output", Err: fault}
}

// rowsBefore returns how many rows, and bytes of them, precede those of the event that
// was added last.
func (b *ResultBuilder) rowsBefore(event int) (rows, bytes int) {
	rows = len(b.rows.From)
	for rows > 0 && b.rows.From[rows-1] == uint32(event) {
		rows--
	}
	if rows > 0 {
		bytes = int(b.rows.Ends[rows-1])
	}
	return rows, bytes
}

// Discard removes the rows of the event that was added last, and what was appended for
// it since the last EndDocument.
func (b *ResultBuilder) Discard(event int) {
	out := b.rows
	rows, bytes := b.rowsBefore(event)
	if rows < len(out.From) {
		b.events--
	}
	out.Data, out.Ends, out.From = out.Data[:bytes], out.Ends[:rows], out.From[:rows]
	out.To = out.To[:min(rows, len(out.To))]
}

// AddRows adds finished rows of many events, with the sinks of each in rows.To. It copies
// them. A caller uses either AddRows or EndDocument for a batch.
func (b *ResultBuilder) AddRows(rows *event.Output) {
	for i, from := range rows.From {
		if i == 0 || from != rows.From[i-1] {
			b.events++
		}
	}
	b.opts.distribute(rows, b.res.Outputs)
}

// CheckRows does early, for the rows that AddRows has added, what Finish does: it fills
// columns and checks documents. All rows of an event must have been added.
func (b *ResultBuilder) CheckRows() error { return b.checkRows(nil) }

// Fail discards the rows of an event and makes it a dead letter of a stage. Only the first
// failure of an event counts. An *Error gives the dead letter its traceback.
func (b *ResultBuilder) Fail(event int, stage string, err error) {
	if b.Failed(event) {
		return
	}
	b.markFailed(event, stage, err)
	b.Discard(event)
	if n := len(b.rows.From); n > 0 && b.rows.From[n-1] > uint32(event) {
		b.behind = true
	}
}

func (b *ResultBuilder) markFailed(event int, stage string, err error) {
	if len(b.failed) == 0 {
		b.failed = slices.Grow(b.failed, b.in.Len())[:b.in.Len()]
		clear(b.failed)
	}
	b.failed[event] = true
	b.AddDead(event, newDead(stage, err))
}

// Failed tells whether Fail was called for the event.
func (b *ResultBuilder) Failed(event int) bool { return len(b.failed) > 0 && b.failed[event] }

func newDead(stage string, err error) event.DeadLetter {
	dead := event.DeadLetter{Stage: stage, Error: err.Error()}
	var fault *Error
	if errors.As(err, &fault) {
		dead.Traceback = fault.Traceback
		if fault.Line == 0 {
			dead.Error = fault.Message // dead.Script names the script
		}
	}
	return dead
}

// AddDead adds a dead letter. It sets Position, Original, and Script where that is empty.
func (b *ResultBuilder) AddDead(event int, dead event.DeadLetter) {
	dead.Position = b.in.Range.First + uint64(event)
	dead.Original = bytes.Clone(b.in.Doc(event))
	if dead.Script == "" {
		dead.Script = b.script.String()
	}
	b.res.Dead = append(b.res.Dead, dead)
}

// Finish completes the result for the first ran events of the batch: it counts what was
// dropped, gives each sink its rows and columns, and sorts the dead letters. A row that
// does not fit the columns of a sink becomes a dead letter of stage "column" for that sink.
func (b *ResultBuilder) Finish(ran int) error { return b.FinishColumns(ran, nil) }

// FinishColumns is like Finish, but takes typed columns from the engine: columns returns the
// extractor that fills those of a sink.
func (b *ResultBuilder) FinishColumns(ran int, columns func(sink int) Extractor) error {
	b.res.Ran = ran
	if b.behind {
		b.events -= b.removeFailed(b.rows)
	}
	b.behind = false
	b.res.Dropped = ran - b.events - b.countFailed(ran)
	if !b.opts.Direct() {
		b.opts.distribute(&b.mixed, b.res.Outputs)
	} else if !b.opts.SingleOutput {
		b.rows.To = b.rows.To[:0]
	}
	for i := range b.res.Outputs {
		b.res.Outputs[i].SetRange(b.in, ran)
	}
	if err := b.checkRows(columns); err != nil {
		return err
	}
	sortDead(b.res.Dead)
	return nil
}

// checkRows fills the columns of, and checks, the rows that were added since the last call.
func (b *ResultBuilder) checkRows(columns func(sink int) Extractor) error {
	for i := range b.res.Outputs {
		if err := b.fillColumns(i, columns); err != nil {
			return fmt.Errorf("extract columns: %w", err)
		}
	}
	if b.invalid {
		for i := range b.res.Outputs {
			b.removeFailed(&b.res.Outputs[i])
		}
		b.res.Dead = slices.DeleteFunc(b.res.Dead, func(d event.DeadLetter) bool {
			return d.Sink != "" && b.Failed(int(d.Position-b.in.Range.First))
		})
	}
	b.invalid = false
	for i := range b.res.Outputs {
		b.checked[i] = b.res.Outputs[i].Len()
	}
	return nil
}

// removeFailed removes the rows of events that failed after their rows were added, and
// returns how many events had any.
func (b *ResultBuilder) removeFailed(out *event.Output) (events int) {
	rows := b.misfits[:0]
	for row, from := range out.From {
		if !b.failed[from] {
			continue
		}
		if row == 0 || out.From[row-1] != from {
			events++
		}
		rows = append(rows, row)
	}
	b.misfits = rows
	out.RemoveRows(rows)
	return events
}

// countFailed counts the events that failed and removes the dead letters of those that
// did not run: they will run again.
func (b *ResultBuilder) countFailed(ran int) (failed int) {
	if len(b.failed) == 0 {
		return 0
	}
	for _, f := range b.failed[:ran] {
		if f {
			failed++
		}
	}
	end := b.in.Range.First + uint64(ran)
	b.res.Dead = slices.DeleteFunc(b.res.Dead, func(d event.DeadLetter) bool { return d.Position >= end })
	return failed
}

// fillColumns fills the columns of output i where its sink asks for them, and checks its
// documents where Invalid asks for that. It removes the rows that do not fit.
func (b *ResultBuilder) fillColumns(i int, columns func(sink int) Extractor) error {
	out := &b.res.Outputs[i]
	var found []report.Rejected
	var err error
	switch {
	case b.opts.SingleOutput || b.opts.Sinks[i].Columns == nil:
		out.Columns = nil
		if b.Invalid != nil {
			found, err = b.checkDocuments(i)
		}
	case columns != nil:
		found, err = b.extract(i, columns(i))
	default:
		found, err = b.extract(i, b.extractor(i))
	}
	if err != nil || len(found) == 0 {
		return err
	}
	b.removeRejected(i, found)
	return nil
}

// unchecked returns the documents of output i that have not been checked.
func (b *ResultBuilder) unchecked(i int) (data []byte, ends []uint32) {
	out, first := &b.res.Outputs[i], b.checked[i]
	if first == 0 {
		return out.Data, out.Ends
	}
	start := out.Ends[first-1]
	b.ends = b.ends[:0]
	for _, end := range out.Ends[first:] {
		b.ends = append(b.ends, end-start)
	}
	return out.Data[start:], b.ends
}

func (b *ResultBuilder) extractor(i int) *document.Extractor {
	if b.extractors == nil {
		b.extractors = make([]*document.Extractor, len(b.opts.Sinks))
	}
	if b.extractors[i] == nil {
		b.extractors[i] = document.NewExtractor(b.opts.Sinks[i].Columns)
	}
	return b.extractors[i]
}

// extract adds the documents of output i to its columns.
func (b *ResultBuilder) extract(i int, x Extractor) ([]report.Rejected, error) {
	out := &b.res.Outputs[i]
	if out.Columns == nil {
		out.Columns = new(event.Columns)
	}
	data, ends := b.unchecked(i)
	found, err := x.Extract(data, ends, out.Columns)
	return found.Rejected, err
}

// checkDocuments returns the rows of output i that are not JSON.
func (b *ResultBuilder) checkDocuments(i int) (found []report.Rejected, err error) {
	data, ends := b.unchecked(i)
	if b.opts.ReturnsValue {
		found = checkValues(data, ends)
	} else {
		if b.checker == nil {
			b.checker = document.NewChecker()
		}
		found, err = b.checker.Check(data, ends)
	}
	for k := range found {
		found[k].Row += b.checked[i]
	}
	return found, err
}

// checkValues returns the rows that are not JSON values.
func checkValues(data []byte, ends []uint32) (found []report.Rejected) {
	start := uint32(0)
	for row, end := range ends {
		if !json.Valid(data[start:end]) {
			found = append(found, report.Rejected{Row: row, Column: -1, Reason: "not JSON"})
		}
		start = end
	}
	return found
}

// removeRejected removes rows of output i and makes them dead letters.
func (b *ResultBuilder) removeRejected(i int, found []report.Rejected) {
	out := &b.res.Outputs[i]
	rows := b.misfits[:0]
	for _, bad := range found {
		if n := len(rows); n > 0 && rows[n-1] == bad.Row {
			continue // one reason is enough
		}
		rows = append(rows, bad.Row)
		from := int(out.From[bad.Row])
		if bad.Column >= 0 || b.Invalid == nil {
			b.addMisfit(i, bad)
			continue
		}
		if !b.Failed(from) {
			stage, err := b.Invalid(bad.Reason)
			b.markFailed(from, stage, err)
			b.events--
		}
		b.invalid = true
	}
	b.misfits = rows
	out.RemoveRows(rows)
}

// addMisfit adds the dead letter of a row that does not fit the columns of sink i. Every engine has
// the documents of these rows, even if it omits those of others.
func (b *ResultBuilder) addMisfit(i int, bad report.Rejected) {
	out := &b.res.Outputs[i]
	dead := event.DeadLetter{Sink: b.opts.Sinks[i].Name, Stage: "column", Error: bad.Reason}
	document := out.Doc(bad.Row)
	if b.Source != nil {
		dead.Number, document = b.Source(i, bad.Row)
	} else {
		dead.Number = out.RowNumber(bad.Row, nil)
	}
	dead.Document = KeepDocument(b.in, document)
	b.AddDead(int(out.From[bad.Row]), dead)
}

// KeepDocument returns event.DeadLetter.Document for a row that the code returned for an event of
// in.
func KeepDocument(in *event.Batch, document []byte) []byte {
	if in.State == nil {
		return nil
	}
	return bytes.Clone(document)
}

// distribute adds rows, with the sinks of each in To, to the outputs of these sinks.
func (o *Options) distribute(rows *event.Output, outputs []event.Output) {
	if o.SingleOutput {
		appendWithSinks(&outputs[0], rows)
		return
	}
	for i := range outputs {
		if len(rows.To) == 0 || o.Direct() {
			if o.Wants(i, 0) {
				appendRows(&outputs[i], rows, 0, rows.Len())
			}
			continue
		}
		first := 0 // of a run of rows that the sink gets
		for row, to := range rows.To {
			if !o.Wants(i, to) {
				appendRows(&outputs[i], rows, first, row)
				first = row + 1
			}
		}
		appendRows(&outputs[i], rows, first, rows.Len())
	}
}

// appendWithSinks appends all rows and their sinks.
func appendWithSinks(out, rows *event.Output) {
	if len(out.To)+len(rows.To) > 0 {
		out.To = append(out.To, make([]uint64, out.Len()-len(out.To))...)
		out.To = append(out.To, rows.To...)
		out.To = append(out.To, make([]uint64, rows.Len()-len(rows.To))...)
	}
	appendRows(out, rows, 0, rows.Len())
}

// appendRows appends the rows from first up to end, without their sinks.
func appendRows(out, rows *event.Output, first, end int) {
	if first == end {
		return
	}
	start := uint32(0)
	if first > 0 {
		start = rows.Ends[first-1]
	}
	move := uint32(len(out.Data)) - start // wraps around, and back
	out.Data = append(out.Data, rows.Data[start:rows.Ends[end-1]]...)
	for _, e := range rows.Ends[first:end] {
		out.Ends = append(out.Ends, e+move)
	}
	out.From = append(out.From, rows.From[first:end]...)
}

// sortDead sorts dead letters by event, then by the name of the sink and by row.
func sortDead(dead []event.DeadLetter) {
	if len(dead) < 2 {
		return
	}
	slices.SortStableFunc(dead, func(a, b event.DeadLetter) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Number, b.Number))
	})
}
