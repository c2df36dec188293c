//go:build cgo && luajit

package luajit_test

import (
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

func columnOfA() []script.Sink {
	return []script.Sink{{Columns: []event.Column{{Name: "a", Path: []string{"a"}, Type: event.Int64}}}}
}

// TestEmptyBatchRepeatsNothing runs an empty batch behind a full one.
func TestEmptyBatchRepeatsNothing(t *testing.T) {
	for name, sinks := range map[string][]script.Sink{"columns": columnOfA(), "documents": {{}}} {
		t.Run(name, func(t *testing.T) {
			s, err := luajit.Load(t.Context(), script.Code{Name: "a.lua", Text: []byte(passThrough)}, script.Options{Sinks: sinks})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			full, res := &event.Batch{Partition: "p"}, &event.Result{Outputs: make([]event.Output, 1)}
			full.Append([]byte(`{"a":1}`))
			full.Append([]byte(`{"a":`))
			full.Range.Count = 2
			for _, in := range []*event.Batch{full, {Partition: "p", Range: event.Range{First: 2}}} {
				if err := s.Run(t.Context(), in, res); err != nil {
					t.Fatal(err)
				}
			}
			out := &res.Outputs[0]
			if out.Len() != 0 || len(out.Data) != 0 || len(res.Dead) != 0 || res.Ran != 0 {
				t.Errorf("left are %d rows, %q, %v, %d ran", out.Len(), out.Data, res.Dead, res.Ran)
			}
			if out.Columns != nil && out.Columns.Rows != 0 {
				t.Errorf("left are columns of %d rows", out.Columns.Rows)
			}
		})
	}
}
