//go:build linux && cgo

package eventstore

import (
	"testing"

	"github.com/perigeedb/perigee/event"
)

// TestSelectRows copies runs of rows in columns of each kind.
func TestSelectRows(t *testing.T) {
	words := []string{"zero", "", "two", "three", "fourth"}
	all := &event.Columns{Rows: len(words), Spec: make([]event.Column, 4), Vectors: make([]event.Vector, 4)}
	for i, word := range words {
		all.Vectors[0].Ints = append(all.Vectors[0].Ints, int64(10+i))
		all.Vectors[1].Floats = append(all.Vectors[1].Floats, float64(i)/2)
		for v := 2; v < 4; v++ {
			all.Vectors[v].Bytes = append(all.Vectors[v].Bytes, word...)
			all.Vectors[v].Ends = append(all.Vectors[v].Ends, uint32(len(all.Vectors[v].Bytes)))
		}
		for v := range all.Vectors {
			all.Vectors[v].Null = append(all.Vectors[v].Null, uint8((i+v)%2))
		}
	}
	for _, runs := range []rowRuns{nil, {{0, 5}}, {{0, 1}}, {{4, 5}}, {{1, 2}}, {{1, 3}, {4, 5}}, {{0, 2}, {3, 5}}} {
		got := selectRows(all, runs)
		at := 0
		for _, run := range runs {
			for i := run.first; i < run.end; i, at = i+1, at+1 {
				for v := range all.Vectors {
					from, to := &all.Vectors[v], &got.Vectors[v]
					same := to.Null[at] == from.Null[i]
					switch {
					case v == 0:
						same = same && to.Ints[at] == from.Ints[i]
					case v == 1:
						same = same && to.Floats[at] == from.Floats[i]
					default:
						same = same && string(to.Text(at)) == words[i]
					}
					if !same {
						t.Errorf("rows %v: row %d of column %d is not row %d of all", runs, at, v, i)
					}
				}
			}
		}
		if got.Rows != at || got.Rows != runs.count() || len(got.Vectors[0].Ints) != at || len(got.Vectors[1].Floats) != at || len(got.Vectors[2].Ends) != at {
			t.Errorf("rows %v: %d rows, want %d", runs, got.Rows, at)
		}
	}
}

func TestTimeBounds(t *testing.T) {
	columns := &event.Columns{
		Spec:    []event.Column{{Name: "a", Type: event.Int64}, {Name: "t", Type: event.Timestamp}, {Name: "ns", Type: event.TimestampNS}},
		Vectors: []event.Vector{{Ints: []int64{9, 9}}, {Ints: []int64{5, -3}}, {Ints: []int64{-1, 1999}}},
	}
	for column, want := range map[string][2]int64{"": {}, "other": {}, "t": {-3, 5}, "ns": {-1, 1}} {
		if least, greatest := new(buffer).timeBounds(column, columns); want != [2]int64{least, greatest} {
			t.Errorf("of %q: %d to %d, want %v", column, least, greatest, want)
		}
	}
}

// TestAppendFields gathers the fields without a column.
func TestAppendFields(t *testing.T) {
	wanted := map[string]bool{"a": true, "b\"": true}
	for doc, want := range map[string]string{
		`{}`: "", `{"c":1}`: "", `{"a":1}`: `{"a":1}`, `{"c":1,"a": [1, 2] ,"b\"":"x"}`: `{"a":[1, 2],"b\"":"x"}`, `{"a":1,"a":2}`: `{"a":1,"a":2}`,
		`{"a":1.10}`: `{"a":1.10}`, `{"c":{"a":1}}`: "",
	} {
		got, err := appendFields([]byte("before"), []byte(doc), wanted)
		if err != nil || string(got) != "before"+want {
			t.Errorf("%s: %s, %v; want %s", doc, got, err, want)
		}
	}
	for _, doc := range []string{"", `{"a"`, `{"a":`, `{1:2}`} {
		if got, err := appendFields(nil, []byte(doc), wanted); err == nil {
			t.Errorf("%q: %q", doc, got)
		}
	}
}
