//go:build linux

package isolate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// smallLayout makes the shared memory small.
var smallLayout = layout{request: 256, data: 256, rows: 16, text: 512}

func newTestMemory() *memory { return smallLayout.divide(make([]byte, smallLayout.size())) }

// FuzzFrame reads arbitrary results of a worker: those that pass the checks must be usable by the
// parent.
func FuzzFrame(f *testing.F) {
	good := newTestMemory()
	copy(good.data, `{"a":1}{"b":2}`)
	copy(good.ends, []uint32{7, 14})
	copy(good.from, []uint32{0, 2})
	e := &encoder{buf: good.text[:0]}
	frame := frame{dead: []deadEvent{{event: 1, stage: "script", fault: script.Error{Message: "no", Traceback: "at"}}}, effects: effects{
		lines: []logLine{{text: "line", script: "s", place: "p"}},
		stats: []script.Stat{{Kind: script.Counter, Name: "n", Value: 1}},
	}}
	frame.encodeText(e)
	rows, texts := good.all[256:][:256+16*16], good.text
	f.Add(rows, texts, uint64(len(e.buf)), uint64(3), uint64(14), uint64(2), 3, false)
	f.Add(rows, texts, uint64(len(e.buf)), uint64(2), uint64(14), uint64(2|hasSinks), 3, true)
	f.Fuzz(func(t *testing.T, rows, texts []byte, text, ran, data, count uint64, events int, value bool) {
		shared := newTestMemory()
		copy(shared.all[256:][:256+16*16], rows)
		copy(shared.text, texts)
		if text > uint64(len(shared.text)) || events < 0 || events > 1000 {
			return
		}
		checkFrame(t, shared, message{a: text, b: ran, c: data, d: count}, bounds{events, 2, 200, value, false, count&isPiece != 0})
	})
}

// checkFrame reads a frame and, if it is accepted, builds a result from it.
func checkFrame(t *testing.T, shared *memory, m message, b bounds) {
	var f frame
	if f.read(&m, shared, shared.text[:m.a], b) != nil {
		return
	}
	for i := range shared.all[:len(shared.all)-pageBytes] { // the worker changes everything after the check
		shared.all[i] = 0xff
	}
	options := script.Options{Sinks: []script.Sink{{Name: "a"}, {Name: "b"}}, Limits: script.Limits{}.WithDefaults()}
	options.ReturnsValue = b.value
	if b.value {
		options.Sinks = options.Sinks[:1]
	}
	r := newRun(&isolatedScript{opts: options, name: "s"})
	r.s.apply(&effects{}) // nothing is logged without a log
	r.frame = f
	in := &event.Batch{}
	for range b.events {
		in.Append([]byte("{}"))
	}
	in.Range.Count = uint64(b.events)
	r.in = in
	res := &event.Result{Outputs: make([]event.Output, len(options.Sinks))}
	r.result.Start(in, res)
	r.frame.effects = effects{}
	if err := errors.Join(r.add(0), r.result.Finish(f.ran)); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for i := range res.Outputs {
		for k := range res.Outputs[i].Len() {
			if doc := res.Outputs[i].Doc(k); !json.Valid(doc) {
				t.Errorf("came out: %q", doc)
			}
		}
		for _, from := range res.Outputs[i].From {
			seen[int(from)] = true
		}
	}
	for i := range res.Dead {
		if res.Dead[i].Sink == "" {
			seen[int(res.Dead[i].Position)] = true
		}
	}
	if len(seen)+res.Dropped != f.ran {
		t.Errorf("%d events came out or died, %d were dropped, %d ran", len(seen), res.Dropped, f.ran)
	}
	stats := &script.Stats{}
	_ = stats.Merge(f.stats, f.refused)
}

// FuzzValues reads the arguments of a call.
func FuzzValues(f *testing.F) {
	e := &encoder{buf: make([]byte, 0, 1000)}
	_ = e.values([]any{nil, true, false, 1.5, "text", json.Number("12345678901234567890"), []any{"x", []any{}}, map[string]any{"k": 1.0}}, 0)
	f.Add(e.buf)
	f.Fuzz(func(t *testing.T, text []byte) {
		d := &decoder{buf: text}
		values := d.values(0)
		if d.end() != nil {
			return
		}
		again := &encoder{buf: make([]byte, 0, 4*len(text)+1000)}
		if err := again.values(values, 0); err != nil || again.full {
			t.Fatalf("cannot encode %v: %v", values, err)
		}
		d = &decoder{buf: again.buf}
		if back := d.values(0); d.end() != nil || !same(values, back) {
			t.Errorf("%v became %v", values, back)
		}
	})
}

// same is reflect.DeepEqual, but treats NaN as equal to itself.
func same(a, b any) bool {
	return reflect.DeepEqual(a, b) || strings.Contains(fmt.Sprint(a), "NaN") && fmt.Sprint(a) == fmt.Sprint(b)
}

// TestFrameFaults reads invalid results of a worker.
func TestFrameFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(shared *memory, m *message)
	}{
		{"more events than given", func(_ *memory, m *message) { m.b = 4 }},
		{"fewer events without a limit", func(_ *memory, m *message) { m.b = 2 }},
		{"more rows than fit", func(_ *memory, m *message) { m.d = 17 }},
		{"rows beyond all memory", func(_ *memory, m *message) { m.d = 1 << 62 }},
		{"more bytes than fit", func(_ *memory, m *message) { m.c = 257 }},
		{"more bytes than the output limit", func(_ *memory, m *message) { m.c = 201 }},
		{"bytes in no row", func(_ *memory, m *message) { m.c = 15 }},
		{"a row beyond the bytes", func(s *memory, _ *message) { s.ends[1] = 15 }},
		{"a row that ends before it begins", func(s *memory, _ *message) { s.ends[0] = math.MaxUint32 }},
		{"rows out of order", func(s *memory, _ *message) { s.from[0] = 3 }},
		{"a row of no event", func(s *memory, _ *message) { s.from[1] = 3 }},
		{"an unknown sink", func(s *memory, m *message) { m.d |= hasSinks; s.to[1] = 4 }},
		{"a row of a dead event", func(s *memory, _ *message) { s.from[1] = 1 }},
		{"a text that ends early", func(s *memory, m *message) { m.a-- }},
		{"a text that is too long", func(s *memory, m *message) { m.a++ }},
		{"more texts than bytes", func(s *memory, m *message) { binary.PutUvarint(s.text, 1<<40); m.a = 10 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared := newTestMemory()
			copy(shared.data, `{"a":1}{"b":2}`)
			copy(shared.ends, []uint32{7, 14})
			copy(shared.from, []uint32{0, 2})
			e := &encoder{buf: shared.text[:0]}
			whole := frame{dead: []deadEvent{{event: 1, stage: "script"}}}
			whole.encodeText(e)
			m := message{a: uint64(len(e.buf)), b: 3, c: 14, d: 2}
			b := bounds{3, 2, 200, false, false, false}
			var f frame
			if err := f.read(&m, shared, shared.text[:m.a], b); err != nil {
				t.Fatalf("the frame without a fault: %v", err)
			}
			c.change(shared, &m)
			if err := f.read(&m, shared, shared.text[:m.a], b); !errors.Is(err, errFrame) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// TestSplit splits parts of a batch around an event that a worker names, which may be outside of
// the part: all events of the part must occur once, in order, and the named one alone.
func TestSplit(t *testing.T) {
	for _, test := range []struct {
		current uint32
		want    []part // the last one runs next
	}{
		{0, []part{{11, 14}, {10, 11}}},
		{2, []part{{13, 14}, {12, 13}, {10, 12}}},
		{3, []part{{13, 14}, {10, 13}}},
		{4, []part{{12, 14}, {10, 12}}},
		{7, []part{{12, 14}, {10, 12}}},
		{24, []part{{12, 14}, {10, 12}}},
		{math.MaxUint32, []part{{12, 14}, {10, 12}}},
	} {
		r := run{parts: []part{{14, 20}}}
		r.splitAround(part{10, 14}, test.current)
		if want := append([]part{{14, 20}}, test.want...); !slices.Equal(r.parts, want) {
			t.Errorf("around %d: %v, want %v", test.current, r.parts, want)
		}
	}
}
