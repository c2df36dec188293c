package mysql

import (
	"context"
	"database/sql"
	"fmt"
)

// checkServer prepares the statements that writing takes,
// for which the server looks at names and grants, and carries none of them out.
func (s *Sink) checkServer(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return s.explain("connecting", err)
	}
	defer conn.Close()
	return s.explain("trying table "+s.config.Table, s.check(ctx, conn))
}

func (s *Sink) check(ctx context.Context, conn *sql.Conn) error {
	there, err := present(ctx, conn, s.config.Database, s.config.Table)
	switch {
	case err != nil:
		return err
	case there:
		plan, err := s.plan(ctx, conn)
		if err != nil {
			return err
		}
		if err := prepares(ctx, conn, plan.head+"("+marks(len(s.columns))+")"+plan.tail); err != nil {
			return fmt.Errorf("preparing to insert: %w", err)
		}
	case s.config.Create:
		if err := prepares(ctx, conn, s.config.createTable()); err != nil {
			return fmt.Errorf("preparing to make it: %w", err)
		}
	default:
		return s.prepareTarget(ctx, conn) // says that there is none
	}
	return s.checkLedger(ctx, conn)
}

// checkLedger tries what the sink does to its own tables, or to make them.
func (s *Sink) checkLedger(ctx context.Context, conn *sql.Conn) error {
	for name, create := range ledgerTables {
		there, err := present(ctx, conn, s.config.Database, name)
		if err != nil {
			return err
		}
		tried := []string{create}
		if there {
			tried = []string{
				"INSERT INTO " + name + " (pipeline, target) VALUES ('', '')",
				"SELECT * FROM " + name, "UPDATE " + name + " SET pipeline = ''", "DELETE FROM " + name + " WHERE pipeline = ''",
			}
			if name == "perigee_ranges" {
				tried = []string{
					"INSERT INTO perigee_ranges (owner) VALUES (0)",
					"SELECT * FROM perigee_ranges", "UPDATE perigee_ranges SET owner = 0", "DELETE FROM perigee_ranges WHERE owner = 0",
				}
			}
		}
		for _, statement := range tried {
			if err := prepares(ctx, conn, statement); err != nil {
				return fmt.Errorf("preparing to use %s: %w", name, err)
			}
		}
	}
	return nil
}

func prepares(ctx context.Context, conn *sql.Conn, statement string) error {
	stmt, err := conn.PrepareContext(ctx, statement)
	if err != nil {
		return err
	}
	return stmt.Close()
}
