package event

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// outputOf makes an output of the given rows with a column of each shape.
func outputOf(rows []int) *Output {
	o := &Output{Columns: &Columns{Rows: len(rows), Vectors: make([]Vector, 3)}}
	numbers, reals, texts := &o.Columns.Vectors[0], &o.Columns.Vectors[1], &o.Columns.Vectors[2]
	for _, row := range rows {
		o.Data = fmt.Appendf(o.Data, `{"row":%d}`, row)
		o.Ends = append(o.Ends, uint32(len(o.Data)))
		o.From = append(o.From, uint32(row/2))
		o.To = append(o.To, uint64(row))
		numbers.Ints = append(numbers.Ints, int64(row))
		reals.Floats = append(reals.Floats, float64(row)/2)
		texts.Bytes = fmt.Appendf(texts.Bytes, "%d", row)
		texts.Ends = append(texts.Ends, uint32(len(texts.Bytes)))
		for i := range o.Columns.Vectors {
			v := &o.Columns.Vectors[i]
			v.Null = append(v.Null, uint8(row%2))
		}
	}
	return o
}

func TestRemoveRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all, gone, kept []int
		for row := range rapid.IntRange(0, 12).Draw(t, "rows") {
			all = append(all, row)
			if rapid.Bool().Draw(t, "gone") {
				gone = append(gone, row)
			} else {
				kept = append(kept, row)
			}
		}
		got, want := outputOf(all), outputOf(kept)
		got.RemoveRows(slices.Clone(gone))
		if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
			t.Fatalf("without %v (-want +got):\n%s", gone, diff)
		}
	})
}

// describe lists an output row by row, so that nil and empty are the same.
func describe(o *Output) []string {
	all := []string{fmt.Sprint(o.Len(), len(o.From), o.Columns.Rows, len(o.Data))}
	for i := range o.Len() {
		v := o.Columns.Vectors
		all = append(all, fmt.Sprintf("%s %d %d %d %g %s %d%d%d", o.Doc(i), o.From[i], o.To[i], v[0].Ints[i],
			v[1].Floats[i], v[2].Text(i), v[0].Null[i], v[1].Null[i], v[2].Null[i]))
	}
	return all
}

func TestRemoveRowsWithoutColumns(t *testing.T) {
	o := outputOf([]int{0, 1, 2})
	o.Columns = nil
	o.RemoveRows([]int{1})
	if diff := cmp.Diff([]string{`{"row":0}`, `{"row":2}`}, docs(o.Len(), o.Doc)); diff != "" {
		t.Error(diff)
	}
}

func TestRowNumber(t *testing.T) {
	out := &Output{From: []uint32{0, 0, 0, 2, 2}, Ends: make([]uint32, 5)}
	for name, test := range map[string]struct {
		first, last int // the rows of one event
		removed     []uint32
		want        []uint32
	}{
		"none removed":            {0, 3, nil, []uint32{0, 1, 2}},
		"of the second event":     {3, 5, nil, []uint32{0, 1}},
		"the first removed":       {0, 3, []uint32{0}, []uint32{1, 2, 3}},
		"one between":             {3, 5, []uint32{1}, []uint32{0, 2}},
		"two, not in order":       {0, 3, []uint32{3, 1}, []uint32{0, 2, 4}},
		"after the last":          {3, 5, []uint32{2}, []uint32{0, 1}},
		"the same number twice":   {3, 5, []uint32{0, 0}, []uint32{1, 2}},
		"all before the last one": {0, 1, []uint32{0, 1, 2}, []uint32{3}},
	} {
		for i, want := range test.want {
			if got := out.RowNumber(test.first+i, test.removed); got != want {
				t.Errorf("%s: row %d has number %d, want %d", name, test.first+i, got, want)
			}
		}
	}
}
