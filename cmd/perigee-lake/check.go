package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/apache/iceberg-go/catalog"
	sqlcatalog "github.com/apache/iceberg-go/catalog/sql"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// check tests whether the catalog and the warehouse of a table can be used. It changes nothing, and
// the table may be missing.
func check(ctx context.Context, o *lake.TableOrder) error {
	warehouse, err := warehouseOf(&o.Settings)
	if err != nil {
		return err
	}
	location, err := checkCatalog(ctx, &o.Settings)
	if err != nil {
		return err
	}
	if location == "" {
		location = warehouse
	}
	objects, err := openObjects(location)
	if err != nil {
		return err
	}
	if err := objects.check(ctx); err != nil {
		return fmt.Errorf("warehouse %s: %w", location, err)
	}
	return nil
}

// checkCatalog returns the location of the table, or "" if it is missing.
func checkCatalog(ctx context.Context, s *lake.Settings) (location string, err error) {
	if scheme, rest, _ := strings.Cut(s.Catalog, ":"); scheme == "sqlite" {
		path, err := sqlitePath(rest)
		if err != nil {
			return "", err
		}
		_, missing := os.Stat(path)
		parent, err := os.Stat(filepath.Dir(path))
		if errors.Is(missing, os.ErrNotExist) && err == nil && parent.IsDir() { // SQLite makes the file, but not its folder
			return "", (&folder{filepath.Dir(path)}).check(ctx)
		}
	}
	c, err := openCatalog(ctx, s, false)
	if err != nil {
		return "", err
	}
	defer closeCatalog(c)
	if inSQL, ok := c.(*sqlCatalog); ok {
		if exists, err := inSQL.check(ctx); !exists || err != nil {
			return "", err
		}
	}
	t, err := c.LoadTable(ctx, catalog.ToIdentifier(strings.Split(s.Table, ".")...))
	if errors.Is(err, catalog.ErrNoSuchTable) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return t.Location(), checkTable(s, t)
}

// check reports whether the database has the tables of a catalog. Without the rights to make or to
// change them it returns an error.
func (c *sqlCatalog) check(ctx context.Context) (exists bool, err error) {
	if c.dialect == sqlcatalog.SQLite {
		return exists, c.db.QueryRowContext(ctx, "SELECT count(*) > 0 FROM sqlite_master WHERE name = 'iceberg_tables'").Scan(&exists)
	}
	var user string
	var schema sql.NullString
	var allowed bool
	err = c.db.QueryRowContext(ctx, `SELECT to_regclass('iceberg_tables') IS NOT NULL, current_user, current_schema(), coalesce(
		has_table_privilege(to_regclass('iceberg_tables'), 'INSERT') AND has_table_privilege(to_regclass('iceberg_tables'), 'UPDATE'),
		has_schema_privilege(current_schema(), 'CREATE'), false)`).Scan(&exists, &user, &schema, &allowed)
	switch {
	case err != nil || allowed:
		return exists, err
	case exists:
		return exists, permanent("grant that user INSERT and UPDATE on it", "user %s may not change the table iceberg_tables", user)
	}
	return exists, permanent("grant that user CREATE on the schema", "user %s may not create tables in schema %s", user, schema.String)
}
