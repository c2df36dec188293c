//go:build cgo && luajit

package luajit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
)

// fire runs the timers that are due at a time, as a pipeline does, and returns their results.
func (s *stateTest) fire(sc script.Script, at time.Time) (got []string) {
	s.t.Helper()
	for {
		due, next, err := lua.DueTimers(context.Background(), s.tx, at, 3)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(due) == 0 {
			if !next.IsZero() && !next.After(at) {
				s.t.Fatalf("no timer is due at %v, and the next one is at %v", at, next)
			}
			return got
		}
		in := s.fill()
		for _, timer := range due {
			doc, err := timer.AppendTo(nil)
			if err != nil {
				s.t.Fatal(err)
			}
			in.Append(doc)
		}
		in.Range.Count, in.Time, in.Timers = uint64(len(due)), at, true
		got = append(got, s.runBatch(sc, in)...)
		for _, timer := range due { // those that failed
			if err := lua.RemoveTimer(s.tx, timer); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func TestTimers(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		s := newState(t)
		sc := loadState(t, interpreted, script.Options{}, `
			local nodedb, timers, time = require "nodedb", require "timer", require "time"
			function main(e)
				if e.after then return {due = timers.after(e.after, e.key) - time.now()} end
				if e.at then timers.at(e.at, e.key) end
				if e.cancel then return {cancelled = timers.cancel(e.key), due = tostring(timers.due(e.key))} end
				if e.fail then error "undone" end
				return nil
			end
			function timer(key, due)
				local n = nodedb.incr("^fired", key, 1)
				if key == "fail" then error "failed" end
				if key == "again" and n < 3 then timers.after(5, "again") end
				if key == "first" then timers.cancel "second" timers.after(60, "third") end
				return {{key = key, late = time.now() - due}, {n = n}}
			end`)
		for i, step := range []struct{ doc, want string }{
			{`{"key":"a","after":10}`, `{"due":10}`}, {`{"key":7,"after":5}`, `{"due":5}`}, {`{"key":"a","after":20}`, `{"due":20}`},
			{`{"key":"fail","after":3}`, `{"due":3}`}, {`{"key":"again","after":0}`, `{"due":0}`},
			{`{"key":"first","after":30}`, `{"due":30}`}, {`{"key":"second","after":30}`, `{"due":30}`}, {`{"key":"third","after":30}`, `{"due":30}`},
			{`{"key":"gone","after":30}`, `{"due":30}`}, {`{"key":"gone","cancel":true}`, `{"cancelled":true,"due":"nil"}`},
			{`{"key":"gone","cancel":true}`, `{"cancelled":false,"due":"nil"}`}, {`{"key":"undone","at":5,"fail":true}`, `E: state.lua:7: undone`},
			{`{"key":true,"at":5}`, `E: state.lua:5: timer.at: the key must be a text or a number, got a boolean`},
			{`{"key":"a","after":-5}`, `E: state.lua:4: timer.after: the duration must be 0 or more, got -5`},
			{`{"key":"a","at":"soon"}`, `E: state.lua:5: timer.at: the time must be a number of seconds, got soon`},
			{`{"key":1234567890123456789,"at":1}`, ""},
		} {
			if got := strings.Join(s.run(sc, step.doc), " "); !sameObject(got, step.want) {
				t.Errorf("step %d, %s: %s, want %s", i, step.doc, got, step.want)
			}
		}
		var got []string
		for _, seconds := range []int{0, 4, 6, 10, 20, 40, 100} {
			for _, row := range s.fire(sc, clock.Add(time.Duration(seconds)*time.Second)) {
				if key, found := strings.CutPrefix(row, `{"key":`); found || strings.HasPrefix(row, "E: ") {
					got = append(got, strings.Split(key, ",")[0])
				} else if _, key, found := strings.Cut(row, `"key":`); found {
					got = append(got, strings.TrimSuffix(key, "}"))
				}
			}
			got = append(got, "|")
		}
		expect(t, "the keys of the timers that ran", strings.Join(got, " "),
			`"1234567890123456789" "again" | E: state.lua:12: failed | 7 "again" | | "again" "a" | "first" | "third" |`)
		expect(t, "the timers that are left", s.dump("^%timers"), "")

		// A dead letter runs again, and leaves a later timer of its key.
		s.run(sc, `{"key":"b","after":50}`)
		later := s.dump("^%timers")
		for _, retry := range []bool{false, true} {
			in := s.fill(`{"key":"b","due":7}`, `{"key":"lost","due":8}`)
			in.Timers, in.Retry = true, retry
			if got := len(s.runBatch(sc, in)); got != map[bool]int{true: 4}[retry] {
				t.Errorf("retry %v: %d rows of timers that the state does not have, want %d", retry, got, map[bool]int{true: 4}[retry])
			}
		}
		expect(t, "the later timer", s.dump("^%timers"), later)
	})
}

// sameObject compares JSON objects of at most two fields.
func sameObject(a, b string) bool {
	if a == b {
		return true
	}
	fields := strings.SplitN(strings.Trim(a, "{}"), ",", 2)
	return len(fields) == 2 && "{"+fields[1]+","+fields[0]+"}" == b
}

func TestTimerFunction(t *testing.T) {
	const main = ` function main(e) end `
	const remedy = `define 'function timer(key, due)' as a global; where a local variable is named timer too, ` +
		`as in 'local timer = require "timer"', write 'function _G.timer(key, due)'`
	for _, load := range []struct {
		code  string
		timer bool // Options.Timer
		want  string
	}{
		{`function timer() end` + main, true, ""},
		{main, false, ""},
		{main, true, "no function timer"},
		{`timer = 5` + main, true, "timer is a number"},
		{`require "timer"` + main, false, "no function timer"},
		{`local timer = require "timer" function timer() end` + main, false, "no function timer"},
		{`local timer = require "timer" function _G.timer() end` + main, false, ""},
		{`timer = require "timer"` + main, false, "timer is a table"},
	} {
		sc, err := tryState(false, script.Options{Timer: load.timer}, load.code)
		if sc != nil {
			sc.Close()
		}
		switch {
		case (err == nil) != (load.want == ""), err != nil && !strings.Contains(err.Error(), load.want):
			t.Errorf("%s: %v, want %q", load.code, err, load.want)
		case err != nil && err.(*script.Error).Hint != remedy:
			t.Errorf("%s: the hint is %q", load.code, err.(*script.Error).Hint)
		}
	}
	t.Run("missing", func(t *testing.T) {
		s := newState(t)
		sc := loadState(t, false, script.Options{}, `
			function main(e) require "timer".after(0, e.key) end`)
		got := s.run(sc, `{"key":"a"}`)
		if len(got) != 1 || !strings.Contains(got[0], "the script has no function timer") {
			t.Errorf("set a timer without the function timer: %q", got)
		}
		in := s.fill(`{"key":"a","due":5}`, `{"key":"b","due":5}`)
		in.Timers = true
		for _, got := range s.runBatch(sc, in) {
			if !strings.HasPrefix(got, "E: ") || !strings.Contains(got, "no function timer; define") {
				t.Errorf("a timer without the function timer: %q", got)
			}
		}
	})
}

// TestStateTime checks that the time stands still in a run with a state.
func TestStateTime(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		s := newState(t)
		wait := script.Module{Name: "wait", Functions: map[string]script.Func{
			"short": func(context.Context, []any) ([]any, error) { time.Sleep(time.Millisecond); return nil, nil },
		}}
		sc := loadState(t, interpreted, script.Options{Modules: []script.Module{wait}}, `
			local time, wait = require "time", require "wait"
			local loaded = time.now()
			function main(e)
				local first = time.now()
				wait.short()
				return {is = time.now() == first and loaded ~= first and {time.now(), time.unix(), os.time(), os.date("!%F %T"), os.date("!*t").sec}}
			end`)
		want := []string{`[1795861800.25,1795861800,1795861800,"2026-11-28 10:30:00",0]`}
		if got := s.run(sc, `{"a":1}`); len(got) != 1 || !strings.Contains(got[0], want[0]) {
			t.Errorf("%q, want %q", got, want)
		}
		in := s.fill(`{}`)
		in.State = nil
		if got := s.runBatch(sc, in); len(got) != 1 || strings.Contains(got[0], "1795861800.25") {
			t.Errorf("without a state the time is %q", got)
		}
	})
}
