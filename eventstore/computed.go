//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

// A ComputedColumn is a declared column whose values this process computes from the rows, for
// example with a script. Name is also the field that holds the value.
type ComputedColumn struct {
	Table, Name string
	// Compute copies rows to output 0 of res and sets the field in each. Rows without a
	// value become dead letters in res. On an error, Compute has computed nothing.
	// Compute must be safe for concurrent use.
	Compute func(ctx context.Context, rows *event.Batch, res *event.Result) error
	// Version identifies the function that Compute currently uses. It changes with the
	// function.
	Version func() string
}

// SetComputed sets the computed columns of all current and future tables, in evaluation
// order: each column sees the values of those before it. When SetComputed returns, no earlier
// function is running or will be called again.
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
	wake(s.compactor) // a recompute may be waiting for them
}

func (t *Table) setComputed(columns []ComputedColumn) { t.computed.Store(&columns) }

// compute returns the rows of out with the table's computed columns, in memory owned by b. It
// returns *RejectedRows for rows without a value. The caller is registered in t.computing.
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

// computedColumns returns the current computed columns.
func (t *Table) computedColumns() []ComputedColumn {
	if columns := t.computed.Load(); columns != nil {
		return *columns
	}
	return nil
}

// rejectRows converts dead letters into a *RejectedRows error, one entry per row.
func (c *ComputedColumn) rejectRows(dead []event.DeadLetter) error {
	rejected := &RejectedRows{}
	for _, d := range dead {
		row := catalog.RejectedRow{Row: int(d.Position), Reason: d.Error}
		if d.Stage != "parse" { // the row is an object
			row.Column = c.Name
		}
		if n := len(rejected.Rows); n == 0 || rejected.Rows[n-1].Row != row.Row {
			rejected.Rows = append(rejected.Rows, row)
		}
	}
	return rejected
}
