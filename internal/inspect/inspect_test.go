package inspect

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perigeedb/perigee/event"
)

// inspectAll inspects the events of a text.
func inspectAll(t *testing.T, text string) *Report {
	t.Helper()
	x := New()
	if err := Read(strings.NewReader(text), func(event []byte) error { x.Add(event); return nil }); err != nil {
		t.Fatal(err)
	}
	return x.Report()
}

// field returns a field of a report.
func (r *Report) field(t *testing.T, path string) Field {
	t.Helper()
	for _, f := range r.Fields {
		if f.Path == path {
			return f
		}
	}
	t.Fatalf("no field %s in %+v", path, r.Fields)
	return Field{}
}

func TestFields(t *testing.T) {
	for _, c := range []struct {
		name, events, path string
		want               Field
	}{
		{"integers", `{"a":3} {"b":1} {"a":-12} {"a":null} {"a":3}`, "a", Field{
			Type: "int64", Column: event.Int64, Kinds: kinds("int", 3, "null", 1), Present: 4, Null: 1, Distinct: 2,
			Least: "-12", Greatest: "3", Examples: []string{"3", "-12"}}},
		{"numbers with fractions", `{"a":3} {"a":2.5} {"a":1e3}`, "a", Field{
			Type: "float64", Column: event.Float64, Kinds: kinds("int", 2, "float", 1), Present: 3, Distinct: 3,
			Least: "2.5", Greatest: "1e3", Examples: []string{"3", "2.5", "1e3"}}},
		{"the largest integer of 64 bits", `{"a":9223372036854775807} {"a":9223372036854775806}`, "a", Field{
			Type: "int64", Column: event.Int64, Kinds: kinds("int", 2), Present: 2, Distinct: 2,
			Least: "9223372036854775806", Greatest: "9223372036854775807", Examples: []string{"9223372036854775807", "9223372036854775806"},
			Odd: []string{"2 of 2 values are integers beyond 2^53, which a double changes"}}},
		{"2^53 is exact", `{"a":9007199254740992}`, "a", Field{
			Type: "int64", Column: event.Int64, Kinds: kinds("int", 1), Present: 1, Distinct: 1,
			Least: "9007199254740992", Greatest: "9007199254740992", Examples: []string{"9007199254740992"}}},
		{"beyond 64 bits", `{"a":9223372036854775808}`, "a", Field{
			Type: "decimal", Column: event.Decimal, Kinds: kinds("big int", 1), Present: 1, Distinct: 1,
			Least: "9223372036854775808", Greatest: "9223372036854775808", Examples: []string{"9223372036854775808"},
			Odd: []string{
				"1 of 1 values are integers beyond 2^53, which a double changes",
				"1 of 1 values are integers beyond 64 bits, which need a column of type decimal"}}},
		{"more digits than a double has", `{"a":0.1234567890123456789}`, "a", Field{
			Type: "decimal", Column: event.Decimal, Kinds: kinds("decimal", 1), Present: 1, Distinct: 1,
			Least: "0.1234567890123456789", Greatest: "0.1234567890123456789", Examples: []string{"0.1234567890123456789"},
			Odd: []string{"1 of 1 values are numbers with more digits than a double has"}}},
		{"texts, the most frequent first", `{"a":"x"} {"a":"é"} {"a":"é"} {"a":""}`, "a", Field{
			Type: "string", Column: event.String, Kinds: kinds("string", 4), Present: 4, Distinct: 3,
			Least: "", Greatest: "é", Longest: 1, Examples: []string{"é", "", "x"}}},
		{"numbers as text", `{"a":"12"} {"a":"-1.5"} {"a":"1.2.3"} {"a":"0x1"} {"a":"007"}`, "a", Field{
			Type: "string", Column: event.String, Kinds: kinds("string", 5), Present: 5, Distinct: 5,
			Least: "-1.5", Greatest: "12", Longest: 5, Examples: []string{"-1.5", "007", "0x1"}, Odd: []string{"2 of 5 texts are numbers"}}},
		{"mixed types", `{"a":"x"} {"a":7} {"a":{"b":true}} {"a":[]}`, "a", Field{
			Type: "mixed", Column: event.JSON, Kinds: kinds("string", 1, "int", 1, "object", 1, "array", 1), Present: 4, Distinct: 2,
			Least: "7", Greatest: "7", Longest: 1, Examples: []string{"x", "7"}, HasContent: true,
			Odd: []string{"mixed types: 1 int, 1 string, 1 object, 1 array"}}},
		{"a key twice", `{"a":1,"a":2}`, "a", Field{
			Type: "int64", Column: event.Int64, Kinds: kinds("int", 2), Present: 1, Distinct: 2, Least: "1", Greatest: "2",
			Examples: []string{"1", "2"}, Odd: []string{"1 of 2 values are of a key that its object has twice"}}},
		{"only null", `{"a":null}`, "a", Field{Type: "null", Column: event.JSON, Kinds: kinds("null", 1), Present: 1, Null: 1}},
		{"a field in objects", `{"u":{"id":1}} {"u":{"id":2}} {"u":{}}`, "u.id", Field{
			Type: "int64", Column: event.Int64, Kinds: kinds("int", 2), Present: 2, Distinct: 2, Least: "1", Greatest: "2", Examples: []string{"1", "2"}}},
		{"elements", `{"l":[1,2,[3]]} {"l":[]}`, "l[]", Field{
			Type: "mixed", Column: event.JSON, Kinds: kinds("int", 2, "array", 1), Present: 1, Distinct: 2, Least: "1", Greatest: "2",
			Examples: []string{"1", "2"}, InArray: true, HasContent: true, Odd: []string{"mixed types: 2 int, 1 array"}}},
		{"elements of elements", `{"l":[1,2,[3]]}`, "l[][]", Field{
			Type: "int64", Column: event.Int64, Kinds: kinds("int", 1), Present: 1, Distinct: 1, Least: "3", Greatest: "3", Examples: []string{"3"}, InArray: true}},
		{"a key with a dot", `{"a.b":{"":true}}`, `["a.b"][""]`, Field{
			Type: "bool", Column: event.Bool, Kinds: kinds("bool", 1), Present: 1, Distinct: 1, Examples: []string{"true"}}},
		{"a key with escapes", `{"caf\u00e9":"\u0041\n"}`, `café`, Field{
			Type: "string", Column: event.String, Kinds: kinds("string", 1), Present: 1, Distinct: 1, Least: "A\n", Greatest: "A\n", Longest: 2, Examples: []string{"A\n"}}},
		{"dates", `{"day":"2026-11-22"} {"day":"2026-13-01"}`, "day", Field{
			Type: "string", Column: event.String, Kinds: kinds("string", 2), Present: 2, Distinct: 2, Least: "2026-11-22", Greatest: "2026-13-01",
			Longest: 10, Examples: []string{"2026-11-22", "2026-13-01"}, Odd: []string{"1 of 2 texts are dates without a time"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := inspectAll(t, strings.ReplaceAll(c.events, "} {", "}\n{")).field(t, c.path)
			got.Path, got.Keys = "", nil
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the field (-want +got):\n%s", diff)
			}
		})
	}
}

func kinds(pairs ...any) map[string]uint64 {
	m := map[string]uint64{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = uint64(pairs[i+1].(int))
	}
	return m
}

func TestGuesses(t *testing.T) {
	for _, c := range []struct{ name, events, time, unit, event string }{
		{"RFC 3339", `{"event":"open","time":"2026-11-22T10:00:00Z"}`, "time", "text", "event"},
		{"with a space", `{"when":"2026-11-22 10:00:00.5"}`, "when", "text", ""},
		{"seconds", `{"ts":1763805600,"type":"a"}`, "ts", "s", "type"},
		{"seconds with a fraction", `{"ts":1763805600.25}`, "ts", "s", ""},
		{"milliseconds in camel case", `{"createdAt":1763805600123}`, "createdAt", "ms", ""},
		{"microseconds", `{"event_time":1763805600123456}`, "event_time", "us", ""},
		{"nanoseconds", `{"timestamp":1763805600123456789}`, "timestamp", "ns", ""},
		{"a name that says nothing", `{"x":1763805600}`, "x", "s", ""},
		{"a name that says something else", `{"id":1763805600,"user_id":1763805600123,"price":1763805600}`, "", "", ""},
		{"a year beyond", `{"x":4102444800}`, "", "", ""},
		{"one value that is no time", `{"time":"2026-11-22T10:00:00Z"} {"time":"yesterday"}`, "", "", ""},
		{"an invalid time", `{"time":"2026-02-30T10:00:00Z"}`, "", "", ""},
		{"the time that every event has", `{"created_at":1763805600,"paid_at":1763805600} {"created_at":1763805601}`, "created_at", "s", ""},
		{"the time at the top", `{"meta":{"time":1763805600},"time":1763805600}`, "time", "s", ""},
		{"the better name", `{"updated_at":1763805600,"time":1763805600}`, "time", "s", ""},
		{"no time in an array", `{"l":[{"time":1763805600}]}`, "", "", ""},
		{"the event, not its type", `{"type":"a","event_name":"b"}`, "", "", "event_name"},
		{"a sentence", `{"event":"it's 5 o'clock!"}`, "", "", ""},
		{"too many names", manyNames(), "", "", ""},
		{"a number", `{"event":5}`, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inspectAll(t, strings.ReplaceAll(c.events, "} {", "}\n{"))
			unit := ""
			if r.Time != "" {
				unit = r.field(t, r.Time).TimeUnit
			}
			if r.Time != c.time || unit != c.unit || r.EventName != c.event {
				t.Errorf("the time is %q in %q, the name %q; want %q in %q, %q", r.Time, unit, r.EventName, c.time, c.unit, c.event)
			}
		})
	}
}

func manyNames() string {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "{\"event\":\"name%d\"}\n", i)
	}
	return b.String()
}

func TestRejected(t *testing.T) {
	r := inspectAll(t, "{\"a\":1}\n[1]\n{\n  \"a\": 1\n}\n\n{\"a\":2}\n")
	if r.Events != 6 || r.Rejected != 4 || r.field(t, "a").Present != 2 {
		t.Errorf("%d events, %d rejected, %d with the field", r.Events, r.Rejected, r.field(t, "a").Present)
	}
	if first := r.Rejections[0]; first.Event != 2 || !strings.Contains(first.Reason, "array") {
		t.Errorf("the first is %+v", first)
	}
	if second := r.Rejections[1]; !strings.Contains(second.Hint, "one object per line") {
		t.Errorf("the second is %+v", second)
	}
}

func TestDistinct(t *testing.T) {
	for _, n := range []int{1, 100, 5000, 100_000} {
		x := New()
		for i := range 2 * n {
			x.Add(fmt.Appendf(nil, `{"a":%d,"b":"text %d"}`, i%n, i%n))
		}
		for _, f := range x.Report().Fields {
			if off := math.Abs(float64(f.Distinct)-float64(n)) / float64(n); off > 0.04 {
				t.Errorf("%s has %d values, counted as %d", f.Path, n, f.Distinct)
			}
		}
	}
}

// TestMemory inspects events with ever new fields, keys and texts, which may be long and deep.
func TestMemory(t *testing.T) {
	x := New()
	var before, after runtime.MemStats
	long := strings.Repeat("k", 1<<20)
	deep := strings.Repeat(`{"d":[`, 200) + strings.Repeat(`]}`, 200)
	for i := range 60_000 {
		if i == 20_000 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		x.Add(fmt.Appendf(nil, `{"f%d":{"g":%d},"t":"%d %d","n":%d.%d}`, i, i, i, i*7, i, i))
		if i%10_000 == 0 {
			x.Add(fmt.Appendf(nil, `{"%s%d":1,"long":"%s%d","deep":%s}`, long, i, long, i, deep))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
	r := x.Report()
	if len(r.Fields) != fieldsMax || r.Omitted == 0 {
		t.Errorf("%d fields, %d values omitted", len(r.Fields), r.Omitted)
	}
	for _, f := range r.Fields {
		for _, text := range append(f.Examples, f.Least, f.Greatest) {
			if len(text) > textBytesMax {
				t.Fatalf("%s keeps %d bytes", f.Path, len(text))
			}
		}
	}
}

func TestShortenKeepsCharacters(t *testing.T) {
	for pad := range 4 {
		text := strings.Repeat("a", pad) + strings.Repeat("🙂", 40)
		got := string(shorten([]byte(text)))
		if !strings.HasPrefix(text, got) || len(got) > textBytesMax || len(got) < textBytesMax-3 || strings.ContainsRune(got, '\uFFFD') {
			t.Errorf("%d: %q", pad, got)
		}
	}
}

func TestRead(t *testing.T) {
	const lines = "{\"a\":1}\n\n {\"a\":2} \r\n{\"a\":3}"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, lines)
	_ = z.Close()
	long := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, c := range []struct {
		name, in string
		want     []string
		err      string
	}{
		{"lines", lines, []string{`{"a":1}`, `{"a":2}`, `{"a":3}`}, ""},
		{"gzip", packed.String(), []string{`{"a":1}`, `{"a":2}`, `{"a":3}`}, ""},
		{"nothing", " \n", nil, ""},
		{"an array", "\n[{\"a\":1},\n {\"a\":2}]\n", []string{`{"a":1}`, `{"a":2}`}, ""},
		{"an empty array", "[]", nil, ""},
		{"elements that are no objects", `[1,[2],null]`, []string{"1", "[2]", "null"}, ""},
		{"long lines", long + "\n" + long, []string{long, long}, ""},
		{"a cut array", `[{"a":1},{"a":`, []string{`{"a":1}`}, "element 2 of the JSON array ends too early"},
		{"an array without end", `[{"a":1}`, []string{`{"a":1}`}, "not closed"},
		{"an array with a fault", `[{"a":1},{"a" 2}]`, []string{`{"a":1}`}, "element 2 of the JSON array is not JSON"},
		{"two arrays", "[1]\n[2]", []string{"1"}, `data after the JSON array, beginning with '['`},
		{"cut gzip", packed.String()[:len(packed.String())-6], []string{`{"a":1}`, `{"a":2}`}, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			err := Read(strings.NewReader(c.in), func(event []byte) error { got = append(got, string(event)); return nil })
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("the error is %v, want %q", err, c.err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" && c.name != "cut gzip" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadEnds(t *testing.T) {
	stop := errors.New("stop")
	for _, in := range []string{"{}\n{}\n{}", "[{},{},{}]"} {
		calls := 0
		err := Read(strings.NewReader(in), func([]byte) error {
			if calls++; calls == 2 {
				return stop
			}
			return nil
		})
		if !errors.Is(err, stop) || calls != 2 {
			t.Errorf("%s: %v after %d calls", in, err, calls)
		}
	}
}

// TestTooLong reads a line and an element that never end, in bounded memory.
func TestTooLong(t *testing.T) {
	for begin, want := range map[string]string{`{"a":"`: "line 1 is longer than 64 MiB", `[{"a":"`: "element 1 of the array is longer than 64 MiB"} {
		err := Read(io.MultiReader(strings.NewReader(begin), endless{}), func([]byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s…: %v, want %s", begin, err, want)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// FuzzInspect reads any bytes. Events that are lines have the same report as elements of an array.
func FuzzInspect(f *testing.F) {
	for _, seed := range []string{
		"{\"a\":1}\n{\"a\":\"2026-11-22T10:00:00Z\"}", "[{\"a\":[1,{\"b\":null}]}]", "{\"a\":1e400}\n{\"a\":-0}\n{\"a\":0.10}",
		"{\"t\":1763805600,\"\\u0000\":\"\\ud83d\\ude00\"}", "\x1f\x8b", "\x28\xb5\x2f\xfd", "[", "{\"a\":12345678901234567890}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x := New()
		var objects [][]byte
		_ = Read(bytes.NewReader(data), func(event []byte) error {
			x.Add(event)
			if bytes.HasPrefix(event, []byte("{")) && json.Valid(event) {
				objects = append(objects, bytes.Clone(event))
			}
			return nil
		})
		if _, err := json.Marshal(x.Report()); err != nil {
			t.Fatal(err)
		}
		lines, array := New(), New()
		for _, event := range objects {
			lines.Add(event)
		}
		err := Read(io.MultiReader(strings.NewReader("["), bytes.NewReader(bytes.Join(objects, []byte(","))), strings.NewReader("]")),
			func(event []byte) error { array.Add(event); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(lines.Report(), array.Report()); diff != "" {
			t.Errorf("an array differs from lines:\n%s", diff)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	doc := []byte(`{"id":123456,"event_name":"open","email":"user298426@example48.com","time":"2026-11-22T10:00:00Z","amount":12.75,"user":{"id":834855,"country":"FR"},"tags":["a","b"]}`)
	x := New()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		x.Add(doc)
	}
}
