package trial_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
)

// loadWithState is load for a pipeline with a state. It also puts temporary files into a folder,
// which it returns.
func loadWithState(t *testing.T, code string) (p *trial.Pipeline, temporary string) {
	t.Helper()
	if nodedb.Version() == "" {
		t.Skip("state needs a build with cgo")
	}
	temporary = t.TempDir()
	t.Setenv("TMPDIR", temporary)
	p = load(t, code, "    state: {name: users}", trial.Options{Documents: true})
	p.Freeze(time.Unix(1_800_000_000, 0))
	return p, temporary
}

// value returns the value of a node.
func value(t *testing.T, p *trial.Pipeline, path string) (text string) {
	t.Helper()
	node, err := nodedb.ParsePath(path)
	if err == nil {
		err = p.State.View(t.Context(), func(tx *nodedb.Tx) error {
			v, err := tx.Get(node)
			text = v.String()
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestState counts over batches, undoes what a failed event has changed, and starts again.
func TestState(t *testing.T) {
	p, temporary := loadWithState(t, `
local nodedb = require "nodedb"
local users = nodedb.node "^users"
function count(user) return users[user]:incr() end
function main(event)
  local n = count(event.user)
  if event.loop then while true do end end
  if event.fail then error "fails" end
  return {i = n}
end`)
	for _, step := range []struct {
		docs []string
		want string
		dead int
	}{
		{[]string{`{"user":"ada"}`, `{"user":"ada"}`}, "2", 0},
		{[]string{`{"user":"ada","fail":1}`, `{"user":"ada"}`}, "3", 1},
		{[]string{`{"user":"ada"}`, `{"user":"ada","loop":1}`, `{"user":"ada"}`}, "5", 1},
	} {
		got := run(t, p, step.docs...)
		if n := value(t, p, `^users("ada")`); n != step.want || len(got.dead) != step.dead {
			t.Errorf("after %s the state has %s, and dead letters %q, want %s and %d", step.docs, n, got.dead, step.want, step.dead)
		}
	}
	functions, err := p.LoadCallable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	results, err := functions.Call(t.Context(), "count", []json.RawMessage{json.RawMessage(`"ada"`)})
	if err != nil || fmt.Sprintf("%s", results) != "[6]" {
		t.Errorf("a call returned %s, %v, want 6", results, err)
	}
	if err := functions.Close(); err != nil {
		t.Error(err)
	}
	if err := p.State.Clear(); err != nil {
		t.Fatal(err)
	}
	if n := value(t, p, `^users("ada")`); n != "" {
		t.Errorf("after Clear the state has %s", n)
	}
	if got := run(t, p, `{"user":"ada"}`).rows[0]; len(got) != 1 || value(t, p, `^users("ada")`) != "1" {
		t.Errorf("rows after Clear %s", got)
	}
	if left, _ := filepath.Glob(filepath.Join(temporary, "perigee-state-*")); len(left) != 1 {
		t.Errorf("folders %s, want one", left)
	}
	if err := p.State.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(temporary); slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.IsDir() }) {
		t.Errorf("Close left %v", left)
	}
}

// TestWait runs timers in the order of their times.
func TestWait(t *testing.T) {
	p, _ := loadWithState(t, `
local timers, time = require "timer", require "time"
function main(event)
  timers.after(event.after, event.key)
  return nil
end
function timer(key, due)
  if key == "fails" then error "fails" end
  if key == "often" then timers.after(10, key) end
  if key == "loops" then timers.after(0, key) end
  return {s = key, i = math.floor((time.now() - 1800000000) * 1000 + 0.5)}
end`)
	if dead := run(t, p, `{"key":"c","after":30.1}`, `{"key":"a","after":5}`, `{"key":"fails","after":7}`, `{"key":"often","after":10}`, `{"key":"b","after":5}`, `{"key":"late","after":60.0005}`).dead; dead != nil {
		t.Errorf("dead letters %s", dead)
	}
	wait := func(d time.Duration) (got []string, err error) {
		err = p.Wait(t.Context(), d, func(_ *event.Batch, res *event.Result) error {
			for i := range res.Outputs[0].Len() {
				got = append(got, string(res.Outputs[0].Doc(i)))
			}
			for _, dead := range res.Dead {
				got = append(got, dead.Stage)
			}
			return nil
		})
		return got, err
	}
	for _, test := range []struct {
		wait time.Duration
		want []string
	}{
		{4999 * time.Millisecond, nil},
		{time.Millisecond, []string{`{"i":5000,"s":"a"}`, `{"i":5000,"s":"b"}`}},
		{26 * time.Second, []string{"script", `{"i":10000,"s":"often"}`, `{"i":20000,"s":"often"}`, `{"i":30000,"s":"often"}`, `{"i":30100,"s":"c"}`}},
		{29 * time.Second, []string{`{"i":40000,"s":"often"}`, `{"i":50000,"s":"often"}`, `{"i":60000,"s":"often"}`}},
		{time.Second, []string{`{"i":60001,"s":"late"}`}},
	} {
		got, err := wait(test.wait)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("a wait of %v ran %q, %v, want %q", test.wait, got, err, test.want)
		}
	}
	run(t, p, `{"key":"loops","after":1}`)
	if _, err := wait(time.Minute); err == nil {
		t.Error("a timer that sets itself again for the present does not end")
	}
}
