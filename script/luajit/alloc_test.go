//go:build cgo && luajit

package luajit_test

import (
	"context"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// TestRunDoesNotAllocate runs every kind of job until all buffers have grown.
func TestRunDoesNotAllocate(t *testing.T) {
	const events = 100
	columns := []event.Column{{Name: "id", Path: []string{"id"}, Type: event.JSON}}
	for _, job := range jobs {
		for _, spec := range [][]event.Column{nil, columns} {
			t.Run(job.name, func(t *testing.T) { testAllocs(t, job.script, job.doc, events, spec) })
		}
	}
}

func testAllocs(t *testing.T, text string, doc func(int) string, events int, spec []event.Column) {
	code := script.Code{Name: "job.lua", Text: []byte(text)}
	s, err := luajit.Load(t.Context(), code, script.Options{Sinks: []script.Sink{{Columns: spec, ColumnsOnly: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in, res := &event.Batch{}, &event.Result{Outputs: make([]event.Output, 1)}
	for i := range events {
		in.Append([]byte(doc(i)))
	}
	in.Range.Count = uint64(events)
	run := func() {
		if err := s.Run(context.Background(), in, res); err != nil || len(res.Dead) > 0 {
			t.Fatal(err, res.Dead)
		}
	}
	for range 3 {
		run()
	}
	if per := testing.AllocsPerRun(5, run); per > 5 {
		t.Errorf("%v allocations for %d events, want none per event", per, events)
	}
}

// TestEmptyBatch runs a batch without events after one with a dead one.
func TestEmptyBatch(t *testing.T) {
	s, err := luajit.Load(t.Context(), script.Code{Name: "job.lua", Text: []byte(passThrough)}, script.Options{Sinks: []script.Sink{{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in, res := &event.Batch{}, &event.Result{Outputs: make([]event.Output, 1)}
	in.Append([]byte(`{`))
	in.Range.Count = 1
	for _, want := range []int{1, 0} {
		if err := s.Run(t.Context(), in, res); err != nil || len(res.Dead) != want {
			t.Errorf("%d events: %v, dead %v", in.Len(), err, res.Dead)
		}
		in = &event.Batch{}
	}
}
