package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/rowtext"
	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

const (
	eventsMax    = 1000             // of a trial
	trialTime    = 10 * time.Second // of loading and running
	trialRowsMax = 2000             // in an answer
)

// A tryRequest passes events through the script of a pipeline, or through another script in its
// place, between a source and sinks that are not there.
type tryRequest struct {
	Pipeline string  `json:"pipeline"` // "" for a script alone, whose rows are documents
	Script   *string `json:"script"`   // nil for the running one
	Events   string  `json:"events"`   // JSON documents one after the other, or lines of text
	Raw      bool    `json:"raw"`      // Events is one event, byte for byte
	Name     string  `json:"name"`     // of the test case
}

// A tryResult is what came of the events.
type tryResult struct {
	Events  int           `json:"events"`
	Rows    []triedRow    `json:"rows"`
	Sinks   []triedSink   `json:"sinks"`
	Dropped int           `json:"dropped"`
	Dead    []triedLetter `json:"dead"`
	Log     []triedLine   `json:"log"`
	Load    time.Duration `json:"load"`   // to load the script
	Took    time.Duration `json:"took"`   // to run all events
	Memory  int           `json:"memory"` // bytes of the script's VM
	More    bool          `json:"more"`   // there are more rows
}

type triedSink struct {
	Name    string      `json:"name"`
	Columns []sqlColumn `json:"columns"` // null for documents
}

// A triedRow is a row as a sink would store it.
type triedRow struct {
	Event int             `json:"event"` // index
	Sink  int             `json:"sink"`  // index
	Row   json.RawMessage `json:"row"`
}

type triedLetter struct {
	Event     int    `json:"event"`
	Sink      string `json:"sink,omitempty"`
	Stage     string `json:"stage"`
	Error     string `json:"error"`
	Traceback string `json:"traceback,omitempty"`
}

type triedLine struct {
	Level string `json:"level"`
	Text  string `json:"text"`
	At    string `json:"at"`
}

// aloneName is the name of a script without a pipeline.
const aloneName = "script.lua"

// try runs a trial. Faults of the script are in its answer's error, with their lines.
func (c *Console) try(ctx context.Context, q tryRequest) (*tryResult, error) {
	return c.run(ctx, q, time.Time{})
}

// run runs a trial with the clock at a time; the zero time is the system's clock.
func (c *Console) run(ctx context.Context, q tryRequest, now time.Time) (*tryResult, error) {
	events, err := q.split()
	if err != nil {
		return nil, err
	}
	ctx, release, err := c.beginTrial(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	began := time.Now()
	p, err := c.load(ctx, q)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	p.Freeze(now)
	p.TakeLog() // of loading
	r := &tryResult{Events: len(events), Rows: []triedRow{}, Dead: []triedLetter{}, Log: []triedLine{}, Load: time.Since(began)}
	for _, s := range p.Sinks {
		one := triedSink{Name: s.Config.Name}
		for _, column := range s.Columns {
			one.Columns = append(one.Columns, sqlColumn{column.Name, column.Type.String()})
		}
		r.Sinks = append(r.Sinks, one)
	}
	batch := newBatch(events)
	began = time.Now()
	err = p.Run(ctx, batch, func(part *event.Batch, res *event.Result) error {
		r.add(p, part, res)
		return nil
	})
	if err == nil {
		err = p.RunDue(ctx, func(*event.Batch, *event.Result) error { return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("run the script: %w", err)
	}
	r.Took, r.Memory = time.Since(began), p.Memory()
	lines, _ := p.TakeLog()
	for _, line := range lines[:min(len(lines), trialRowsMax)] {
		r.Log = append(r.Log, triedLine{strings.ToLower(line.Level.String()), line.Text, line.At})
	}
	return r, nil
}

// beginTrial waits for a place, and bounds the time of a trial.
func (c *Console) beginTrial(ctx context.Context) (_ context.Context, release func(), err error) {
	select {
	case c.trials <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	return ctx, func() { cancel(); <-c.trials }, nil
}

// split returns the events of a request.
func (q *tryRequest) split() (events [][]byte, err error) {
	if q.Raw {
		return [][]byte{[]byte(q.Events)}, nil
	}
	if events = splitDocuments(q.Events); events == nil {
		for line := range strings.Lines(q.Events) {
			if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
				events = append(events, []byte(line))
			}
		}
	}
	if len(events) > eventsMax {
		return nil, &event.Fault{Message: fmt.Sprintf("there are %d events, and a trial takes %d", len(events), eventsMax), Hint: "use perigee eval for more"}
	}
	return events, nil
}

// splitDocuments returns the JSON documents in a text, each as one line, or nil if the text is not
// a sequence of documents.
func splitDocuments(text string) (documents [][]byte) {
	decoder := json.NewDecoder(strings.NewReader(text))
	for decoder.More() {
		var one json.RawMessage
		var line bytes.Buffer
		if decoder.Decode(&one) != nil || json.Compact(&line, one) != nil {
			return nil
		}
		documents = append(documents, line.Bytes())
	}
	return documents
}

func newBatch(events [][]byte) *event.Batch {
	b := &event.Batch{Partition: "console"}
	for _, one := range events {
		b.Append(one)
	}
	b.Range = event.Range{Count: uint64(len(events))}
	return b
}

// load loads the stages of a pipeline with the script of the request.
func (c *Console) load(ctx context.Context, q tryRequest) (*trial.Pipeline, error) {
	conf, with, name := c.config.Load(), trial.Options{Documents: true}, q.Pipeline
	if q.Pipeline == "" {
		if q.Script == nil {
			return nil, &event.Fault{Message: "neither a pipeline nor a script is given"}
		}
		conf, name = c.alone(), "script"
		with.Code = &script.Code{Name: aloneName, Text: []byte(*q.Script)}
	} else {
		code, err := c.code(ctx, q)
		if err != nil {
			return nil, err
		}
		with.Code = code
	}
	p, err := trial.Load(ctx, conf, name, c.host.Options, with)
	if err != nil && with.Code != nil {
		err = engine.ScriptError(err, *with.Code)
	}
	return p, err
}

// alone returns a configuration of a script that writes documents.
func (c *Console) alone() *config.Config {
	return &config.Config{Folder: c.config.Load().Folder, Data: c.host.Data, Pipelines: []config.Pipeline{{
		Name:   "script",
		Source: config.Source{Kind: "file", Settings: map[string]any{"path": "events.ndjson"}},
		Script: &config.Script{Text: "function main(event) return event end"},
		Sinks:  []config.Sink{{Kind: "stdout"}},
	}}}
}

// code returns the code that the pipeline runs, with the text of the request if it has one. It
// returns nil for a pipeline without a script.
func (c *Console) code(ctx context.Context, q tryRequest) (*script.Code, error) {
	conf, err := engine.FindPipeline(c.config.Load(), q.Pipeline)
	if err != nil {
		return nil, err
	}
	if conf.Script == nil {
		if q.Script != nil && strings.TrimSpace(*q.Script) != "" {
			return nil, &event.Fault{Message: "pipeline " + q.Pipeline + " has no script", Hint: "try the script without a pipeline"}
		}
		return nil, nil
	}
	running, err := c.host.Admin.RunningCode(ctx, q.Pipeline)
	switch {
	case err != nil:
		return nil, err
	case running.Text == nil && q.Script != nil:
		return nil, errors.New("the script is a Go plugin, which cannot be changed here")
	case running.Text == nil:
		return nil, nil
	}
	code := &script.Code{Name: running.Name, Text: running.Text, Func: conf.Script.Func, Files: func(file string) ([]byte, error) {
		if text, ok := running.Files[file]; ok {
			return text, nil
		}
		return nil, fs.ErrNotExist
	}}
	if q.Script != nil {
		code.Text = []byte(*q.Script)
	}
	return code, nil
}

// add adds the results of a part of the batch.
func (r *tryResult) add(p *trial.Pipeline, part *event.Batch, res *event.Result) {
	first := int(part.Range.First)
	r.Dropped += res.Dropped
	for _, dead := range res.Dead {
		r.Dead = append(r.Dead, triedLetter{int(dead.Position), dead.Sink, dead.Stage, dead.Error, dead.Traceback})
	}
	for i := range res.Outputs {
		out := &res.Outputs[i]
		for k := range out.Len() {
			if len(r.Rows) == trialRowsMax {
				r.More = true
				return
			}
			row := rowtext.AppendRow(nil, p.Sinks[i].Columns, p.Sinks[i].Documents, p.Sinks[i].Rest, out, k)
			r.Rows = append(r.Rows, triedRow{first + int(out.From[k]), i, row})
		}
	}
}

// A testText is a test file.
type testText struct {
	File string `json:"file"` // suggested name
	Text string `json:"text"`
}

// testCase runs a trial at a fixed time and returns a test file that expects what came out.
func (c *Console) testCase(ctx context.Context, q tryRequest) (*testText, error) {
	if strings.TrimSpace(q.Name) == "" {
		return nil, &event.Fault{Message: "the test case has no name"}
	}
	if q.Pipeline == "" {
		return nil, &event.Fault{Message: "a test case is of a pipeline", Hint: "choose a pipeline"}
	}
	now := time.Now().UTC().Truncate(time.Second)
	r, err := c.run(ctx, q, now)
	if err != nil {
		return nil, err
	}
	events, err := q.split()
	if err != nil {
		return nil, err
	}
	conf := c.config.Load()
	file := strings.TrimSuffix(path.Base(cmp.Or(conf.File, "pipeline.yaml")), path.Ext(conf.File))
	var b strings.Builder
	fmt.Fprintf(&b, "# Run with: perigee test\npipeline: %s\ncases:\n  - name: %s\n    now: %s\n    events:\n", quote(q.Pipeline), quote(q.Name), now.Format(time.RFC3339))
	for _, one := range events {
		fmt.Fprintf(&b, "      - %s\n", quote(string(one))) // text is passed on as it is
	}
	b.WriteString("    rows:\n")
	for i, s := range r.Sinks {
		var rows []string
		for _, row := range r.Rows {
			if row.Sink == i {
				rows = append(rows, "        - "+string(row.Row)+"\n")
			}
		}
		if len(rows) == 0 {
			fmt.Fprintf(&b, "      %s: []\n", quote(s.Name))
			continue
		}
		fmt.Fprintf(&b, "      %s:\n%s", quote(s.Name), strings.Join(rows, ""))
	}
	if r.Dropped > 0 {
		fmt.Fprintf(&b, "    dropped: %d\n", r.Dropped)
	}
	if len(r.Dead) > 0 {
		b.WriteString("    dead:\n")
	}
	for _, d := range r.Dead {
		fmt.Fprintf(&b, "      - {stage: %s", d.Stage)
		if d.Sink != "" {
			fmt.Fprintf(&b, ", sink: %s", quote(d.Sink))
		}
		fmt.Fprintf(&b, ", message: %s}\n", quote(pattern(d.Error)))
	}
	return &testText{File: cmp.Or(file, "pipeline") + "_test.yaml", Text: b.String()}, nil
}
