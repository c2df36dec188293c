package script

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
)

// RunAll passes a batch through s. When a limit of the batch ends a run early, it runs the
// rest, until every event has run.
//
// After each run it calls handle with the part of the batch that ran; what came of the
// part is in res. limit is what ended the run, or nil. An error of handle ends RunAll.
//
// RunAll returns the *LimitError of the run that is the limitsMax-th to hit a limit. 0
// means that any number of runs may, as long as each runs an event. RunAll returns other
// errors of s as they are.
func RunAll(ctx context.Context, s Script, in *event.Batch, res *event.Result, limitsMax int,
	handle func(part *event.Batch, limit *LimitError) error,
) error {
	rest := in
	for limits := 1; ; limits++ {
		err := s.Run(ctx, rest, res)
		limit := limitIn(err)
		if err != nil && limit == nil {
			return err
		}
		if limit == nil && res.Ran != rest.Len() {
			return fmt.Errorf("script %s ran %d of %d events and returned no error: this is a bug in its engine", s, res.Ran, rest.Len())
		}
		if res.Ran == rest.Len() {
			return handle(rest, limit)
		}
		if res.Ran > 0 {
			part := rest.Head(res.Ran)
			if err := handle(&part, limit); err != nil {
				return err
			}
		}
		if limits == limitsMax || limitsMax == 0 && res.Ran == 0 {
			return limit
		}
		tail := rest.Tail(res.Ran)
		rest = &tail
	}
}

// limitIn returns the *LimitError that err is, or nil.
func limitIn(err error) *LimitError {
	if err == nil {
		return nil // without the allocation below
	}
	var limit *LimitError
	errors.As(err, &limit)
	return limit
}
