package goplugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// A run passes one batch through a plugin.
type run struct {
	*workspace
	script *loadedScript
	ctx    context.Context
	in     *event.Batch
	res    *event.Result
	ran    int   // events that have run, unless limit is set before
	limit  error // the limit that ended the run early
}

// start begins the result and fails the events whose documents are invalid.
func (r *run) start() error {
	r.result.Start(r.in, r.res)
	r.ran, r.limit = r.in.Len(), nil
	rejected, err := r.checker.Check(r.in.Data, r.in.Ends)
	if err != nil {
		return fmt.Errorf("check documents: %w", err)
	}
	for _, bad := range rejected {
		r.result.Fail(bad.Row, "parse", errors.New(bad.Reason))
	}
	return nil
}

// endDocument ends the document of event i that was appended to the rows, for a set of
// sinks.
func (r *run) endDocument(i int, to uint64) {
	err := r.result.EndDocument(i, to)
	if err == nil {
		return
	}
	var limit *script.LimitError
	if !errors.As(err, &limit) {
		r.result.Fail(i, "script", err)
		return
	}
	r.result.Discard(i)
	r.ran, r.limit = i, limit
}
