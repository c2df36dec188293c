//go:build cgo

package eventstore

import (
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
)

// pendingAppend are one output on its way into a table.
type pendingAppend struct {
	part   *Partition
	out    *event.Output
	buffer *buffer
}

// A commit is one transaction of outputs, of one table or several.
type commit struct {
	tables  []*Table
	parts   map[*Table]*tableCommit
	results []func() // what to do once it has been committed
}

// A tableCommit is what a commit brings to one table.
type tableCommit struct {
	table  *Table
	schema *schema
	rows   []*pendingAppend
	added  map[partKey]*event.Ranges // what is new, with fingerprints
	count  int64
}

// newCommit makes a commit of the tasks that may be committed, and answers the
// others: those of partitions that have been taken over, and those whose table
// has grown since their columns were extracted.
func newCommit(group []request) ([]request, *commit) {
	c := &commit{parts: map[*Table]*tableCommit{}}
	group = slices.DeleteFunc(group, func(t request) bool {
		table := t.rows.part.table
		if c.parts[table] == nil {
			c.tables = append(c.tables, table)
			c.parts[table] = &tableCommit{table: table, schema: table.current()}
		}
		err := c.parts[table].admit(t.rows)
		if err != nil {
			t.done <- err
		}
		return err != nil
	})
	c.tables = slices.DeleteFunc(c.tables, func(t *Table) bool { return len(c.parts[t].rows) == 0 })
	return group, c
}

func (s *tableCommit) admit(r *pendingAppend) error {
	part := s.table.partitions[r.part.key]
	switch {
	case part == nil || part.owner != r.part:
		return ErrFenced
	case r.buffer.schema != s.schema:
		return errStale
	}
	s.rows = append(s.rows, r)
	return nil
}

func (c *commit) run(tx *conn) (func(), error) {
	c.results = c.results[:0]
	for _, t := range c.tables {
		if err := c.write(tx, c.parts[t]); err != nil {
			return nil, fmt.Errorf("eventstore: append to table %s: %w", t.name, err)
		}
	}
	return func() {
		for _, f := range c.results {
			f()
		}
	}, nil
}

// write writes the rows and the ranges of one table.
func (c *commit) write(tx *conn, s *tableCommit) error {
	active, installed, err := s.table.installSchema(tx, s.schema)
	if err != nil {
		return err
	}
	if err := s.appendRows(tx, active); err != nil {
		return err
	}
	c.results = append(c.results, installed, func() { active.rows += s.count })
	for key, added := range s.added {
		part := s.table.partitions[key]
		loose, err := s.table.writeRanges(tx, key, *added, part)
		if err != nil {
			return err
		}
		c.results = append(c.results, func() {
			for _, r := range *added {
				part.committed.Add(event.Range{First: r.First, Count: r.Count})
			}
			part.unjoined = loose
		})
	}
	return nil
}

// appendRows writes the rows of positions that the table does not have yet.
func (s *tableCommit) appendRows(tx *conn, active *segment) error {
	s.added, s.count = map[partKey]*event.Ranges{}, 0
	a := &appender{tx: tx, segment: active}
	defer a.close()
	for _, r := range s.rows {
		key := r.part.key
		if s.added[key] == nil {
			s.added[key] = new(event.Ranges)
		}
		fresh := missing(r.out.Range, s.table.partitions[key].committed, *s.added[key])
		for first, end := range freshRows(r.out, fresh) {
			if err := a.append(r.buffer, first, end); err != nil {
				return err
			}
			s.count += int64(end - first)
		}
		for _, gap := range fresh {
			s.added[key].Add(gap)
		}
	}
	return a.flush()
}
