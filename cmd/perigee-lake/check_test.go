package main

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// TestCheck checks each kind of lake before and after its table is made. The first check must make nothing.
func TestCheck(t *testing.T) {
	for name, settings := range catalogs(t) {
		t.Run(name, func(t *testing.T) {
			asked := &lake.TableOrder{Settings: settings, Check: true}
			if r := publish(t.Context(), asked); r.Error != "" || r.UUID != "" {
				t.Fatalf("got %+v before the table is made", r)
			}
			if entries, err := os.ReadDir(settings.Warehouse); err == nil || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the warehouse has %v, %v", entries, err)
			}
			if path, found := strings.CutPrefix(settings.Catalog, "sqlite://"); found {
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the check has made the catalog: %v", err)
				}
			}
			if strings.HasPrefix(settings.Catalog, "postgres") {
				if n := countTables(t, settings.Catalog); n != 0 {
					t.Errorf("the check has made %d tables of the catalog", n)
				}
			}
			if r := publish(t.Context(), orderOf(settings, 1, writeFile(t, t.TempDir(), 1, 0, 9))); r.Error != "" {
				t.Fatal(r.Error)
			}
			if r := publish(t.Context(), asked); r.Error != "" {
				t.Errorf("got %+v after the table was made", r)
			}
		})
	}
}

func countTables(t *testing.T, address string) (n int) {
	t.Helper()
	if err := openDatabase(t, address).QueryRowContext(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func execute(t *testing.T, address string, statements ...string) {
	t.Helper()
	db := openDatabase(t, address)
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func openDatabase(t *testing.T, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestCheckRefuses checks lakes that a publication could not use, which other checks do not reach.
func TestCheckRefuses(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inSQLite := "sqlite://" + folder + "/catalog.db"
	type test struct {
		settings   lake.Settings
		want, hint string
	}
	tests := map[string]test{
		"a file as warehouse and catalog": {settings: lake.Settings{Warehouse: file}, want: file + "/sales/mails/metadata: not a directory"},
		"a file as warehouse":             {settings: lake.Settings{Warehouse: file, Catalog: inSQLite}, want: "warehouse file://" + file + ": write " + file + ": not a directory"},
		"a file above the warehouse":      {settings: lake.Settings{Warehouse: file + "/lake", Catalog: inSQLite}, want: "not a directory"},
		"a file above the catalog":        {settings: lake.Settings{Warehouse: folder, Catalog: "sqlite://" + file + "/catalog.db"}, want: "catalog " + file + "/catalog.db", hint: "make the folder of that file"},
	}
	if postgres, found := catalogs(t)["postgres"]; found {
		_, at, _ := strings.Cut(postgres.Catalog, "@")
		as := func(user string) lake.Settings {
			return lake.Settings{Warehouse: folder, Catalog: "postgres://" + user + ":secret@" + at}
		}
		reader, watcher := fmt.Sprintf("reader%d", servers.tables.Add(1)), fmt.Sprintf("watcher%d", servers.tables.Add(1))
		execute(t, postgres.Catalog, "CREATE SCHEMA "+watcher, "CREATE TABLE "+watcher+".iceberg_tables (x int)",
			"CREATE ROLE "+reader+" LOGIN PASSWORD 'secret'", "CREATE ROLE "+watcher+" LOGIN PASSWORD 'secret'",
			"GRANT USAGE ON SCHEMA "+watcher+" TO "+watcher, "GRANT SELECT, INSERT ON "+watcher+".iceberg_tables TO "+watcher)
		tests["no right to make tables"] = test{settings: as(reader), want: "user " + reader + " may not create tables in schema public", hint: "grant that user CREATE"}
		tests["no right to change them"] = test{settings: as(watcher), want: "user " + watcher + " may not change the table iceberg_tables", hint: "grant that user INSERT"}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.settings.Table = "sales.mails"
			r := publish(t.Context(), &lake.TableOrder{Settings: test.settings, Check: true})
			if !strings.Contains(r.Error, test.want) || !strings.HasPrefix(r.Hint, test.hint) {
				t.Errorf("got the error %q and the hint %q, want …%s… and %s…", r.Error, r.Hint, test.want, test.hint)
			}
		})
	}
}
