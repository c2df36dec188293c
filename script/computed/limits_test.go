package computed

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limited loads code that may put 100 bytes into the output of one run.
func limited(t *testing.T, text string, value bool) script.Script {
	t.Helper()
	loaded, err := lua.Language().Load(t.Context(), script.Code{Name: "limited.lua", Text: []byte(text)},
		script.Options{Sinks: []script.Sink{{}}, ReturnsValue: value, Limits: script.Limits{Output: 100}})
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func events(n int) *event.Batch {
	in := &event.Batch{Partition: "part", Range: event.Range{First: firstPosition, Count: uint64(n)}}
	for range n {
		in.Append([]byte(`{}`))
	}
	return in
}

// TestLimitOfTheScript: what ran before the limit gets its columns, the rest is
// run again by the caller.
func TestLimitOfTheScript(t *testing.T) {
	inner := limited(t, `function main(event) return {text = ("x"):rep(30)} end`, false)
	s := New("p", inner, []Column{code(t, "c", event.Int64, "function main(row) return #row.text end")}, oneSink, time.Now)
	defer s.Close()
	res := &event.Result{Outputs: make([]event.Output, 1)}
	err := s.Run(t.Context(), events(5), res)
	var limit *script.LimitError
	if !errors.As(err, &limit) || limit.Limit != "output" {
		t.Fatalf("error is %v, want the limit of the output", err)
	}
	out := &res.Outputs[0]
	if res.Ran != 2 || out.Len() != 2 || out.Range.Count != 2 || string(out.Doc(1)) != `{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","c":30}` {
		t.Errorf("%d ran, %d rows of %v: %s", res.Ran, out.Len(), out.Range, out.Data)
	}
}

// TestLimitOfAColumn: the rows that a limit leaves over are computed in another
// run, but not for ever.
func TestLimitOfAColumn(t *testing.T) {
	values := limited(t, `function main(row) return ("x"):rep(30) end`, true)
	s := New("p", behind(t, "", oneSink).inner, []Column{{Name: "c", Type: event.String, Code: values}}, oneSink, time.Now)
	t.Cleanup(func() { values.Close() })
	res := &event.Result{Outputs: make([]event.Output, 1)}
	if err := s.Run(t.Context(), events(8), res); err != nil || res.Outputs[0].Len() != 8 {
		t.Errorf("%d rows of 8, %v", res.Outputs[0].Len(), err)
	}
	var limit *script.LimitError
	if err := s.Run(t.Context(), events(20), res); !errors.As(err, &limit) || res.Ran != 0 || res.Outputs[0].Len() != 0 {
		t.Errorf("error is %v with %d events run and %d rows, want a limit and nothing", err, res.Ran, res.Outputs[0].Len())
	}
}
