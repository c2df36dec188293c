//go:build cgo && (linux || darwin || freebsd) && !race

package goplugin

import (
	"context"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// Under the race detector pools drop what they hold at random.
func TestBatchDoesNotAllocatePerEvent(t *testing.T) {
	s := loadShapes(t, "Same", script.Options{Sinks: []script.Sink{{Columns: []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}}}})
	docs := make([]string, 1000)
	for i := range docs {
		docs[i] = `{"n":1}`
	}
	in, res := batchOf(docs...), &event.Result{Outputs: make([]event.Output, 1)}
	run := func() {
		if err := s.Run(context.Background(), in, res); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if allocs := testing.AllocsPerRun(20, run); allocs > 20 {
		t.Errorf("%v allocations for a batch of 1000", allocs)
	}
}
