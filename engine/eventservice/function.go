//go:build linux && cgo

package eventservice

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/script"
)

var _ engine.FunctionService = (*Store)(nil)

// SetFunctions implements engine.FunctionService.
func (s *Store) SetFunctions(functions []engine.Function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.functions, s.computed = nil, nil
	for _, f := range functions {
		if f.Table != "" {
			s.computed = append(s.computed, eventstore.ComputedColumn{Table: f.Table, Name: f.Name, Compute: computeBy(f.Script), Version: f.Script.String})
			continue
		}
		s.functions = append(s.functions, eventstore.Function{Name: f.Name, Type: f.Type, Call: callScript(f.Script)})
	}
	if s.opened != nil {
		s.setFunctions()
	}
}

// setFunctions passes the functions, which Configure has checked, to the open store.
func (s *Store) setFunctions() {
	if err := s.opened.SetFunctions(s.functions); err != nil && s.log != nil {
		s.log.Warn("cannot set the SQL functions", "error", err)
	}
	s.opened.SetComputed(s.computed)
}

// checkFunctions returns an error with its place if the name of a function is taken.
func checkFunctions(functions []config.Computed) error {
	for _, f := range functions {
		if err := eventstore.CheckFunctionName(f.Name); err != nil {
			return f.At(err, event.HintOf(err))
		}
	}
	return nil
}

// computeBy returns a function that adds a computed column to rows by a script.
func computeBy(s script.Script) func(context.Context, *event.Batch, *event.Result) error {
	return func(ctx context.Context, rows *event.Batch, res *event.Result) error {
		err := s.Run(ctx, rows, res)
		if _, ok := errors.AsType[*script.LimitError](err); ok { // a limit for several rows: further rows would take too long
			return &eventstore.FunctionError{Err: err}
		}
		return err
	}
}

// callScript returns a function that computes values from rows by a script.
func callScript(s script.Script) func(context.Context, [][]byte) ([][]byte, error) {
	return func(ctx context.Context, rows [][]byte) ([][]byte, error) {
		batch := event.Batch{Partition: "sql"}
		for _, row := range rows {
			batch.Append(row)
		}
		batch.Range.Count = uint64(batch.Len())
		values, res := make([][]byte, len(rows)), event.Result{Outputs: make([]event.Output, 1)}
		err := script.RunAll(ctx, s, &batch, &res, 0, func(part *event.Batch, _ *script.LimitError) error {
			if len(res.Dead) > 0 {
				return fmt.Errorf("%s, for the row %.200s", res.Dead[0].Error, rows[res.Dead[0].Position])
			}
			out := &res.Outputs[0]
			for i := range out.Len() {
				values[part.Range.First+uint64(out.From[i])] = bytes.Clone(out.Doc(i))
			}
			return nil
		})
		return values, err
	}
}
