//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A ComputedColumn is a declared column of a table whose values this process computes from
// the rows, with a script for example. Its field is Name.
type ComputedColumn struct {
	Table, Name string
	// Compute copies rows to output 0 of res and sets the field in them. Rows for which there
	// is no value become dead letters in res instead. An error says that it computed nothing.
	// It is called by several appends at the same time.
	Compute func(ctx context.Context, rows *event.Batch, res *event.Result) error
	// Version names the function that Compute uses now. Another function has another name.
	Version func() string
}

// SetComputed sets the computed columns of all tables, also of those that are made later, in
// the order in which they are computed: each sees those before it. Functions that were set
// before are not called any more when it returns.
func (s *Store) SetComputed(columns []ComputedColumn) {
	byTable := map[string][]ComputedColumn{}
	for _, c := range columns {
		name := strings.ToLower(c.Table)
		byTable[name] = append(byTable[name], c)
	}
	s.mu.Lock()
	s.computed = byTable
	var all []*Table
	for _, t := range s.tables {
		all = append(all, t)
	}
	s.mu.Unlock()
	for _, t := range all {
		t.setComputed(byTable[strings.ToLower(t.Name())])
		t.computing.wait()
	}
	wake(s.compactor) // a recompute may wait for them
}

func (t *Table) setComputed(columns []ComputedColumn) { t.computed.Store(&columns) }

// compute returns the rows of out with the table's computed columns, in memory of b.
// *RejectedRows names rows for which there is no value. t.computing knows the caller.
func (t *Table) compute(ctx context.Context, out *event.Output, b *buffer) (*event.Output, error) {
	columns := t.computedColumns()
	if len(columns) == 0 || out.Len() == 0 {
		return out, nil
	}
	with := *out
	for i := range columns {
		c, res := &columns[i], &b.computed[i%2]
		res.Outputs = append(res.Outputs, event.Output{})[:1]
		rows := event.Batch{Partition: out.Partition, Range: event.Range{Count: uint64(with.Len())}, Data: with.Data, Ends: with.Ends}
		if err := c.Compute(ctx, &rows, res); err != nil {
			return nil, fmt.Errorf("eventstore: compute column %s of table %s: %w", c.Name, t.Name(), err)
		}
		if len(res.Dead) > 0 {
			return nil, c.rejectRows(res.Dead)
		}
		if n := res.Outputs[0].Len(); n != with.Len() {
			return nil, fmt.Errorf("eventstore: column %s of table %s has %d values for %d rows", c.Name, t.Name(), n, with.Len())
		}
		with.Data, with.Ends = res.Outputs[0].Data, res.Outputs[0].Ends
	}
	return &with, nil
}

// computedColumns returns the columns that are computed now.
func (t *Table) computedColumns() []ComputedColumn {
	if columns := t.computed.Load(); columns != nil {
		return *columns
	}
	return nil
}

// rejectRows says which rows have no value, one entry per row.
func (c *ComputedColumn) rejectRows(dead []event.Dead) error {
	rejected := &RejectedRows{}
	for _, d := range dead {
		row := RejectedRow{Row: int(d.Position), Reason: d.Error}
		if d.Stage != "parse" { // it is an object
			row.Column = c.Name
		}
		if n := len(rejected.Rows); n == 0 || rejected.Rows[n-1].Row != row.Row {
			rejected.Rows = append(rejected.Rows, row)
		}
	}
	return rejected
}
