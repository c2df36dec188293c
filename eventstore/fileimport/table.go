//go:build linux && cgo

package fileimport

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
)

// pipeline is the pipeline name of imported files. A configured pipeline cannot have
// this name.
const pipeline = "import of files"

// An Import appends the rows of one file to a table. A row's position is its index in the
// file, from 0. A row that the table already has from the same file is skipped, even after a
// crash.
type Import struct{ partition *eventstore.Partition }

// Begin starts or resumes the import of a file. file identifies the file's content. Begin
// creates the table with c if it is missing and leaves an existing table unchanged. It returns
// the positions already imported. A later Begin for the same file fences this import.
func Begin(ctx context.Context, s *eventstore.Store, table, file string, c eventstore.TableConfig) (i *Import, done event.Ranges, err error) {
	t := s.FindTable(table)
	if t == nil {
		if t, err = s.Table(table, c); err != nil {
			return nil, nil, err
		}
	}
	if has := t.TimeColumn(); c.Time != "" && has != c.Time {
		return nil, nil, &event.PermanentError{
			Err:  fmt.Errorf("eventstore: table %s has the time column %q, not %q", t.Name(), has, c.Time),
			Hint: "leave the time column out; or: " + eventstore.TimeHint(t.Name(), c),
		}
	}
	p, done, err := t.TakeOver(ctx, pipeline, file)
	if err != nil {
		return nil, nil, err
	}
	return &Import{p}, done, nil
}

// Append appends count rows, from position first on. docs holds the rows except those listed
// in leaveOut, whose numbers count from first. *eventstore.RejectedRows lists the rows that do not fit
// the table, counted from first; nothing is appended then.
func (i *Import) Append(ctx context.Context, first, count uint64, docs [][]byte, leaveOut []uint32) error {
	out := &event.Output{Range: event.Range{First: first, Count: count}}
	left := map[uint32]bool{}
	for _, row := range leaveOut {
		left[row] = true
	}
	for row := range uint32(count) {
		if left[row] {
			continue
		}
		if len(docs) == 0 {
			return fmt.Errorf("fileimport: fewer documents than rows")
		}
		out.Data = append(out.Data, docs[0]...)
		out.Ends = append(out.Ends, uint32(len(out.Data)))
		out.From = append(out.From, row)
		docs = docs[1:]
	}
	err := i.partition.Append(ctx, out)
	if rejected, ok := errors.AsType[*eventstore.RejectedRows](err); ok {
		for n := range rejected.Rows {
			rejected.Rows[n].Row = int(out.From[rejected.Rows[n].Row])
		}
	}
	return err
}

// Forget makes the next import of the file append all its rows again. Rows already in the
// table stay.
func Forget(ctx context.Context, s *eventstore.Store, table, file string) error {
	t := s.FindTable(table)
	if t == nil {
		return nil
	}
	return t.SetPosition(ctx, pipeline, file, 0)
}
