package eventservice

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/perigeedb/perigee/pipeline/tap"
)

// Bounds of a group of events that a Filter evaluates in one query.
const (
	groupEvents = 500
	groupBytes  = 1 << 20
	groupWait   = 100 * time.Millisecond
)

// ErrNotCondition means that the text of a Filter is not a single SQL condition.
var ErrNotCondition = errors.New("the filter is not a single SQL condition")

// A tapped is an event of a tap, or the error that ended the tap.
type tapped struct {
	event tap.Event
	err   error
}

// Events returns the events of open for which the condition is true. It evaluates the condition once
// for all events that arrive within 100 ms. The context of open ends with the iteration.
func (f *Filter) Events(ctx context.Context, open func(context.Context) iter.Seq2[tap.Event, error]) iter.Seq2[tap.Event, error] {
	return func(yield func(tap.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		arriving := make(chan tapped)
		go func() {
			defer close(arriving)
			for e, err := range open(ctx) {
				select {
				case arriving <- tapped{e, err}:
				case <-ctx.Done():
					return
				}
			}
		}()
		defer func() {
			cancel()
			for range arriving {
			}
		}()
		for {
			group, err := gatherEvents(arriving)
			passed, failed := f.passGroup(ctx, group)
			for _, e := range passed {
				if !yield(e, nil) {
					return
				}
			}
			if failed != nil {
				err = failed
			}
			if err != nil {
				yield(tap.Event{}, err)
			}
			if err != nil || group == nil {
				return
			}
		}
	}
}

// gatherEvents waits for an event, and returns it with those that follow soon. It returns nil at the
// end.
func gatherEvents(arriving <-chan tapped) (group []tap.Event, err error) {
	var over <-chan time.Time
	for size := 0; len(group) < groupEvents && size < groupBytes; {
		select {
		case t, more := <-arriving:
			if !more || t.err != nil {
				return group, t.err
			}
			group, size = append(group, t.event), size+len(t.event.Event)+len(t.event.Text)
		case <-over:
			return group, nil
		}
		if over == nil {
			over = time.After(groupWait)
		}
	}
	return group, nil
}

func (f *Filter) passGroup(ctx context.Context, group []tap.Event) (passed []tap.Event, err error) {
	if len(group) == 0 {
		return nil, nil
	}
	asText := slices.Clone(group)
	for i := range asText {
		if e := &asText[i]; e.Event != nil {
			e.Text, e.Event = string(e.Event), nil
		}
	}
	encoded, err := json.Marshal(asText)
	if err != nil {
		return nil, err
	}
	indexes, err := f.Pass(ctx, encoded)
	for _, i := range indexes {
		if i < 0 || i >= len(group) {
			return nil, ErrNotCondition
		}
		passed = append(passed, group[i])
	}
	return passed, err
}
