//go:build cgo && luajit

package luajit_test

import (
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// TestNumbersAreComparedWithPlainOnes compares numbers that a double does not hold with the doubles
// next to them.
func TestNumbersAreComparedWithPlainOnes(t *testing.T) {
	const text = `
function main(event)
  assert(event.a > 9007199254740992 and event.a < 9007199254740994 and 9007199254740992 < event.a)
  assert(event.minus < -9007199254740992 and event.minus > -9007199254740994 and -9007199254740992 > event.minus)
  assert(event.pi < -3.141592653589793 and event.pi > -3.1415926535897936 and -3.141592653589793 > event.pi)
  assert(event.part > 0.12345678901234568 and event.part < 0.12345678901234569 and 0.12345678901234568 < event.part)
  assert(event.small > 0.0012345678901234567 and event.small < 0.001234567890123457 and 0.001234567890123457 > event.small)
  assert(event.small < event.part and event.small > 0.001 and event.part < 0.2)
  assert(event.huge > 1e308 and event.huge < 1/0 and event.low < -1e308 and event.low > -1/0)
  assert(event.tiny > 0 and event.tiny < 5e-324 and event.below < 0 and event.below > -5e-324)
  assert(event.huge < event.larger and event.low < 0 and event.low > event.lower)
  return event
end`
	s, err := luajit.Load(t.Context(), script.Code{Name: "job.lua", Text: []byte(text)}, script.Options{Sinks: []script.Sink{{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in, res := &event.Batch{}, &event.Result{Outputs: make([]event.Output, 1)}
	in.Append([]byte(`{"a":9007199254740993,"minus":-9007199254740993,"pi":-3.14159265358979323847,"part":0.1234567890123456789,"small":0.00123456789012345678901,"huge":1e400,"larger":1.5e401,"low":-1e400,"lower":-1.5e401,"tiny":1e-400,"below":-1e-400}`))
	in.Range.Count = 1
	if err := s.Run(t.Context(), in, res); err != nil || len(res.Dead) != 0 {
		t.Errorf("%v, dead %v", err, res.Dead)
	}
}
