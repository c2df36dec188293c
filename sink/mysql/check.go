package mysql

import (
	"context"
	"fmt"

	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// check prepares the statements that a writer runs, and runs none of them. The server checks
// names and grants when it prepares them.
func (s *Sink) check(ctx context.Context) error {
	err := s.Connect(ctx, func(c sqlsink.Conn) error { return s.checkOn(ctx, c.(conn)) })
	return s.store.Explain("checking table "+s.config.Table, err)
}

// tables implements sink.Traits.Tables.
func (s *Sink) tables(ctx context.Context) ([]sink.Table, error) {
	return s.store.Tables(ctx, s.config.Create)
}

func (s *Sink) checkOn(ctx context.Context, c conn) error {
	exists, err := s.tableExists(ctx, c)
	switch {
	case err != nil:
		return err
	case exists:
		plan, err := s.plan(ctx, c)
		if err != nil {
			return err
		}
		if err := tryPrepare(ctx, c, plan.insert(1)); err != nil {
			return fmt.Errorf("preparing to insert: %w", err)
		}
	case s.config.Create:
		if err := tryPrepare(ctx, c, createTarget(s.target)[0]); err != nil {
			return fmt.Errorf("preparing to create it: %w", err)
		}
	default:
		return s.target.Missing()
	}
	return s.checkState(ctx, c)
}

// checkState tries what the sink does to its own tables, or to create them.
func (s *Sink) checkState(ctx context.Context, c conn) error {
	for _, name := range s.store.StateTables() {
		missing, err := s.Missing(ctx, c, []string{name})
		if err != nil {
			return err
		}
		key := "pipeline"
		switch name {
		case sqlsink.RangesTable:
			key = "owner"
		case sqlsink.NotesTable:
			key = "unit"
		}
		statements := []string{
			"INSERT INTO " + name + " (" + key + ") VALUES (0)", "SELECT * FROM " + name,
			"UPDATE " + name + " SET " + key + " = 0", "DELETE FROM " + name + " WHERE " + key + " = 0",
		}
		if len(missing) > 0 {
			statements = []string{stateTables[name]}
		}
		for _, statement := range statements {
			if err := tryPrepare(ctx, c, statement); err != nil {
				return fmt.Errorf("preparing to use %s: %w", name, err)
			}
		}
	}
	return nil
}

func tryPrepare(ctx context.Context, c conn, statement string) error {
	prepared, err := c.PrepareContext(ctx, statement)
	if err != nil {
		return err
	}
	return prepared.Close()
}
