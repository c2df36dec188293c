package pipeline

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

// TestAllDied tells a run in which every event died from those in which a row, or
// nothing at all, was written.
func TestAllDied(t *testing.T) {
	for name, test := range map[string]struct {
		main func(position uint64, doc string) ([]string, error)
		dead uint64 // events
		all  bool
	}{
		"all in the script": {func(uint64, string) ([]string, error) { return nil, errors.New("no") }, 10, true},
		"all in the sink":   {func(_ uint64, doc string) ([]string, error) { return []string{"bad " + doc, "bad " + doc}, nil }, 10, true},
		"one row of each":   {func(_ uint64, doc string) ([]string, error) { return []string{"bad " + doc, doc}, nil }, 0, false},
		"one event lives": {func(position uint64, doc string) ([]string, error) {
			if position == 3 {
				return []string{doc}, nil
			}
			return nil, errors.New("no")
		}, 9, false},
		"the others are dropped": {func(position uint64, doc string) ([]string, error) {
			if position < 4 {
				return nil, nil
			}
			return nil, errors.New("no")
		}, 6, true},
		"all are dropped": {func(uint64, string) ([]string, error) { return nil, nil }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t, newMemorySource(newMemoryPartition("a", 10)), testScript{main: test.main}, newMemorySink())
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s := r.Stats(); s.DeadEvents != test.dead || s.AllDied() != test.all || s.FoundNothing() {
				t.Errorf("%d dead events, all died: %v, found nothing: %v", s.DeadEvents, s.AllDied(), s.FoundNothing())
			}
		})
	}
}

// TestFoundNothing runs a pipeline whose sink has everything already. Stats say where
// it began to read.
func TestFoundNothing(t *testing.T) {
	to := newMemorySink()
	for run, want := range []struct {
		nothing bool
		starts  []Start
	}{
		{false, []Start{{"a", 0}, {"b", 0}}},
		{true, []Start{{"a", 10}, {"b", 7}}},
	} {
		q := newMemorySource(newMemoryPartition("b", 7), newMemoryPartition("a", 10))
		r := newHarness(t, q, testScript{main: passThrough}, to)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := r.Stats()
		if diff := cmp.Diff(want.starts, s.Started); diff != "" || s.FoundNothing() != want.nothing || s.AllDied() {
			t.Errorf("run %d: found nothing: %v, all died: %v\n%s", run, s.FoundNothing(), s.AllDied(), diff)
		}
	}
}

// Stats list a bounded number of starts, the first of each partition.
func TestStartsAreBounded(t *testing.T) {
	var c counters
	for i := range uint64(2 * startedMax) {
		name := string(rune('A' + i))
		c.countOpened(name, nil)
		c.countOpened(name, event.Ranges{{First: 2, Count: 5}})
	}
	if all := c.starts.list(); len(all) != startedMax || slices.ContainsFunc(all, func(s Start) bool { return s.Next != 0 }) {
		t.Errorf("%d starts: %v", len(all), all)
	}
}

// TestDeadLettersAreLogged: the first at once, then one record every logInterval with how many
// there were since, and none for batches without any.
func TestDeadLettersAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var l deadLetterLog
		report := func(n int) string {
			out.Reset()
			var dead []event.DeadLetter
			for i := range n {
				dead = append(dead, event.DeadLetter{Position: uint64(i), Stage: "parse", Error: "no"})
			}
			l.report(log, "a", dead)
			_, text, _ := strings.Cut(strings.TrimSpace(out.String()), "msg=")
			return text
		}
		for _, step := range []struct {
			wait time.Duration
			n    int
			want string
		}{
			{0, 0, ""},
			{0, 3, `"dead letters" count=3 partition=a position=2 stage=parse error=no`},
			{0, 2, ""},
			{logInterval - 1, 1, ""},
			{1, 0, ""},
			{0, 1, `"dead letters" count=4 partition=a position=0 stage=parse error=no`},
			{logInterval, 1, `"dead letters" count=1 partition=a position=0 stage=parse error=no`},
		} {
			time.Sleep(step.wait)
			if got := report(step.n); got != step.want {
				t.Errorf("after %v, %d more are logged as %q, want %q", step.wait, step.n, got, step.want)
			}
		}
	})
}
