package sinktest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// eventName is what an event is called. It has what escaping may get wrong.
func eventName(id int64) string { return fmt.Sprintf("event %d: it's a \"back\\slash\"\t☾", id) }

// makeDocument is the event at a position; its id is the position.
func makeDocument(id int64) string {
	text, err := json.Marshal(map[string]any{"id": id, "name": eventName(id)})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// makeEvents makes the output of the events at [first, first+count), one row each.
func (h *testWriter) makeEvents(first, count uint64) *event.Output {
	docs := make([]string, count)
	from := make([]uint32, count)
	for i := range docs {
		docs[i], from[i] = makeDocument(int64(first)+int64(i)), uint32(i)
	}
	return h.makeOutput(event.Range{First: first, Count: count}, from, docs)
}

// makeOutput makes an output of docs that came from the events of r named by from.
func (h *testWriter) makeOutput(r event.Range, from []uint32, docs []string) *event.Output {
	out := &event.Output{Partition: h.partition, Range: r, From: from}
	for _, doc := range docs {
		out.Data = append(out.Data, doc...)
		out.Ends = append(out.Ends, uint32(len(out.Data)))
	}
	if h.columns != nil {
		out.Columns = extractColumns(h.columns, docs)
	}
	return out
}

// extractColumns fills columns the slow and obvious way.
func extractColumns(spec []event.Column, docs []string) *event.Columns {
	columns := &event.Columns{Spec: spec, Rows: len(docs), Vectors: make([]event.Vector, len(spec))}
	for _, doc := range docs {
		decoder := json.NewDecoder(strings.NewReader(doc))
		decoder.UseNumber()
		var root any
		if err := decoder.Decode(&root); err != nil {
			panic(fmt.Sprintf("%s: %v", doc, err))
		}
		for c, column := range spec {
			appendValue(&columns.Vectors[c], column.Type, lookUp(root, column.Path))
		}
	}
	return columns
}

func lookUp(value any, path []string) any {
	for _, key := range path {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

// appendValue appends a value as the given type; one that has another type is a null.
func appendValue(v *event.Vector, t event.Type, value any) {
	var whole int64
	var float float64
	var text string
	null := value == nil
	switch value := value.(type) {
	case bool:
		if value {
			whole = 1
		}
	case json.Number:
		whole, _ = value.Int64()
		float, _ = value.Float64()
		text = value.String()
	case string:
		text = value
	}
	if t == event.JSON && !null {
		spelled, _ := json.Marshal(value)
		text = string(spelled)
	}
	v.Null = append(v.Null, 0)
	if null {
		v.Null[len(v.Null)-1] = 1
	}
	switch t {
	case event.Float64:
		v.Floats = append(v.Floats, float)
	case event.Decimal, event.String, event.JSON:
		v.Bytes = append(v.Bytes, text...)
		v.Ends = append(v.Ends, uint32(len(v.Bytes)))
	default:
		v.Ints = append(v.Ints, whole)
	}
}

// overwrite overwrites everything in out, as its owner may once Write returned.
func overwrite(out *event.Output) {
	for i := range out.Data {
		out.Data[i] = '#'
	}
	clear(out.From)
	clear(out.Ends)
	clear(out.Range.Fingerprints)
	out.Range.First, out.Range.Count = 1<<40, 1
	if out.Columns == nil {
		return
	}
	for i := range out.Columns.Vectors {
		v := &out.Columns.Vectors[i]
		clear(v.Ints)
		clear(v.Floats)
		clear(v.Bytes)
		clear(v.Ends)
		clear(v.Null)
	}
}

// expectRows fails the test unless the place holds exactly the events at the given
// positions, each with its own name: once, or at least once where the kind
// promises no more.
func (t *testEnv) expectRows(want event.Ranges) {
	t.Helper()
	if t.place.NoRows {
		return
	}
	times := map[int64]int{}
	for _, row := range t.place.Rows(t.T) {
		times[row.ID]++
		if row.Name != eventName(row.ID) {
			t.Errorf("event %d arrived with the name %q, want %q", row.ID, row.Name, eventName(row.ID))
		}
		if row.ID < 0 || !want.Has(uint64(row.ID)) {
			t.Errorf("event %d arrived and should not have", row.ID)
		}
	}
	for _, r := range want {
		for p := r.First; p < r.End(); p++ {
			if n := times[int64(p)]; n == 0 || n > 1 && t.isExactlyOnce() {
				t.Fatalf("event %d arrived %d times", p, n)
			}
		}
	}
}

func rangesOf(ranges ...event.Range) event.Ranges {
	var set event.Ranges
	for _, r := range ranges {
		set.Add(r)
	}
	return set
}

func rangeAt(first, count uint64) event.Range { return event.Range{First: first, Count: count} }
