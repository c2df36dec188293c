package gopherlua_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/script/scripttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	scripttest.Test(t, gopherlua.Language(), scripttest.Features{})
}

func TestTrial(t *testing.T) { scripttest.TestTrial(t, gopherlua.Language()) }

func TestHandler(t *testing.T) { scripttest.TestHandler(t, gopherlua.Handler()) }

// TestArrayErrors writes what an array cannot have: the error says which indexes can be written.
func TestArrayErrors(t *testing.T) {
	for statement, want := range map[string]string{
		`event.a.x = 1`:     `an array has no key "x", only the indexes 1 to 3`,
		`event.a[true] = 1`: `an array has no key "true", only the indexes 1 to 3`,
		`event.a[4] = 1`:    `the array has 2 elements: index 4 cannot be written, only 1 to 3`,
		`event.none.x = 1`:  `an array has no key "x", only the indexes 1 to 1`,
	} {
		s, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "array.lua", Text: []byte("function main(event)\n" + statement + "\nreturn event\nend")},
			script.Options{Sinks: []script.Sink{{}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var in event.Batch
		in.Append([]byte(`{"a":[1,2],"none":[]}`))
		in.Range.Count = 1
		res := event.Result{Outputs: make([]event.Output, 1)}
		if err := s.Run(t.Context(), &in, &res); err != nil {
			t.Fatal(err)
		}
		if len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, want) {
			t.Errorf("%s: dead letters are %v, want one with %q", statement, res.Dead, want)
		}
	}
}

func TestStateIsRefused(t *testing.T) {
	for _, opts := range []script.Options{{Extension: lua.ForState()}, {Timer: true}} {
		opts.Sinks = []script.Sink{{}}
		_, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "a.lua", Text: []byte("function main(e) end")}, opts)
		if err == nil || !strings.Contains(err.Error(), "the state of a pipeline") {
			t.Errorf("with %+v: %v, want an error about the state", opts, err)
		}
	}
}
