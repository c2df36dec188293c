package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/charmbracelet/x/ansi"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/pipeline"
)

// A recordedEngine answers with what it was given, and records what is asked of it.
type recordedEngine struct {
	asked   []string
	letters []admin.DeadLetter
	err     error
}

func (e *recordedEngine) Status(context.Context) ([]admin.Status, error) { return nil, e.err }

func (e *recordedEngine) Pause(_ context.Context, name, reason string) error {
	e.asked = append(e.asked, "pause "+name+" "+reason)
	return e.err
}

func (e *recordedEngine) Resume(_ context.Context, name string) error {
	e.asked = append(e.asked, "resume "+name)
	return e.err
}

func (e *recordedEngine) DeadLetters(_ context.Context, name string, limit int) ([]admin.DeadLetter, error) {
	e.asked = append(e.asked, fmt.Sprintf("letters %s %d", name, limit))
	return e.letters, e.err
}

var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// statusAt is a pipeline after so many seconds, which has moved so many events in each.
func statusAt(name string, seconds int, perSecond uint64) admin.Status {
	n := uint64(seconds) * perSecond
	s := admin.Status{
		Pipeline: name, State: pipeline.Running, Read: n, Events: n, Lag: 7, ScriptSeconds: float64(seconds) / 4,
		Sinks: []admin.SinkStatus{{Name: "table", Rows: n, Lag: 9, Seconds: float64(seconds) / 2}},
	}
	for i, bound := range pipeline.LatencyBounds {
		if bound >= 4*time.Millisecond {
			s.Deliveries.Buckets[i], s.Sinks[0].Commits.Buckets[i] = n, n
		}
	}
	s.Deliveries.Count, s.Sinks[0].Commits.Count = n, n
	return s
}

// run has a model read for some seconds.
func run(t *testing.T, e Engine, seconds int, names ...string) *model {
	t.Helper()
	m := newModel(e)
	for i := range seconds + 1 {
		r := reading{at: start.Add(time.Duration(i) * time.Second)}
		for n, name := range names {
			r.all = append(r.all, statusAt(name, i, uint64(1000*(n+1))))
		}
		m.Update(r)
	}
	return m
}

// press presses keys, and performs what they start.
func press(m *model, keys ...string) {
	for _, key := range keys {
		msg := tea.KeyPressMsg{Text: key, Code: []rune(key)[0]}
		switch key {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "down":
			msg = tea.KeyPressMsg{Code: tea.KeyDown}
		}
		if _, cmd := m.Update(msg); cmd != nil {
			m.Update(cmd())
		}
	}
}

// shown returns the screen without colours.
func shown(m *model) string { return ansi.Strip(m.text()) }

func TestOverview(t *testing.T) {
	m := run(t, &recordedEngine{}, 10, "mails", "orders")
	m.Update(tea.WindowSizeMsg{Width: 120, Height: 30})
	for _, want := range []string{
		"mails                    running    1000   1000      9  3.5 ms  4.0 ms    25%    50%      0      0  " + strings.Repeat(" ", 10) + "██████████",
		"orders                   running    2000   2000      9  3.5 ms  4.0 ms    25%    50%      0      0  " + strings.Repeat(" ", 10) + "██████████",
	} {
		if got := shown(m); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant the line\n%s", got, want)
		}
	}
	order := func() string {
		var names []string
		for _, r := range m.rows {
			names = append(names, r.Name())
		}
		return strings.Join(names, " ")
	}
	for key, want := range map[string]string{"n": "mails orders", "o": "orders mails", "x": "mails orders"} {
		if press(m, key); order() != want {
			t.Errorf("sorted by %s: got %s, want %s", key, order(), want)
		}
	}
	m.Update(tea.WindowSizeMsg{Width: 30, Height: 8})
	for _, line := range strings.Split(shown(m), "\n") {
		if n := ansi.StringWidth(line); n > 30 {
			t.Errorf("a line has %d columns of 30: %q", n, line)
		}
	}
	if n := strings.Count(shown(m), "\n") + 1; n != 8 {
		t.Errorf("got %d lines, want 8", n)
	}
}

func TestDetails(t *testing.T) {
	m := run(t, &recordedEngine{}, 3, "mails", "orders")
	press(m, "down", "enter")
	for _, want := range []string{"orders  running", "2000/s in, 2000/s out", "p50 3.5 ms, p99 4.0 ms", "table                     2000          9"} {
		if got := shown(m); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
	press(m, "esc")
	if m.screen != overview {
		t.Error("esc does not go back")
	}
	m.Update(reading{at: start.Add(time.Hour), all: []admin.Status{{Pipeline: "mails", State: pipeline.Paused, Reason: "a \x1b[2J reason"}}})
	press(m, "enter")
	if got := shown(m); !strings.Contains(got, `a \x1b[2J reason`) || strings.Contains(got, "orders") {
		t.Errorf("got\n%s\nwant a paused pipeline with its reason, and not one that has ended", got)
	}
}

func TestOperations(t *testing.T) {
	e := &recordedEngine{letters: []admin.DeadLetter{{ID: "k3j9", Stage: "script", Error: "boom\nat line 2", Original: `{"id":1}`}}}
	m := run(t, e, 1, "mails", "orders")
	press(m, "p", "down", "r")
	if want := "resumed orders"; !strings.Contains(shown(m), want) {
		t.Errorf("got\n%s\nwant %q", shown(m), want)
	}
	press(m, "d")
	if got, want := strings.Join(e.asked, ", "), "pause mails by perigee top, resume orders, letters orders 200"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	for _, want := range []string{"1 of the dead letters of orders", "k3j9  script  boom", `{"id":1}`} {
		if got := shown(m); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
	e.err = errors.New("no \x1b[31mengine")
	press(m, "esc", "p")
	if want := `no \x1b[31mengine`; !strings.Contains(shown(m), want) {
		t.Errorf("got\n%s\nwant the failure %q", shown(m), want)
	}
	m.Update(m.read())
	if got := shown(m); !strings.Contains(got, "no ") || !strings.Contains(got, "mails") {
		t.Errorf("got\n%s\nwant the failure above the last figures", got)
	}
}

// TestRestartedPipeline checks that counts that begin again at 0 give no rates below 0.
func TestRestartedPipeline(t *testing.T) {
	m := run(t, &recordedEngine{}, 5, "mails")
	m.Update(reading{at: start.Add(6 * time.Second), all: []admin.Status{statusAt("mails", 0, 0)}})
	m.Update(reading{at: start.Add(7 * time.Second), all: []admin.Status{statusAt("mails", 1, 50)}})
	if got := m.rows[0].Out; got != 50 {
		t.Errorf("got %v events in a second, want 50", got)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 0.25: "0.2", 9: "9", 9999: "9999", 10_000: "10.0k", 123_456: "123k", 9_999_400: "9999k", 12_345_678: "12.3M", 5e9: "5000M", 5e13: "50.0T",
	} {
		if got := count(n); got != want {
			t.Errorf("count of %v: got %s, want %s", n, got, want)
		}
	}
}

func TestSparkline(t *testing.T) {
	for _, test := range []struct {
		values []float64
		width  int
		want   string
	}{
		{nil, 3, "   "},
		{[]float64{0, 1, 2, 4}, 6, "   ▂▄█"},
		{[]float64{9, 9, 1, 1}, 2, "██"},
		{[]float64{0, 0}, 2, "  "},
		{[]float64{1, 1e9}, 2, "▁█"},
	} {
		if got := sparkline(test.values, test.width); got != test.want {
			t.Errorf("%v: got %q, want %q", test.values, got, test.want)
		}
	}
}
