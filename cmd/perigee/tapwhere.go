package main

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/pipeline/tap"
)

// Bounds of the events that --where takes together.
const (
	whereEvents = 500
	whereBytes  = 1 << 20
	whereWait   = 100 * time.Millisecond
)

// A tapped is an event of a tap, or why there are no more.
type tapped struct {
	event tap.Event
	err   error
}

// passWhere returns the events for which a condition is true. It evaluates the condition for those
// that come within whereWait together.
func passWhere(ctx context.Context, filter *eventservice.Filter, events iter.Seq2[tap.Event, error]) iter.Seq2[tap.Event, error] {
	return func(yield func(tap.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		arriving := make(chan tapped)
		go func() {
			defer close(arriving)
			for e, err := range events {
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
			group, err := gather(arriving)
			passed, failed := passGroup(ctx, filter, group)
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

// gather waits for an event and takes those that follow soon. It returns nil once there are no more.
func gather(arriving <-chan tapped) (group []tap.Event, err error) {
	var over <-chan time.Time
	for size := 0; len(group) < whereEvents && size < whereBytes; {
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
			over = time.After(whereWait)
		}
	}
	return group, nil
}

func passGroup(ctx context.Context, filter *eventservice.Filter, group []tap.Event) (passed []tap.Event, err error) {
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
	indexes, err := filter.Pass(ctx, encoded)
	for _, i := range indexes {
		if i < 0 || i >= len(group) {
			return nil, usageError("--where takes a single SQL condition")
		}
		passed = append(passed, group[i])
	}
	return passed, err
}
