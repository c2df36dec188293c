package report

import (
	"fmt"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
)

func TestFitTakesMisfitsOut(t *testing.T) {
	out := event.Output{
		Data: []byte("{0}{1}{2}{3}"), Ends: []uint32{3, 6, 9, 12},
		From: []uint32{4, 7, 7, 9}, // event 7 has two outputs
	}
	extract := func(_ []byte, ends []uint32, columns *event.Columns) (Report, error) {
		columns.Rows = len(ends)
		columns.Vectors = []event.Vector{{Null: []uint8{0, 0, 1, 1}, Ints: []int64{10, 11, 0, 0}}}
		return Report{Bad: []Bad{{Row: 2, Reason: "first"}, {Row: 2, Column: 1, Reason: "second"}, {Row: 3, Reason: "third"}}}, nil
	}
	var refused []string
	err := Fit(extract, &out, func(event int, number uint32, bad Bad) {
		refused = append(refused, fmt.Sprintf("%d %d %s", event, number, bad.Reason))
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"7 1 first", "9 0 third"}; !slices.Equal(refused, want) {
		t.Errorf("refused %q, want %q", refused, want)
	}
	if got := string(out.Data); got != "{0}{1}" || !slices.Equal(out.From, []uint32{4, 7}) {
		t.Errorf("left are %s from %v", got, out.From)
	}
	if got := out.Columns.Vectors[0].Ints; out.Columns.Rows != 2 || !slices.Equal(got, []int64{10, 11}) {
		t.Errorf("columns have %d rows: %v", out.Columns.Rows, got)
	}
}
