//go:build linux && cgo

package eventservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/pipeline/tap"
)

func newFilter(t *testing.T, where string) *Filter {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	f, err := NewFilter(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// tapOf returns a tap of n events, which then ends with err, or waits for the end of its context.
func tapOf(n int, err error, waits bool) func(context.Context) iter.Seq2[tap.Event, error] {
	return func(ctx context.Context) iter.Seq2[tap.Event, error] {
		return func(yield func(tap.Event, error) bool) {
			for i := range n {
				e := tap.Event{Time: time.Now(), Point: tap.Points[0], Partition: "p", Position: uint64(i), Event: json.RawMessage(fmt.Sprintf(`{"id":%d}`, i))}
				if !yield(e, nil) {
					return
				}
			}
			if waits {
				<-ctx.Done()
				err = ctx.Err()
			}
			if err != nil {
				yield(tap.Event{}, err)
			}
		}
	}
}

// TestFilterEvents filters more events than fit into a group, and returns the error that ends the
// tap after them.
func TestFilterEvents(t *testing.T) {
	f := newFilter(t, "CAST(event ->> 'id' AS INT) % 400 = 1")
	ended := errors.New("ended")
	for _, want := range []error{nil, ended} {
		var positions []uint64
		var got error
		for e, err := range f.Events(t.Context(), tapOf(2*groupEvents+1, want, false)) {
			if err != nil {
				got = err
				continue
			}
			positions = append(positions, e.Position)
			if string(e.Event) != fmt.Sprintf(`{"id":%d}`, e.Position) || e.Text != "" {
				t.Errorf("event %d became %s, %q", e.Position, e.Event, e.Text)
			}
		}
		if !slices.Equal(positions, []uint64{1, 401, 801}) || got != want {
			t.Errorf("got events %v and %v, want 1, 401, 801 and %v", positions, got, want)
		}
	}
}

// TestFilterEventsStops stops reading while the tap waits for its next event.
func TestFilterEventsStops(t *testing.T) {
	f := newFilter(t, "true")
	for e, err := range f.Events(t.Context(), tapOf(1, nil, true)) {
		if err != nil || e.Position != 0 {
			t.Errorf("got event %d, %v", e.Position, err)
		}
		break
	}
}

// TestFilterEventsOfStatement returns numbers that are no events' from what is not a condition.
func TestFilterEventsOfStatement(t *testing.T) {
	f := newFilter(t, "true) UNION (SELECT 7")
	for _, err := range f.Events(t.Context(), tapOf(1, nil, false)) {
		if err != nil {
			if !errors.Is(err, ErrNotCondition) {
				t.Errorf("got %v, want %v", err, ErrNotCondition)
			}
			return
		}
	}
	t.Error("a statement is a condition")
}
