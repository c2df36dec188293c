// Package computed adds columns to the rows of a script. Each column is a field whose
// value a function computes from the row, including the columns before it. Changes that
// the function makes to its row are discarded.
//
// A row whose function fails, or returns a value of the wrong type, becomes a dead letter
// that names the column, for each sink of the row. A Script is safe for concurrent use.
package computed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/script"
)

// The built-in functions.
const (
	Identifier = "make://identifier" // 32 hexadecimal digits, see identifier
	Timestamp  = "make://timestamp"  // time at which the batch is processed
)

// A Column is one computed column, of code or of a built-in function.
type Column struct {
	Name    string
	Type    event.Type
	Code    script.Script // loaded for values; closed with the Script
	Builtin string        // Identifier or Timestamp
}

// IsBuilt reports whether a function is built in.
func IsBuilt(function string) bool { return function == Identifier || function == Timestamp }

// Types returns the types that a column may have.
func Types() []event.Type {
	return []event.Type{event.Bool, event.Int32, event.Int64, event.Float64, event.String, event.Timestamp, event.JSON}
}

// Check returns an error if the column is invalid.
func (c Column) Check() error {
	switch {
	case c.Name == "" || strings.ContainsFunc(c.Name, isAmbiguous):
		return fmt.Errorf("invalid column name %q: quotes, slashes and control characters are not allowed", c.Name)
	case !slices.Contains(Types(), c.Type):
		return fmt.Errorf("column %s cannot be of type %s", c.Name, c.Type)
	case c.Builtin == Identifier && c.Type != event.String:
		return fmt.Errorf("column %s: %s is of type string, not %s", c.Name, Identifier, c.Type)
	case c.Builtin == Timestamp && c.Type != event.Timestamp && c.Type != event.Int64:
		return fmt.Errorf("column %s: %s is of type timestamp, or int64 for seconds since 1970, not %s", c.Name, Timestamp, c.Type)
	}
	return nil
}

// isAmbiguous reports whether JSON can spell the character in several ways.
func isAmbiguous(r rune) bool { return r < ' ' || strings.ContainsRune(`"\/`, r) }

// Script is a script with computed columns.
type Script struct {
	pipeline     string
	inner        script.Script
	columns      []Column
	options      script.Options
	now          func() time.Time
	computations sync.Pool // of *work
}

// New adds columns to the rows of inner, which was loaded with Options.SingleOutput. sinks are
// the sinks of the result, and now is the clock of Timestamp. Close closes inner and the code of
// the columns.
func New(pipeline string, inner script.Script, columns []Column, sinks []script.Sink, now func() time.Time) *Script {
	return &Script{pipeline: pipeline, inner: inner, columns: columns, options: script.Options{Sinks: sinks}, now: now}
}

// String returns the names and versions of the script and of the columns' code.
func (s *Script) String() string {
	names := []string{s.inner.String()}
	for _, c := range s.columns {
		if c.Code != nil {
			names = append(names, c.Code.String())
		}
	}
	return strings.Join(names, ", ")
}

// Close implements script.Script.
func (s *Script) Close() error {
	errs := []error{s.inner.Close()}
	for _, c := range s.columns {
		if c.Code != nil {
			errs = append(errs, c.Code.Close())
		}
	}
	return errors.Join(errs...)
}

// Run implements script.Script.
func (s *Script) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	w := s.acquireComputation()
	defer s.computations.Put(w)
	err := s.inner.Run(ctx, in, &w.inner)
	var limit *script.LimitError // what ran before it goes on
	if err == nil || errors.As(err, &limit) {
		err = w.run(ctx, in, res)
	}
	if err != nil {
		res.Reset()
		return err
	}
	if limit != nil {
		return limit
	}
	return nil
}

// FinishRows implements script.RowScript.
func (s *Script) FinishRows(ctx context.Context, in *event.Batch, rows *event.Output, res *event.Result) error {
	w := s.acquireComputation()
	defer s.computations.Put(w)
	w.inner.Reset()
	w.inner.Ran = in.Len()
	out := &w.inner.Outputs[0]
	out.Data, out.Ends = append(out.Data, rows.Data...), append(out.Ends, rows.Ends...)
	out.From, out.To = append(out.From, rows.From...), append(out.To, rows.To...)
	err := w.run(ctx, in, res)
	if err != nil {
		res.Reset()
	}
	return err
}

func (s *Script) acquireComputation() *computation {
	if w, ok := s.computations.Get().(*computation); ok {
		return w
	}
	w := &computation{
		script: s, result: script.NewResultBuilder(&s.options, s),
		inner: event.Result{Outputs: make([]event.Output, 1)}, values: event.Result{Outputs: make([]event.Output, 1)},
	}
	w.result.Source = w.sourceInSink
	for _, c := range s.columns {
		spec := []event.Column{{Name: c.Name, Path: []string{valueKey}, Type: c.Type}}
		w.checkers = append(w.checkers, document.NewExtractor(spec))
	}
	return w
}
