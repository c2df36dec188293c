//go:build cgo && luajit && !asan

package luajit_test

import (
	"context"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// TestContextCostsNothing checks that a run heeds a context that can end without
// anything that has to be collected.
func TestContextCostsNothing(t *testing.T) {
	s, err := luajit.Load(t.Context(), script.Code{Name: "a.lua", Text: []byte(passThrough)}, script.Options{Sinks: []script.Sink{{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	in, res := &event.Batch{Range: event.Range{Count: 1}}, &event.Result{Outputs: make([]event.Output, 1)}
	in.Append([]byte(`{"a":1}`))
	allocs := func(ctx context.Context) float64 {
		return testing.AllocsPerRun(100, func() {
			if err := s.Run(ctx, in, res); err != nil {
				t.Fatal(err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if with, without := allocs(ctx), allocs(context.Background()); with != without {
		t.Errorf("a run allocates %v times, want %v as without an end", with, without)
	}
}
