package suite

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/rowtext"
	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// A runner runs the cases of a file on its pipeline, one after the other.
type runner struct {
	file         *testFile
	opts         Settings
	loadPipeline func() (*trial.Pipeline, error)
	pipeline     *trial.Pipeline
	functions    *trial.CallableScript // nil without a case that calls one
	covered      *script.Coverage
	folder       string // of the configuration; messages name code relative to it
}

func (r *runner) close() {
	if r.functions != nil {
		_ = r.functions.Close() // it has only run
	}
	if r.pipeline != nil {
		_ = r.pipeline.Close()
	}
}

// An outcome is what came of the events of a case, and of the timers that ran.
type outcome struct {
	ran     int     // events and timers
	rows    [][]row // by sink
	dropped int
	dead    []deadLetter
	lines   []trial.Line
}

// A deadLetter is one of an event, or of a timer.
type deadLetter struct {
	event.DeadLetter
	timer bool
}

// A row is a row of a sink as JSON, and as the document that it was.
type row struct {
	input      int // number of its event or timer, in the order in which they ran
	value, doc []byte
}

// run runs one case.
func (r *runner) run(ctx context.Context, c *testCase) Result {
	began := time.Now()
	j := &judge{runner: r, testCase: c, result: Result{Name: c.settings.Name, File: r.file.path, Line: c.at.Line()}}
	if c.settings.Fresh {
		if err := r.refresh(ctx); err != nil {
			j.differ("loading the script", c.at.Get("fresh").Line(), "", err.Error())
			return j.result
		}
	}
	r.pipeline.TakeLog() // what code logged while it was loaded
	r.pipeline.Replace(c.with)
	switch {
	case c.settings.Call != nil:
		j.runCall(ctx)
	case c.settings.Each.IsSet():
		for i := range c.events {
			j.prefix = fmt.Sprintf("event %d (line %d), ", i+1, c.events[i].line)
			j.runSteps(ctx, []step{{events: c.events[i : i+1]}})
		}
	default:
		j.runSteps(ctx, c.steps)
	}
	j.result.Took = time.Since(began)
	return j.result
}

// standstill is the time of a case that says none, where it must be the same in each run.
var standstill = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// begin sets the clock to that of the case, and empties the state.
func (j *judge) begin() error {
	now := j.settings.Now.Time
	if now.IsZero() && (j.pipeline.State != nil || j.settings.Steps.IsSet()) {
		now = standstill
	}
	j.pipeline.Freeze(now)
	if j.pipeline.State == nil {
		return nil
	}
	return j.pipeline.State.Clear()
}

// process runs steps through the pipeline.
func (r *runner) process(ctx context.Context, steps []step) (*outcome, error) {
	p := r.pipeline
	o := &outcome{rows: make([][]row, len(p.Sinks))}
	add := func(part *event.Batch, res *event.Result) error {
		o.add(p, part, res)
		r.shortenPaths(o.dead)
		return nil
	}
	batch := event.Batch{Partition: "test"}
	for _, s := range steps {
		for events := s.events; len(events) > 0; events = events[batch.Len():] {
			fill(&batch, events)
			if err := p.Run(ctx, &batch, add); err != nil {
				return nil, err
			}
			if err := p.RunDue(ctx, add); err != nil {
				return nil, err
			}
		}
		if s.events == nil {
			if err := p.Wait(ctx, s.wait, add); err != nil {
				return nil, err
			}
		}
	}
	o.lines, _ = p.TakeLog()
	return o, nil
}

// fill makes a batch that follows its last one of as many events as it may have.
func fill(b *event.Batch, events []input) {
	first := b.Range.End()
	b.Reset()
	for _, one := range events {
		if b.Len() == engine.DefaultBatchEvents || b.Len() > 0 && len(b.Data) > engine.DefaultBatchBytes {
			break
		}
		b.Append(one.doc)
	}
	b.Range = event.Range{First: first, Count: uint64(b.Len())}
}

// shortenPaths makes the messages of dead letters the same on all machines.
func (r *runner) shortenPaths(dead []deadLetter) {
	for _, code := range r.pipeline.Codes {
		short, err := filepath.Rel(r.folder, code.Name)
		if err != nil || !filepath.IsAbs(code.Name) {
			continue
		}
		for i := range dead {
			dead[i].Error = strings.ReplaceAll(dead[i].Error, code.Name, filepath.ToSlash(short))
		}
	}
}

// add adds the results of a part of a batch, all of which ran.
func (o *outcome) add(p *trial.Pipeline, part *event.Batch, res *event.Result) {
	first := o.ran
	o.ran += part.Len()
	o.dropped += res.Dropped
	for _, dead := range res.Dead {
		o.dead = append(o.dead, deadLetter{dead, part.Timers})
	}
	for i := range res.Outputs {
		out := &res.Outputs[i]
		for k := range out.Len() {
			o.rows[i] = append(o.rows[i], row{
				input: first + int(out.From[k]),
				value: rowtext.AppendRow(nil, p.Sinks[i].Columns, p.Sinks[i].Documents, p.Sinks[i].Rest, out, k),
				doc:   bytes.Clone(out.Doc(k)),
			})
		}
	}
}

// documents returns the documents of all sinks by event and timer, each once: those of the first sink,
// and those that only later sinks have.
func (o *outcome) documents() (docs []row) {
	for _, rows := range o.rows {
		var missing []row
		rest := slices.Clone(docs)
		for _, one := range rows {
			same := func(other row) bool { return other.input == one.input && bytes.Equal(other.doc, one.doc) }
			if at := slices.IndexFunc(rest, same); at >= 0 {
				rest = slices.Delete(rest, at, at+1)
			} else {
				missing = append(missing, one)
			}
		}
		docs = append(docs, missing...)
	}
	slices.SortStableFunc(docs, func(a, b row) int { return cmp.Compare(a.input, b.input) })
	return docs
}

// A judge compares the outcome of a case with what it expects.
type judge struct {
	*runner
	*testCase
	prefix string // of differences
	result Result
}

// differ adds a difference.
func (j *judge) differ(what string, line int, want, got string) {
	j.result.Differences = append(j.result.Differences, Difference{j.prefix + what, line, want, got})
}

func (j *judge) runSteps(ctx context.Context, steps []step) {
	err := j.begin()
	var o *outcome
	if err == nil {
		o, err = j.process(ctx, steps)
	}
	if err != nil {
		j.differ("the run", 0, "", err.Error())
		return
	}
	for _, i := range slices.Sorted(keys(j.expect.rows)) {
		rows := make([][]byte, len(o.rows[i]))
		for k := range o.rows[i] {
			rows[k] = o.rows[i][k].value
		}
		typed := j.pipeline.Sinks[i].Columns != nil
		j.compareRows("rows of "+j.pipeline.Sinks[i].Config.Name, j.expect.rowsAt[i], j.expect.rows[i], rows, typed)
	}
	if j.expect.documents != nil {
		docs := o.documents()
		texts := make([][]byte, len(docs))
		for k := range docs {
			texts[k] = docs[k].doc
		}
		j.compareRows("documents", j.settings.Documents.Line(), j.expect.documents, texts, false)
	}
	if d := j.settings.Dropped; d != nil && *d != o.dropped {
		j.differ("dropped", j.at.Get("dropped").Line(), fmt.Sprint(*d), fmt.Sprint(o.dropped))
	}
	if j.settings.Snapshot == "" || j.settings.Dead.IsSet() {
		j.compareDead(o.dead)
	}
	j.compareLog(o.lines)
	if j.settings.Routes.IsSet() {
		j.compareRoutes(o)
	}
	j.compareState(ctx)
	if j.settings.Snapshot != "" {
		j.compareSnapshot(filepath.Join(filepath.Dir(j.file.path), j.settings.Snapshot), o)
	}
}

func keys[V any](m map[int]V) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// compareRows compares rows, or documents. In a typed row, null is like no value.
func (j *judge) compareRows(what string, line int, want []expected, got [][]byte, typed bool) {
	for i := range max(len(want), len(got)) {
		path := fmt.Sprintf("%s, row %d", what, i+1)
		switch {
		case i >= len(want):
			j.differ(path, line, "", string(got[i]))
			continue
		case i >= len(got):
			j.differ(path, want[i].line, show(&want[i].value), "")
			continue
		}
		value, err := decode(got[i])
		if err != nil {
			j.differ(path, want[i].line, show(&want[i].value), string(got[i]))
			continue
		}
		c := comparison{subset: j.settings.Subset, nullIsAbsent: typed, report: func(field string, want1, got1 *any) {
			where := path
			if field != "" {
				where += ", " + field
			}
			j.differ(where, want[i].line, show(want1), show(got1))
		}}
		c.compare("", want[i].value, value)
	}
}

// compareDead compares dead letters. Each must be expected.
func (j *judge) compareDead(got []deadLetter) {
	want := j.expect.dead
	for i := range max(len(want), len(got)) {
		what := fmt.Sprintf("dead letter %d", i+1)
		switch {
		case i >= len(want):
			j.differ("unexpected "+what, j.settings.Dead.Line(), "", describeDead(&got[i].DeadLetter))
		case i >= len(got):
			j.differ(what, want[i].line, want[i].describe(), "")
		case !want[i].matches(&got[i].DeadLetter):
			j.differ(what, want[i].line, want[i].describe(), describeDead(&got[i].DeadLetter))
		}
	}
}

func (w *expectedDead) matches(d *event.DeadLetter) bool {
	return (w.Stage == "" || w.Stage == d.Stage) && (w.Sink == "" || w.Sink == d.Sink) &&
		(w.Message == nil || w.Message.MatchString(d.Error))
}

func (w *expectedDead) describe() string {
	text := cmp.Or(w.Stage, "any stage")
	if w.Sink != "" {
		text += " of " + w.Sink
	}
	if w.Message != nil {
		text += ": /" + w.Message.String() + "/"
	}
	return text
}

func describeDead(d *event.DeadLetter) string {
	text := d.Stage
	if d.Sink != "" {
		text += " of " + d.Sink
	}
	return text + ": " + d.Error
}

// compareLog looks for the expected lines, in their order.
func (j *judge) compareLog(got []trial.Line) {
	want := j.expect.log
	if want != nil && len(want) == 0 {
		for _, line := range got {
			j.differ("log", j.settings.Log.Line(), "", describeLine(line))
		}
		return
	}
	rest := got
	for _, w := range want {
		at := slices.IndexFunc(rest, w.matches)
		if at < 0 {
			var all []string
			for _, line := range got {
				all = append(all, describeLine(line))
			}
			j.differ("log", w.line, w.describe(), strings.Join(all, "\n"))
			return
		}
		rest = rest[at+1:]
	}
}

func (w *expectedLine) matches(line trial.Line) bool {
	return (w.Level == "" || levels[w.Level] == line.Level) && w.Message.MatchString(line.Text)
}

func (w *expectedLine) describe() string {
	return strings.TrimSpace(w.Level + " /" + w.Message.String() + "/")
}

func describeLine(line trial.Line) string {
	return strings.ToLower(line.Level.String()) + " " + line.Text
}

// compareRoutes compares which sinks get rows.
func (j *judge) compareRoutes(o *outcome) {
	named := map[int]bool{}
	for _, w := range j.expect.routes {
		named[w.sink] = true
		switch n := len(o.rows[w.sink]); {
		case w.rows < 0 && n == 0:
			j.differ("routes, "+j.pipeline.Sinks[w.sink].Config.Name, w.line, "rows", "no rows")
		case w.rows >= 0 && n != w.rows:
			j.differ("routes, "+j.pipeline.Sinks[w.sink].Config.Name, w.line, fmt.Sprintf("%d rows", w.rows), fmt.Sprintf("%d rows", n))
		}
	}
	for i, rows := range o.rows {
		if !named[i] && len(rows) > 0 {
			j.differ("routes, "+j.pipeline.Sinks[i].Config.Name, j.settings.Routes.Line(), "no rows", fmt.Sprintf("%d rows", len(rows)))
		}
	}
}
