//go:build cgo

package passthrough

import (
	"context"
	"testing"

	"github.com/perigeedb/perigee/event"
)

func TestDoesNotAllocatePerEvent(t *testing.T) {
	s := load(t, event.Column{Name: "s", Path: []string{"s"}, Type: event.String})
	docs := make([]string, 1000)
	for i := range docs {
		docs[i] = `{"s":"text","n":1}`
	}
	in, res := batch(docs...), event.Result{Outputs: make([]event.Output, 1)}
	run := func() {
		if err := s.Run(context.Background(), in, &res); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if allocs := testing.AllocsPerRun(50, run); allocs > 10 {
		t.Errorf("%v allocations for a batch of 1000", allocs)
	}
}
