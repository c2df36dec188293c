//go:build cgo && luajit

package luajit_test

import (
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// TestManyRuns makes more runs of one VM than its stack has places.
func TestManyRuns(t *testing.T) {
	for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
		t.Run(lang.Name, func(t *testing.T) {
			s, err := lang.Load(t.Context(), script.Code{Name: "many.lua", Text: []byte("function main(e) return e end")}, script.Options{Sinks: []script.Sink{{}}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			in, res := &event.Batch{Range: event.Range{Count: 1}}, &event.Result{Outputs: make([]event.Output, 1)}
			in.Append([]byte(`{"n":1}`))
			for i := range 200_000 {
				if err := s.Run(t.Context(), in, res); err != nil || len(res.Dead) > 0 {
					t.Fatalf("run %d: %v, dead %v", i, err, res.Dead)
				}
			}
		})
	}
}
