package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// check looks for faults that would stop a writer, and changes nothing.
func (s *Sink) check(ctx context.Context) error {
	err := s.Connect(ctx, func(raw sqlsink.Conn) error {
		c := raw.(*conn)
		if err := s.checkServer(ctx, c); err != nil {
			return s.store.Explain("checking the server", err)
		}
		if err := s.checkTarget(ctx, c); err != nil {
			return s.store.Explain("checking table "+s.config.Table, err)
		}
		return s.store.Explain("checking the tables for positions", s.checkState(ctx, c))
	})
	return s.store.Explain("connecting", err)
}

// tables implements sink.Traits.Tables.
func (s *Sink) tables(ctx context.Context) ([]sink.Table, error) {
	return s.store.Tables(ctx, s.config.Create)
}

// checkServer rejects a server or a database that cannot be written to.
func (s *Sink) checkServer(ctx context.Context, c *conn) error {
	rows, err := c.Query(ctx, fmt.Sprintf(`SELECT pg_is_in_recovery(), current_setting('server_encoding'), to_regnamespace(%s) IS NULL`,
		quoteText(quote(s.config.Schema))))
	if err != nil {
		return err
	}
	switch standby, encoding, noSchema := string(rows[0][0]), string(rows[0][1]), string(rows[0][2]); {
	case standby == "t":
		return &event.PermanentError{Err: errors.New("it is a standby, which accepts no rows"), Hint: "give the address of the primary"}
	case encoding != "UTF8":
		return &event.PermanentError{
			Err:  fmt.Errorf("database %s is encoded in %s, which cannot hold every text", s.config.Database, encoding),
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

// checkTarget checks the table, or whether it could be created.
func (s *Sink) checkTarget(ctx context.Context, c *conn) error {
	exists, err := s.tableExists(ctx, c)
	switch {
	case err != nil:
		return err
	case !exists && !s.config.Create:
		return s.target.Missing()
	case !exists:
		return s.checkMayCreate(ctx, c)
	}
	if _, err := s.plan(ctx, c); err != nil {
		return err
	}
	needs := []string{"INSERT"}
	if s.config.isStaged() {
		needs = append(needs, "SELECT")
	}
	if s.config.Mode == sqlsink.Upsert {
		needs = append(needs, "UPDATE")
	}
	return s.checkPrivileges(ctx, c, s.config.Table, needs...)
}

// checkState checks the sink's own tables, or whether they could be created.
func (s *Sink) checkState(ctx context.Context, c *conn) error {
	names := s.store.StateTables()
	missing, err := s.Missing(ctx, c, names)
	if err == nil && len(missing) > 0 {
		err = s.checkMayCreate(ctx, c)
	}
	for _, name := range names {
		if err == nil && !slices.Contains(missing, name) {
			err = s.checkPrivileges(ctx, c, name, "SELECT", "INSERT", "UPDATE", "DELETE")
		}
	}
	return err
}

// checkPrivileges rejects a role that lacks one of the privileges on a table.
func (s *Sink) checkPrivileges(ctx context.Context, c *conn, name string, privileges ...string) error {
	for _, privilege := range privileges {
		yes, err := c.isTrue(ctx, fmt.Sprintf("SELECT has_table_privilege(%s, '%s')", quoteText(s.target.Dialect.Table(name)), privilege))
		if err != nil {
			return err
		}
		if !yes {
			return &event.PermanentError{
				Err:  fmt.Errorf("role %s may not %s in table %s", s.config.User, privilege, name),
				Hint: fmt.Sprintf("as an administrator run: GRANT %s ON %s TO %s", privilege, s.target.Dialect.Table(name), quote(s.config.User)),
			}
		}
	}
	return nil
}

func (s *Sink) checkMayCreate(ctx context.Context, c *conn) error {
	yes, err := c.isTrue(ctx, fmt.Sprintf("SELECT has_schema_privilege(%s, 'CREATE')", quoteText(s.config.Schema)))
	if err == nil && !yes {
		err = &event.PermanentError{
			Err:  fmt.Errorf("tables are missing, and role %s may not create tables in schema %s", s.config.User, s.config.Schema),
			Hint: fmt.Sprintf("as an administrator run: GRANT CREATE ON SCHEMA %s TO %s", quote(s.config.Schema), quote(s.config.User)),
		}
	}
	return err
}
