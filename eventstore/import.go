//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
)

// importPipeline is the pipeline name of imported files. A configured pipeline cannot have
// this name.
const importPipeline = "import of files"

// An Import appends the rows of one file to a table. A row's position is its index in the
// file, from 0. A row that the table already has from the same file is skipped, even after a
// crash.
type Import struct{ partition *Partition }

// Import starts or resumes the import of a file. file identifies the file's content. Import
// creates the table with c if it is missing and leaves an existing table unchanged. It
// returns the positions already imported. A later Import of the same file fences this one.
func (s *Store) Import(ctx context.Context, table, file string, c TableConfig) (i *Import, done event.Ranges, err error) {
	t := s.tableNamed(table)
	if t == nil {
		if t, err = s.Table(table, c); err != nil {
			return nil, nil, err
		}
	}
	if have := t.current().time; c.Time != "" && have != c.Time {
		return nil, nil, configError("leave the time column out; or: "+timeHint(t.Name(), c), "table %s has the time column %q, not %q", t.Name(), have, c.Time)
	}
	p, done, err := t.TakeOver(ctx, importPipeline, file)
	if err != nil {
		return nil, nil, err
	}
	return &Import{p}, done, nil
}

// Append appends count rows, from position first on. docs holds the rows except those listed
// in leaveOut, whose numbers count from first. *RejectedRows lists the rows that do not fit
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
			return fmt.Errorf("eventstore: import: fewer documents than rows")
		}
		out.Data = append(out.Data, docs[0]...)
		out.Ends = append(out.Ends, uint32(len(out.Data)))
		out.From = append(out.From, row)
		docs = docs[1:]
	}
	err := i.partition.Append(ctx, out)
	if rejected, ok := errors.AsType[*RejectedRows](err); ok {
		for n := range rejected.Rows {
			rejected.Rows[n].Row = int(out.From[rejected.Rows[n].Row])
		}
	}
	return err
}

// ForgetImport makes the next Import of the file append all its rows again. Rows already in
// the table stay.
func (s *Store) ForgetImport(ctx context.Context, table, file string) error {
	t := s.tableNamed(table)
	if t == nil {
		return nil
	}
	return t.SetPosition(ctx, importPipeline, file, 0)
}
