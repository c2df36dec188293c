package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/report"
)

var threeSinks = []Sink{{Name: "a"}, {Name: "b"}, {Name: "c", Routed: true}}

func batchOf(docs ...string) *event.Batch {
	in := &event.Batch{Partition: "p", Range: event.Range{First: 100, Count: uint64(len(docs))}}
	for _, doc := range docs {
		in.Append([]byte(doc))
	}
	return in
}

// texts lists the rows of an output as EVENT DOCUMENT.
func texts(out *event.Output) string {
	all := make([]string, out.Len())
	for i := range all {
		all[i] = fmt.Sprintf("%d%s", out.From[i], out.Doc(i))
	}
	return strings.Join(all, " ")
}

// summary lists what a result holds, a line for each output and dead letter.
func summary(res *event.Result) string {
	var s strings.Builder
	for i := range res.Outputs {
		fmt.Fprintf(&s, "%s\n", texts(&res.Outputs[i]))
	}
	for _, d := range res.Dead {
		fmt.Fprintf(&s, "dead %d %q %d %s %s %s\n", d.Position, d.Sink, d.Number, d.Stage, d.Error, d.Original)
	}
	fmt.Fprintf(&s, "ran %d dropped %d", res.Ran, res.Dropped)
	return s.String()
}

func wantSummary(t *testing.T, res *event.Result, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), summary(res)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func newTestBuilder(opts Options) (*ResultBuilder, *event.Result) {
	opts.Limits = opts.Limits.WithDefaults()
	return NewResultBuilder(&opts, limited{}), &event.Result{Outputs: make([]event.Output, opts.Outputs())}
}

func add(t *testing.T, b *ResultBuilder, event int, doc string, to uint64) {
	t.Helper()
	b.Rows().Data = append(b.Rows().Data, doc...)
	if err := b.EndDocument(event, to); err != nil {
		t.Fatal(err)
	}
}

func TestRowsGoToTheirSinks(t *testing.T) {
	for _, c := range []struct {
		to   []uint64
		want []string
	}{
		{[]uint64{0, 0, 0}, []string{"0x 1yy 2z", "0x 1yy 2z", ""}},
		{[]uint64{1, 0, 0}, []string{"0x 1yy 2z", "1yy 2z", ""}},
		{[]uint64{0, 4, 0}, []string{"0x 2z", "0x 2z", "1yy"}},
		{[]uint64{7, 2, 5}, []string{"0x 2z", "0x 1yy", "0x 2z"}},
	} {
		b, res := newTestBuilder(Options{Sinks: threeSinks})
		rows := event.Output{From: []uint32{0, 1, 2}, To: c.to, Data: []byte("xyyz"), Ends: []uint32{1, 3, 4}}
		for _, how := range []string{"one by one", "at once"} {
			b.Start(batchOf("0", "1", "2"), res)
			if how == "at once" {
				b.AddRows(&rows)
			} else {
				for i, doc := range []string{"x", "yy", "z"} {
					add(t, b, i, doc, c.to[i])
				}
			}
			if err := b.Finish(3); err != nil {
				t.Fatal(err)
			}
			for s := range res.Outputs {
				if got := texts(&res.Outputs[s]); got != c.want[s] || len(res.Outputs[s].To) > 0 {
					t.Errorf("%s, to %v: sink %d has %q, want %q", how, c.to, s, got, c.want[s])
				}
			}
		}
	}
}

// TestRowsTogether: one output, whose To names the sinks of each row once a row is routed.
func TestRowsTogether(t *testing.T) {
	b, res := newTestBuilder(Options{Sinks: threeSinks, SingleOutput: true})
	b.Start(batchOf("0", "1", "2"), res)
	var to []uint64
	b.AddRows(&event.Output{Data: []byte("x"), Ends: []uint32{1}, From: []uint32{0}})
	b.AddRows(&event.Output{Data: []byte("yy"), Ends: []uint32{2}, From: []uint32{1}, To: []uint64{4}})
	b.AddRows(&event.Output{Data: []byte("z"), Ends: []uint32{1}, From: []uint32{2}})
	if err := b.Finish(3); err != nil {
		t.Fatal(err)
	}
	to = []uint64{0, 4, 0}
	if diff := cmp.Diff(to, res.Outputs[0].To); diff != "" {
		t.Errorf("sinks (-want +got):\n%s", diff)
	}
	wantSummary(t, res, "\n0x 1yy 2z\nran 3 dropped 0")
}

// TestFailedEvents: rows of failed events leave all sinks, whenever the event failed, and
// events with neither rows nor a failure were dropped.
func TestFailedEvents(t *testing.T) {
	for _, sinks := range [][]Sink{{{Name: "a"}}, threeSinks[:2]} {
		b, res := newTestBuilder(Options{Sinks: sinks})
		for range 2 { // the builder's memory does not show in the next batch
			b.Start(batchOf("zero", "one", "two", "three", "four"), res)
			add(t, b, 0, "A", 0)
			add(t, b, 0, "B", 0)
			add(t, b, 1, "C", 0)
			b.Rows().Data = append(b.Rows().Data, "unended"...)
			b.Fail(1, "script", &Error{Script: "s.lua", Line: 3, Message: "failed"})
			b.Fail(1, "script", errors.New("a second reason"))
			add(t, b, 3, "D", 0)
			b.Fail(0, "script", errors.New("late")) // behind event 3
			if err := b.Finish(5); err != nil {
				t.Fatal(err)
			}
			rows := strings.Repeat("3D\n", len(sinks))
			wantSummary(t, res, rows+`dead 100 "" 0 script late zero
dead 101 "" 0 script s.lua:3: failed one
ran 5 dropped 2`)
		}
	}
}

// TestFailuresPastTheEnd: an event that did not run has no dead letter yet.
func TestFailuresPastTheEnd(t *testing.T) {
	b, res := newTestBuilder(Options{Sinks: []Sink{{Name: "a"}}})
	b.Start(batchOf("zero", "one", "two"), res)
	b.Fail(0, "parse", errors.New("bad"))
	b.Fail(2, "parse", errors.New("bad"))
	if err := b.Finish(2); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, res, "\n\ndead 100 \"\" 0 parse bad zero\nran 2 dropped 1")
	if out := &res.Outputs[0]; out.Partition != "p" || out.Range.First != 100 || out.Range.Count != 2 {
		t.Errorf("the output is named %s %v", out.Partition, out.Range)
	}
}

func TestOutputLimit(t *testing.T) {
	b, res := newTestBuilder(Options{Sinks: []Sink{{Name: "a"}}, Limits: Limits{Output: 10}})
	b.Start(batchOf("zero", "one", "two"), res)
	add(t, b, 0, "123456", 0)
	b.Rows().Data = append(b.Rows().Data, "12345678901"...)
	err := b.EndDocument(1, 0) // more than the limit alone
	var alone *Error
	if !errors.As(err, &alone) {
		t.Fatalf("error is %v, want an Error of the event", err)
	}
	b.Fail(1, "script", err)
	b.Rows().Data = append(b.Rows().Data, "12345"...)
	var limit *LimitError
	if err := b.EndDocument(2, 0); !errors.As(err, &limit) || limit.Limit != "output" {
		t.Fatalf("error is %v, want a LimitError", err)
	}
	b.Discard(2)
	if err := b.Finish(2); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, res, "\n0123456\ndead 101 \"\" 0 script output limit: more than 10 bytes one\nran 2 dropped 0")
}

// TestColumnsAndInvalidDocuments: a row that does not fit dies for its sink, and an
// invalid document takes its event out of every sink.
func TestColumnsAndInvalidDocuments(t *testing.T) {
	number := []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}
	b, res := newTestBuilder(Options{Sinks: []Sink{{Name: "a", Columns: number}, {Name: "b"}}})
	b.Invalid = func(reason string) (string, error) { return "script", errors.New("invalid: " + reason) }
	for range 2 {
		b.Start(batchOf("zero", "one", "two"), res)
		add(t, b, 0, `{"n":1}`, 0)
		add(t, b, 0, `{"n":"x"}`, 0)
		add(t, b, 1, `{"n":"x"}`, 0)
		add(t, b, 1, `{"n":`, 2) // only for b
		add(t, b, 2, `{"n":2}`, 0)
		if err := b.Finish(3); err != nil {
			t.Fatal(err)
		}
		wantSummary(t, res, `
0{"n":1} 2{"n":2}
0{"n":1} 0{"n":"x"} 2{"n":2}
dead 100 "a" 1 column column n wants int64, got "x" zero
dead 101 "" 0 script invalid: the document ends too early (at byte 5) one
ran 3 dropped 0`)
		if columns := res.Outputs[0].Columns; columns.Rows != 2 || !cmp.Equal(columns.Vectors[0].Ints, []int64{1, 2}) {
			t.Errorf("columns are %+v", columns)
		}
		if res.Outputs[1].Columns != nil {
			t.Error("a sink has columns that it did not ask for")
		}
	}
}

// TestDocumentOfMisfit: in a batch with a state, the dead letter of a row that does not fit a column has
// the document of this row, also for a caller that has changed rows.
func TestDocumentOfMisfit(t *testing.T) {
	number := []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}
	for _, c := range []struct {
		name, want string
		state      event.State
		source     func(sink, row int) (uint32, []byte)
	}{
		{name: "no state"},
		{name: "state", state: someState{}, want: `{"n":"y"}`},
		{name: "changed row", state: someState{}, want: "a1", source: func(sink, row int) (uint32, []byte) { return 7, fmt.Appendf(nil, "a%d", row) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, res := newTestBuilder(Options{Sinks: []Sink{{Name: "a", Columns: number}, {Name: "b"}}})
			b.Source = c.source
			in := batchOf("zero", "one")
			in.State = c.state
			b.Start(in, res)
			add(t, b, 0, `{"n":1}`, 0)
			add(t, b, 0, `{"n":"y"}`, 0)
			b.Fail(1, "script", errors.New("no"))
			if err := b.Finish(2); err != nil {
				t.Fatal(err)
			}
			if len(res.Dead) != 2 || string(res.Dead[0].Document) != c.want || len(res.Dead[1].Document) > 0 {
				t.Errorf("dead letters %+v, want the document %s in the first", res.Dead, c.want)
			}
			if want := map[bool]uint32{false: 1, true: 7}[c.source != nil]; res.Dead[0].Number != want {
				t.Errorf("the row has number %d, want %d", res.Dead[0].Number, want)
			}
		})
	}
}

type someState struct{}

func (someState) Session() unsafe.Pointer { return nil }

// TestCheckRows: rows that are checked in parts make the result that they make at once.
func TestCheckRows(t *testing.T) {
	number := []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}
	rows := func(first uint32, to []uint64, docs ...string) *event.Output {
		out := &event.Output{To: to}
		for i, doc := range docs {
			out.Data = append(out.Data, doc...)
			out.Ends = append(out.Ends, uint32(len(out.Data)))
			out.From = append(out.From, first+uint32(i/2)) // two of each event
		}
		return out
	}
	b, res := newTestBuilder(Options{Sinks: []Sink{{Name: "a", Columns: number}, {Name: "b"}, {Name: "c", Routed: true}}})
	b.Invalid = func(reason string) (string, error) { return "script", errors.New("invalid: " + reason) }
	for _, parts := range []int{1, 2} {
		b.Start(batchOf("zero", "one", "two", "three", "four", "five"), res)
		b.AddRows(rows(0, nil, `{"n":1}`, `{"n":2}`, `{"n":"x"}`, `[]`))
		if parts == 2 {
			if err := b.CheckRows(); err != nil {
				t.Fatal(err)
			}
		}
		b.Fail(3, "script", errors.New("no"))
		b.AddRows(rows(4, []uint64{1, 4, 2, 7}, `{"n":"y"}`, `{`, `{"m":5}`, `{"n":5}`))
		if err := b.Finish(6); err != nil {
			t.Fatal(err)
		}
		wantSummary(t, res, `
0{"n":1} 0{"n":2} 5{"n":5}
0{"n":1} 0{"n":2} 5{"m":5} 5{"n":5}
5{"n":5}
dead 101 "" 0 script invalid: not a JSON object but an array: send each element as an event of its own (in a file: one object per line) (at byte 0) one
dead 103 "" 0 script no three
dead 104 "" 0 script invalid: the document ends too early (at byte 1) four
ran 6 dropped 1`)
		if columns := res.Outputs[0].Columns; columns.Rows != 3 || !cmp.Equal(columns.Vectors[0].Ints, []int64{1, 2, 5}) {
			t.Errorf("in %d parts: columns are %+v", parts, columns)
		}
	}
}

// TestInvalidValues: values may be any JSON.
func TestInvalidValues(t *testing.T) {
	b, res := newTestBuilder(Options{Sinks: []Sink{{}}, ReturnsValue: true})
	b.Invalid = func(reason string) (string, error) { return "script", errors.New("invalid: " + reason) }
	b.Start(batchOf("zero", "one", "two"), res)
	for i, value := range []string{`"x"`, `nul`, `[1]`} {
		b.AddRows(&event.Output{Data: []byte(value), Ends: []uint32{uint32(len(value))}, From: []uint32{uint32(i)}})
		if err := b.CheckRows(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Finish(3); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, res, `
0"x" 2[1]
dead 101 "" 0 script invalid: not JSON one
ran 3 dropped 0`)
}

func TestResultBuilderKeepsItsMemory(t *testing.T) {
	b, res := newTestBuilder(Options{Sinks: threeSinks})
	in := batchOf("0", "1")
	allocs := testing.AllocsPerRun(20, func() {
		b.Start(in, res)
		add(t, b, 0, "{}", 0)
		add(t, b, 1, "{}", 4)
		if err := b.Finish(2); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a batch", allocs)
	}
}

func TestSortDead(t *testing.T) {
	dead := []event.DeadLetter{{Position: 2}, {Position: 1, Sink: "b"}, {Position: 1, Sink: "a", Number: 2}, {Position: 1, Sink: "a", Number: 1}, {Position: 1}}
	sortDead(dead)
	want := []event.DeadLetter{{Position: 1}, {Position: 1, Sink: "a", Number: 1}, {Position: 1, Sink: "a", Number: 2}, {Position: 1, Sink: "b"}, {Position: 2}}
	if diff := cmp.Diff(want, dead); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A brokenExtractor fails.
type brokenExtractor struct{}

func (brokenExtractor) Extract([]byte, []uint32, *event.Columns) (report.Report, error) {
	return report.Report{}, errors.New("out of memory")
}

// TestColumnsCannotBeExtracted: a result without columns is no result.
func TestColumnsCannotBeExtracted(t *testing.T) {
	b, res := newTestBuilder(Options{Sinks: []Sink{{Name: "a", Columns: []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}}}})
	b.Start(batchOf(`{"n":1}`), res)
	add(t, b, 0, `{"n":1}`, 0)
	err := b.FinishColumns(1, func(int) Extractor { return brokenExtractor{} })
	if err == nil || err.Error() != "extract columns: out of memory" {
		t.Errorf("error is %v", err)
	}
}
