package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/table"
)

func (s *Sink) check(ctx context.Context) error {
	c, err := s.pool.take(ctx)
	if err != nil {
		return s.explain("connecting", err)
	}
	defer s.pool.give(ctx, c)
	if err := s.checkServer(ctx, c); err != nil {
		return s.explain("checking the server", err)
	}
	if err := s.checkTarget(ctx, c); err != nil {
		return s.explain("checking table "+s.config.Table, err)
	}
	return s.explain("checking the tables of the ledger", s.checkLedger(ctx, c))
}

// checkServer refuses a server or a database that can't be written to.
func (s *Sink) checkServer(ctx context.Context, c *conn) error {
	rows, err := c.do(ctx, fmt.Sprintf(`SELECT pg_is_in_recovery(), current_setting('server_encoding'), to_regnamespace(%s) IS NULL`,
		quoteText(quote(s.config.Schema))))
	if err != nil {
		return err
	}
	switch standby, encoding, noSchema := string(rows[0][0]), string(rows[0][1]), string(rows[0][2]); {
	case standby == "t":
		return &event.PermanentError{Err: errors.New("it is a standby, which takes no rows"), Hint: "give the address of the primary"}
	case encoding != "UTF8":
		return &event.PermanentError{
			Err:  fmt.Errorf("database %s is encoded in %s, which does not hold every text", s.config.Database, encoding),
			Hint: fmt.Sprintf("CREATE DATABASE … ENCODING UTF8 TEMPLATE template0, and name it instead of %s", quote(s.config.Database)),
		}
	case noSchema == "t":
		return &event.PermanentError{
			Err:  fmt.Errorf("database %s has no schema %s", s.config.Database, s.config.Schema),
			Hint: fmt.Sprintf("as an administrator run: CREATE SCHEMA %s AUTHORIZATION %s", quote(s.config.Schema), quote(s.config.User)),
		}
	}
	return nil
}

// checkTarget looks at the table, or whether it could be made.
func (s *Sink) checkTarget(ctx context.Context, c *conn) error {
	present, err := s.checkRelation(ctx, c)
	if err != nil {
		return err
	}
	if !present && !s.config.Create {
		return s.config.absent()
	}
	if !present {
		return s.mayCreate(ctx, c)
	}
	target, err := s.readTarget(ctx, c)
	if err != nil {
		return err
	}
	if _, err := s.config.plan(target); err != nil {
		return err
	}
	needs := []string{"INSERT"}
	if s.config.staged() {
		needs = append(needs, "SELECT")
	}
	if s.config.Mode == table.Upsert {
		needs = append(needs, "UPDATE")
	}
	return s.may(ctx, c, s.config.Table, needs...)
}

// checkLedger looks at its tables, or whether they could be made.
func (s *Sink) checkLedger(ctx context.Context, c *conn) error {
	absent, err := s.absentTables(ctx, c)
	if err != nil {
		return err
	}
	if len(absent) > 0 {
		if err := s.mayCreate(ctx, c); err != nil {
			return err
		}
	}
	for _, t := range ledgerTables {
		if slices.Contains(absent, t.name) {
			continue
		}
		if err := s.may(ctx, c, t.name, "SELECT", "INSERT", "UPDATE", "DELETE"); err != nil {
			return err
		}
	}
	return nil
}

// may refuses when the role lacks one of the privileges on a table.
func (s *Sink) may(ctx context.Context, c *conn, name string, privileges ...string) error {
	for _, privilege := range privileges {
		yes, err := c.yes(ctx, fmt.Sprintf("SELECT has_table_privilege(%s, '%s')", quoteText(s.config.in(name)), privilege))
		if err != nil {
			return err
		}
		if !yes {
			return &event.PermanentError{
				Err:  fmt.Errorf("role %s may not %s in table %s", s.config.User, privilege, name),
				Hint: fmt.Sprintf("as an administrator run: GRANT %s ON %s TO %s", privilege, s.config.in(name), quote(s.config.User)),
			}
		}
	}
	return nil
}

func (s *Sink) mayCreate(ctx context.Context, c *conn) error {
	yes, err := c.yes(ctx, fmt.Sprintf("SELECT has_schema_privilege(%s, 'CREATE')", quoteText(s.config.Schema)))
	if err == nil && !yes {
		err = &event.PermanentError{
			Err:  fmt.Errorf("tables have to be made, and role %s may make none in schema %s", s.config.User, s.config.Schema),
			Hint: fmt.Sprintf("as an administrator run: GRANT CREATE ON SCHEMA %s TO %s", quote(s.config.Schema), quote(s.config.User)),
		}
	}
	return err
}

// yes runs a query of one truth value.
func (c *conn) yes(ctx context.Context, query string) (bool, error) {
	rows, err := c.do(ctx, query)
	return err == nil && string(rows[0][0]) == "t", err
}
