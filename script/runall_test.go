package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

// A limited script hits a limit after some of the events that it is given.
type limited struct {
	ran func(n int) int
	err error
}

func (s limited) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	if s.err != nil {
		return s.err
	}
	if res.Ran = s.ran(in.Len()); res.Ran < in.Len() {
		return &LimitError{Limit: "batch time", Err: &Error{Script: "s.lua", Message: "slow"}}
	}
	return nil
}

func (limited) String() string { return "s.lua@v1" }
func (limited) Close() error   { return nil }

func TestRunAll(t *testing.T) {
	halves := limited{ran: func(n int) int { return (n + 1) / 2 }}
	for name, c := range map[string]struct {
		script    Script
		limitsMax int
		want      string // the positions of each part; * for one that a limit ended
		err       string
	}{
		"whole":            {limited{ran: func(n int) int { return n }}, 1, "100-105", ""},
		"any limits":       {halves, 0, "100-103* 103-104* 104-105", ""},
		"third limit":      {halves, 3, "100-103* 103-104* 104-105", ""},
		"second limit":     {halves, 2, "100-103* 103-104*", "batch time limit"},
		"no progress":      {limited{ran: func(int) int { return 0 }}, 0, "", "batch time limit"},
		"no progress, two": {limited{ran: func(int) int { return 0 }}, 2, "", "batch time limit"},
		"other error":      {limited{err: errors.New("broken")}, 3, "", "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			var parts []string
			res := &event.Result{}
			err := RunAll(t.Context(), c.script, batchOf("0", "1", "2", "3", "4"), res, c.limitsMax, func(part *event.Batch, limit *LimitError) error {
				text := fmt.Sprintf("%d-%d", part.Range.First, part.Range.End())
				if limit != nil {
					text += "*"
				}
				if part.Len() != res.Ran {
					t.Errorf("a part has %d events, %d ran", part.Len(), res.Ran)
				}
				parts = append(parts, text)
				return nil
			})
			if diff := cmp.Diff(c.want, strings.Join(parts, " ")); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			if got := fmt.Sprint(err); c.err == "" && err != nil || !strings.Contains(got, c.err) {
				t.Errorf("error is %v, want %q", err, c.err)
			}
		})
	}
	t.Run("handle fails", func(t *testing.T) {
		failed := errors.New("failed")
		err := RunAll(t.Context(), halves, batchOf("0", "1"), &event.Result{}, 0, func(*event.Batch, *LimitError) error { return failed })
		if !errors.Is(err, failed) {
			t.Errorf("error is %v, want that of handle", err)
		}
	})
	t.Run("no reason", func(t *testing.T) {
		err := RunAll(t.Context(), silent{}, batchOf("0", "1"), &event.Result{}, 0, func(*event.Batch, *LimitError) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "ran 1 of 2 events") {
			t.Errorf("error is %v, want one about the engine", err)
		}
	})
}

// A silent script ends early and says nothing.
type silent struct{ limited }

func (silent) Run(_ context.Context, _ *event.Batch, res *event.Result) error {
	res.Ran = 1
	return nil
}
