//go:build cgo && (linux || darwin || freebsd)

package goplugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// shapes builds the plugin in testdata/shapes once for all tests.
var shapes = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "perigee-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "shapes.so")
	return path, Build(context.Background(), "testdata/shapes", path)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := shapes(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func shapesPath(t testing.TB) string {
	t.Helper()
	path, err := shapes()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func loadShapes(t testing.TB, symbol string, opts script.Options) script.Script {
	t.Helper()
	if opts.Sinks == nil {
		opts.Sinks = []script.Sink{{}}
	}
	s, err := Language().Load(context.Background(), script.Code{Name: shapesPath(t), Func: symbol}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const firstPosition = 1000

func batchOf(docs ...string) *event.Batch {
	b := &event.Batch{Partition: "p", Range: event.Range{First: firstPosition, Count: uint64(len(docs))}}
	for _, doc := range docs {
		b.Append([]byte(doc))
	}
	return b
}

// lines is what came of a batch: outputs and dead letters by their event.
func lines(res *event.Result) []string {
	var all []string
	out := &res.Outputs[0]
	for i := range out.Len() {
		all = append(all, fmt.Sprintf("%d %s", out.From[i], out.Doc(i)))
	}
	for _, d := range res.Dead {
		all = append(all, fmt.Sprintf("%d.%d %s: %s", d.Position-firstPosition, d.Number, d.Stage, d.Error))
	}
	return all
}

// runAll runs docs and checks what holds for every result.
func runAll(t testing.TB, s script.Script, docs ...string) *event.Result {
	t.Helper()
	in, res := batchOf(docs...), &event.Result{Outputs: make([]event.Output, 1)}
	if err := s.Run(context.Background(), in, res); err != nil {
		t.Fatal(err)
	}
	checkBooks(t, s, docs, in, res)
	if res.Ran != len(docs) {
		t.Errorf("ran %d of %d", res.Ran, len(docs))
	}
	return res
}

func checkBooks(t testing.TB, s script.Script, docs []string, in *event.Batch, res *event.Result) {
	t.Helper()
	if string(in.Data) != strings.Join(docs, "") {
		t.Errorf("the batch was changed to %s", in.Data)
	}
	settled := map[uint32]bool{}
	for i := range res.Outputs {
		out := &res.Outputs[i]
		if out.Partition != "p" || out.Range.First != firstPosition || out.Range.Count != uint64(res.Ran) {
			t.Errorf("output is named %s %v", out.Partition, out.Range)
		}
		for _, from := range out.From {
			settled[from] = true
		}
	}
	for _, d := range res.Dead {
		settled[uint32(d.Position-firstPosition)] = true
		if string(d.Original) != docs[d.Position-firstPosition] || d.Script != s.String() {
			t.Errorf("dead letter of %s by %s is %+v", docs[d.Position-firstPosition], s, d)
		}
	}
	if len(settled)+res.Dropped != res.Ran {
		t.Errorf("%d settled and %d dropped of %d", len(settled), res.Dropped, res.Ran)
	}
}

func expect(t testing.TB, res *event.Result, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, lines(res)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRowsReturnShapes(t *testing.T) {
	s := loadShapes(t, "Shapes", script.Options{})
	res := runAll(t, s,
		`{"what":"event","b":[1,{"c":null}],"a":1.50}`, `{"what":"several"}`, `{"what":"none"}`, `{"what":"typed nil"}`,
		`{"what":"drop"}`, `{"what":"number"}`, `{"what":"list"}`, `{"what":"error"}`, `{"what":"NaN"}`, `{"what":"deep"}`, `[1]`,
		`{"what":"event","s":"\ud83d\ude00\n\u003c"}`)
	expect(t, res,
		`0 {"a":1.5,"b":[1,{"c":null}],"what":"event"}`,
		`1 {"what":"several"}`,
		`1 {"html":"<&>"}`,
		`11 {"s":"😀\n<","what":"event"}`,
		`5.0 script: Shapes returned int; want a map[string]any, a []map[string]any, a map[string][]map[string]any by sink, or nil to drop the event`,
		`6.0 script: Shapes returned []interface {}; want a map[string]any, a []map[string]any, a map[string][]map[string]any by sink, or nil to drop the event`,
		`7.0 script: not today`,
		`8.0 script: encode result of Shapes: json: unsupported value: NaN`,
		`9.0 script: Shapes produced an invalid document: nested deeper than 512 (at byte 2560)`,
		`10.0 parse: not a JSON object but an array: send each element as an event of its own (in a file: one object per line)`+` (at byte 0)`,
	)
	if res.Dropped != 3 {
		t.Errorf("%d dropped, want 3", res.Dropped)
	}
}

func TestPanicIsADeadLetterWithThePluginsStack(t *testing.T) {
	s := loadShapes(t, "Shapes", script.Options{})
	res := runAll(t, s, `{"what":"event"}`, `{"what":"index","list":[]}`, `{"what":"index"}`, `{"what":"marshal"}`, `{"what":"event"}`)
	expect(t, res,
		`0 {"what":"event"}`, `4 {"what":"event"}`,
		`1.0 script: panic: runtime error: index out of range [3] with length 0`,
		`2.0 script: panic: interface conversion: interface {} is nil, not []interface {}`,
		`3.0 script: panic: rude`)
	trace := res.Dead[0].Traceback
	for _, part := range []string{".inner\n", ".outer\n", ".Shapes\n", "shapes.go:"} {
		if !strings.Contains(trace, part) {
			t.Errorf("traceback lacks %q:\n%s", part, trace)
		}
	}
	if strings.Contains(trace, "runtime.") || strings.Contains(trace, "goplugin.(") || strings.Contains(trace, "testing.") {
		t.Errorf("traceback has frames that are not the plugin's:\n%s", trace)
	}
	if !strings.Contains(res.Dead[2].Traceback, "MarshalJSON") {
		t.Errorf("traceback of a panic in an encoder is\n%s", res.Dead[2].Traceback)
	}
}

func TestRowsHaveExactNumbers(t *testing.T) {
	res := runAll(t, loadShapes(t, "Kinds", script.Options{}),
		`{"a":1,"b":9223372036854775807,"c":9007199254740993,"d":18446744073709551615,"e":1.5,"f":3.14159265358979323846,"g":1.0}`)
	expect(t, res, `0 {"a":"int64 1","b":"int64 9223372036854775807","c":"int64 9007199254740993",`+
		`"d":"json.Number 18446744073709551615","e":"float64 1.5","f":"json.Number 3.14159265358979323846","g":"float64 1"}`)
}

func TestValues(t *testing.T) {
	s := loadShapes(t, "Value", script.Options{ReturnsValue: true})
	res := runAll(t, s, `{"what":"row","n":1}`, `{"what":"nil"}`, `{"what":"text"}`, `{"what":"bytes"}`, `{"what":"raw"}`, `{"what":"time"}`,
		`{"what":"func"}`, `{"what":"error"}`, `[]`)
	expect(t, res, `0 {"n":1,"what":"row"}`, `1 null`, `2 "<text>"`, `3 "{}"`, `4 [1.0]`, `5 "2026-01-02T03:04:05Z"`,
		`6.0 script: encode result of Value: json: unsupported type: func()`, `7.0 script: no value`,
		`8.0 parse: not a JSON object but an array: send each element as an event of its own (in a file: one object per line) (at byte 0)`)
	if res.Dropped != 0 {
		t.Errorf("%d dropped", res.Dropped)
	}
	_, err := Language().Load(context.Background(), script.Code{Name: shapesPath(t), Func: "Same"}, script.Options{ReturnsValue: true})
	if err == nil || !strings.Contains(err.Error(), "takes batches") {
		t.Errorf("error is %v", err)
	}
}

func TestBatchShapes(t *testing.T) {
	s := loadShapes(t, "Batch", script.Options{})
	res := runAll(t, s, `{"what":"event", "a":1.50}`, `{"what":"in place"}`, `{"what":"several"}`, `{"what":"drop"}`, `no`,
		`{"what":"error"}`, `{"what":"no reason"}`, `{"what":"both"}`, `{"what":"no document"}`, `{"what":"event"}`)
	expect(t, res,
		`0 {"what":"event", "a":1.50}`, `1 {"short":1}`, `2 {"what":"several"}`, `2 {"more":true}`, `9 {"what":"event"}`,
		`4.0 parse: not a JSON object: an event must start with { (at byte 0)`,
		`5.0 script: not today`, `6.0 script: the plugin passed a nil error`, `7.0 script: after all`,
		`8.0 script: Batch produced an invalid document: the document ends too early (at byte 6)`)
	if res.Dropped != 1 {
		t.Errorf("%d dropped, want 1", res.Dropped)
	}
}

func TestBatchFaultsHitOnlyTheGuilty(t *testing.T) {
	s := loadShapes(t, "Batch", script.Options{})
	res := runAll(t, s, `{"what":"event"}`, `{"what":"error"}`, `{"what":"panic"}`, `{"what":"drop"}`, `{"what":"beyond"}`,
		`{"what":"several"}`, `{"what":"before"}`, `{"what":"caught"}`, `no`, `{"what":"in place"}`)
	expect(t, res,
		`0 {"what":"event"}`, `5 {"what":"several"}`, `5 {"more":true}`, `9 {"short":1}`,
		`1.0 script: not today`, `2.0 script: panic: at the disco`,
		`4.0 script: emit was called for event 1 of 1: events count from 0`,
		`6.0 script: fail was called for event -1 of 1: events count from 0`,
		`7.0 script: emit was called for event 1 of 1: events count from 0`,
		`8.0 parse: not a JSON object: an event must start with { (at byte 0)`)
	if trace := res.Dead[1].Traceback; !strings.Contains(trace, ".Batch\n") {
		t.Errorf("traceback is\n%s", trace)
	}
}

func TestBatchMustKeepTheOrder(t *testing.T) {
	res := runAll(t, loadShapes(t, "Backwards", script.Options{}), `{"n":1}`, `{"n":2}`)
	expect(t, res, `0 {"n":1}`, `1 {"n":2}`)
}

func TestEmitAfterTheCall(t *testing.T) {
	s := loadShapes(t, "Late", script.Options{})
	runAll(t, s, `{}`)
	expect(t, runAll(t, s, `{}`), `0.0 script: panic: emit was called after the function that it was given to had returned`)
}

func TestColumnsOfAllSinks(t *testing.T) {
	n := []event.Column{{Name: "n", Path: []string{"N"}, Type: event.Int64}}
	w := []event.Column{{Name: "w", Path: []string{"what"}, Type: event.String, Required: true}}
	for _, symbol := range []string{"Shapes", "Batch"} {
		s := loadShapes(t, symbol, script.Options{Sinks: []script.Sink{{Name: "n", Columns: n}, {Name: "none"}, {Name: "w", Columns: w}}})
		docs := []string{`{"N":1,"what":"event"}`, `{"N":null,"what":"several"}`, `{"N":1.5,"what":"event"}`, `{"what":"event","N":4}`}
		in, res := batchOf(docs...), &event.Result{Outputs: make([]event.Output, 3)}
		for range 2 { // the second run uses the first one's memory
			if err := s.Run(context.Background(), in, res); err != nil {
				t.Fatal(err)
			}
			checkBooks(t, s, docs, in, res)
			var dead []string
			for _, d := range res.Dead {
				dead = append(dead, fmt.Sprintf("%d.%d %s: %s", d.Position-firstPosition, d.Number, d.Sink, d.Error))
			}
			want := []string{"1.1 w: column w is required, but what is missing or null", "2.0 n: column n wants int64, got 1.5, which is not a whole number"}
			if diff := cmp.Diff(want, dead); diff != "" {
				t.Errorf("%s: dead (-want +got):\n%s", symbol, diff)
			}
			if diff := cmp.Diff([]int64{1, 0, 0, 4}, res.Outputs[0].Columns.Vectors[0].Ints); diff != "" {
				t.Errorf("%s: column n (-want +got):\n%s", symbol, diff)
			}
			if res.Outputs[1].Columns != nil {
				t.Errorf("%s: the sink that asked for no columns got some", symbol)
			}
			if diff := cmp.Diff([]int{4, 5, 4}, []int{res.Outputs[0].Len(), res.Outputs[1].Len(), res.Outputs[2].Len()}); diff != "" {
				t.Errorf("%s: rows of the sinks (-want +got):\n%s", symbol, diff)
			}
			if got := string(res.Outputs[2].Columns.Vectors[0].Bytes); got != "eventseveraleventevent" {
				t.Errorf("%s: column w is %q", symbol, got)
			}
		}
	}
}

// TestRouting: rows go to the sinks that the plugin names, and those without a name
// to the sinks that are not Routed.
func TestRouting(t *testing.T) {
	n := []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}
	opts := script.Options{Sinks: []script.Sink{{Name: "main"}, {Name: "audit", Routed: true, Columns: n}}}
	for symbol, docs := range map[string][]string{
		"Routed":      {`{"n":1,"to":[""]}`, `{"n":2,"to":["audit"]}`, `{"n":3,"to":["main","audit"]}`, `{"n":"x","to":["audit",""]}`, `{"to":["adit"]}`, `{"to":[]}`},
		"BatchRouted": {`{"n":1}`, `{"n":2,"to":["audit"]}`, `{"n":3,"to":["main","audit"]}`, `{"n":"x","to":["audit"],"also":true}`, `{"to":["adit"]}`, `no`},
	} {
		s := loadShapes(t, symbol, opts)
		in, res := batchOf(docs...), &event.Result{Outputs: make([]event.Output, 2)}
		for range 2 { // the second run uses the first one's memory
			if err := s.Run(context.Background(), in, res); err != nil {
				t.Fatal(err)
			}
			checkBooks(t, s, docs, in, res)
		}
		if main, audit := fmt.Sprint(res.Outputs[0].From), fmt.Sprint(res.Outputs[1].From); main != "[0 2 3]" || audit != "[1 2]" {
			t.Errorf("%s: rows in main are from %s, in audit from %s", symbol, main, audit)
		}
		if got := res.Outputs[1].Columns.Vectors[0].Ints; !slices.Equal(got, []int64{2, 3}) {
			t.Errorf("%s: column n of audit is %v", symbol, got)
		}
		if len(res.Dead) < 2 || res.Dead[0].Sink != "audit" || !strings.Contains(res.Dead[1].Error, `unknown sink "adit"; did you mean "audit"?`) {
			t.Errorf("%s: dead are %+v", symbol, res.Dead)
		}
	}
}

// TestNoDocumentTakesTheEventBack: of an event that failed nothing is left in any sink.
func TestNoDocumentTakesTheEventBack(t *testing.T) {
	good := []event.Column{{Name: "good", Path: []string{"good"}, Type: event.String}}
	s := loadShapes(t, "Batch", script.Options{Sinks: []script.Sink{{Name: "a", Columns: good}, {Name: "b"}}})
	docs := []string{`{"what":"no document"}`, `{"what":"event"}`}
	in, res := batchOf(docs...), &event.Result{Outputs: make([]event.Output, 2)}
	if err := s.Run(context.Background(), in, res); err != nil {
		t.Fatal(err)
	}
	checkBooks(t, s, docs, in, res)
	if len(res.Dead) != 1 || res.Dead[0].Stage != "script" || res.Dead[0].Sink != "" {
		t.Errorf("dead are %+v, want one letter about the event", res.Dead)
	}
	for i := range res.Outputs {
		if got := fmt.Sprint(res.Outputs[i].From); got != "[1]" {
			t.Errorf("rows of sink %d are from %s", i, got)
		}
	}
}

func TestOutputLimit(t *testing.T) {
	const text = `{"what":"text","n":%d}`
	for _, symbol := range []string{"Copies", "Batch"} {
		s := loadShapes(t, symbol, script.Options{Limits: script.Limits{Output: 100}})
		docs := []string{fmt.Sprintf(text, 20), fmt.Sprintf(text, 200), fmt.Sprintf(text, 40), fmt.Sprintf(text, 40), "no", fmt.Sprintf(text, 1)}
		in, res := batchOf(docs...), &event.Result{Outputs: make([]event.Output, 1)}
		err := s.Run(context.Background(), in, res)
		limit, ok := err.(*script.LimitError)
		if !ok || limit.Limit != "output" {
			t.Fatalf("%s: error is %v, want the output limit", symbol, err)
		}
		checkBooks(t, s, docs, in, res)
		if res.Ran != 3 || res.Outputs[0].Len() != 2 || len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, "output limit: more than 100 bytes") {
			t.Errorf("%s: ran %d, result %q", symbol, res.Ran, lines(res))
		}
	}
}

func TestLimitsThatDoNotHoldAreTold(t *testing.T) {
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	loadShapes(t, "Same", script.Options{Log: log, Limits: script.Limits{Output: 1}})
	if said.Len() > 0 {
		t.Errorf("it says %s", &said)
	}
	loadShapes(t, "Same", script.Options{Log: log, Limits: script.Limits{EventTime: time.Second}})
	if !strings.Contains(said.String(), "level=WARN") {
		t.Errorf("it says %q", &said)
	}
}

func TestCancelledRunHasNoResult(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, symbol := range []string{"Shapes", "Same"} {
		res := &event.Result{Outputs: make([]event.Output, 1)}
		if err := loadShapes(t, symbol, script.Options{}).Run(ctx, batchOf(`{"what":"event"}`), res); err != context.Canceled {
			t.Errorf("%s: error is %v", symbol, err)
		}
		if res.Ran != 0 || res.Outputs[0].Len() != 0 {
			t.Errorf("%s: ran %d with %q", symbol, res.Ran, lines(res))
		}
	}
}

func TestAtTheSameTime(t *testing.T) {
	for _, symbol := range []string{"Shapes", "Batch"} {
		s := loadShapes(t, symbol, script.Options{})
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 20 {
					expect(t, runAll(t, s, `{"what":"event"}`, `{"what":"error"}`), `0 {"what":"event"}`, `1.0 script: not today`)
				}
			})
		}
		group.Wait()
	}
}

func TestHandler(t *testing.T) {
	if _, err := Handler("Spoil").Value(nil); err == nil {
		t.Error("a handler without a plugin has a value")
	}
	spoil, err := Handler("Spoil").Load("file://" + shapesPath(t))
	if err != nil {
		t.Fatal(err)
	}
	if spoil.String() != "plugin" {
		t.Errorf("its language is %s", spoil)
	}
	row := func() map[string]any {
		return map[string]any{"gone": true, "n": 1, "object": map[string]any{"in": 1}, "list": []any{map[string]any{"in": 1}, "x"}}
	}
	given := row()
	if _, err := spoil.Value(given); err == nil || err.Error() != "spoiled" {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff(row(), given); diff != "" {
		t.Errorf("the caller's row was changed (-was +is):\n%s", diff)
	}
	crash, err := Handler("Crash").Load(shapesPath(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = crash.Value(row())
	fault, ok := err.(*script.Error)
	if !ok || fault.Message != "panic: crash" || !strings.Contains(fault.Traceback, ".Crash\n") {
		t.Errorf("error is %#v", err)
	}
	if _, err := Handler("Same").Load(shapesPath(t)); err == nil || !strings.Contains(err.Error(), "takes batches") {
		t.Errorf("error is %v", err)
	}
}

// TestExample holds the functions of the example to each other.
func TestExample(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trim.so")
	if err := Build(t.Context(), "../../examples/plugin", path); err != nil {
		t.Fatal(err)
	}
	docs := []string{
		`{"key1":1,"a":"}","key2":{"a":[1,{}]},"b":[{"key1":1},"\\\"]"]}`, ` { "key5" : "," , "c" : { } } `, `{}`, `{"key3":[]}`, `{"a":1}`,
	}
	want := []string{`0 {"a":"}","b":[{"key1":1},"\\\"]"]}`, `1 {"c":{}}`, `2 {}`, `3 {}`, `4 {"a":1}`}
	for _, symbol := range []string{"Main", "Batch"} {
		s, err := Language().Load(t.Context(), script.Code{Name: path, Func: symbol}, script.Options{Sinks: []script.Sink{{}}})
		if err != nil {
			t.Fatal(err)
		}
		got := lines(runAll(t, s, docs...))
		for i := range got {
			got[i] = strings.Join(strings.Fields(got[i]), "")
			want[i] = strings.Join(strings.Fields(want[i]), "")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", symbol, diff)
		}
	}
}

func TestStateIsRefused(t *testing.T) {
	_, err := Language().Load(t.Context(), script.Code{Name: "a.so"}, script.Options{Timer: true})
	if err == nil || !strings.Contains(err.Error(), "only scripts in Lua") {
		t.Errorf("with timers: %v, want an error about the state", err)
	}
}
