package event

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestCopyEvents copies events of a batch with one row, two rows, none, and dead letters.
func TestCopyEvents(t *testing.T) {
	in := &Batch{Partition: "p", Range: Range{First: 100, Count: 5}, Time: time.Unix(7, 0)}
	for i := range 5 {
		in.Append(fmt.Appendf(nil, "event %d", i))
	}
	all := &Result{Ran: 5, Dropped: 1, Outputs: []Output{
		{
			Data: []byte("abcde"), Ends: []uint32{1, 2, 3, 5}, From: []uint32{0, 1, 1, 4},
			Columns: &Columns{Spec: []Column{{Name: "i", Type: Int64}, {Name: "s", Type: String}}, Rows: 4, Vectors: []Vector{
				{Null: []uint8{0, 0, 0, 1}, Ints: []int64{1, 2, 3, 0}},
				{Null: []uint8{0, 0, 0, 0}, Bytes: []byte("xyyzzz"), Ends: []uint32{1, 3, 3, 6}},
			}},
		},
		{Data: []byte("r"), Ends: []uint32{1}, From: []uint32{4}},
	}, Dead: []DeadLetter{{Position: 102, Stage: "script"}, {Position: 104, Sink: "a", Stage: "column"}}}

	var batch Batch
	var got Result
	for range 2 { // the second time into used memory
		batch.CopyEvents(in, 1, 3)
		got.CopyEvents(all, in, 1, 3)
	}
	if batch.Partition != "p" || batch.Range.First != 101 || batch.Range.Count != 3 || batch.Len() != 3 || string(batch.Doc(2)) != "event 3" || !batch.Time.Equal(in.Time) {
		t.Errorf("the batch is %+v", batch)
	}
	want := Result{Ran: 3, Dropped: 1, Outputs: []Output{
		{
			Partition: "p", Range: Range{First: 101, Count: 3}, Data: []byte("bc"), Ends: []uint32{1, 2}, From: []uint32{0, 0},
			Columns: &Columns{Spec: all.Outputs[0].Columns.Spec, Rows: 2, Vectors: []Vector{
				{Null: []uint8{0, 0}, Ints: []int64{2, 3}},
				{Null: []uint8{0, 0}, Bytes: []byte("yy"), Ends: []uint32{2, 2}},
			}},
		},
		{Partition: "p", Range: Range{First: 101, Count: 3}},
	}, Dead: []DeadLetter{{Position: 102, Stage: "script"}}}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Range{})); diff != "" {
		t.Errorf("the result differs:\n%s", diff)
	}
	got.Outputs[0].Data[0], batch.Data[0] = 'X', 'X'
	if string(all.Outputs[0].Data) != "abcde" || string(in.Doc(1)) != "event 1" {
		t.Error("the copy shares memory with the original")
	}
	got.CopyEvents(all, in, 4, 1)
	if got.Dropped != 0 || got.Outputs[0].Len() != 1 || got.Outputs[1].Len() != 1 || len(got.Dead) != 1 {
		t.Errorf("the last event is %+v", got)
	}
}
