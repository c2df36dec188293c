package pipeline

import (
	"context"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// copyScript copies documents, and allocates nothing once its output has grown.
type copyScript struct{ testScript }

func (copyScript) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	out := &res.Outputs[0]
	out.Reset()
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], 0, in.Len()
	out.Data, out.Ends = append(out.Data, in.Data...), append(out.Ends, in.Ends...)
	for i := range in.Len() {
		out.From = append(out.From, uint32(i))
	}
	return nil
}

// discardSink accepts and discards everything.
type discardSink struct{ *memorySink }

func (n discardSink) Open(context.Context, string) (sink.Writer, event.Ranges, error) {
	return n, nil, nil
}
func (discardSink) Write(context.Context, *event.Output) error { return nil }
func (discardSink) Verify(context.Context) error               { return nil }

// TestAllocations checks that allocations depend on the number of batches and not on
// the number of events.
func TestAllocations(t *testing.T) {
	const batches = 200
	run := func(perBatch int) float64 {
		partition := newMemoryPartition("a", batches*perBatch)
		return testing.AllocsPerRun(3, func() {
			q := newMemorySource(partition)
			partition.acked = nil
			q.batch = func() int { return perBatch }
			r := newHarness(t, q, copyScript{}, discardSink{newMemorySink()})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := r.Stats(); got.Committed != uint64(len(partition.docs)) {
				t.Fatalf("%d of %d events committed", got.Committed, len(partition.docs))
			}
		})
	}
	few, many := run(1), run(1000)
	t.Logf("%.0f allocations for %d batches of 1 event, %.0f for as many of 1000", few, batches, many)
	if perEvent := (many - few) / (batches * 1000); perEvent > 0.01 {
		t.Errorf("%.3f allocations per event", perEvent)
	}
	if perBatch := few / batches; perBatch > 40 {
		t.Errorf("%.0f allocations per batch", perBatch)
	}
}
