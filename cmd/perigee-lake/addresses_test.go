package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// TestErrorsHaveNoPassword: the log and the report have the errors of addresses that an engine would
// refuse, and not what may be a password in them.
func TestErrorsHaveNoPassword(t *testing.T) {
	folder := t.TempDir()
	for name, settings := range map[string]lake.Settings{
		"REST, escape":      {Catalog: "https://u:100%secret@127.0.0.1:1/"},
		"REST, port":        {Catalog: "https://u:secret/x@127.0.0.1:1/"},
		"REST":              {Catalog: "http://u:secret@127.0.0.1:1/"},
		"database, escape":  {Catalog: "postgres://u:100%secret@127.0.0.1:1/lake"},
		"database":          {Catalog: "postgres://u:secret@127.0.0.1:1/lake?sslmode=x"},
		"words":             {Catalog: "postgres:host=127.0.0.1 port=1 password=secret"},
		"no address":        {Catalog: "host=127.0.0.1 password=secret"},
		"warehouse, escape": {Warehouse: "s3://KEY:100%secret@bucket/lake", Catalog: "sqlite://" + filepath.Join(folder, "catalog.db")},
		"warehouse, port":   {Warehouse: "s3://KEY:secret/x@bucket/lake", Catalog: "sqlite://" + filepath.Join(folder, "catalog.db")},
	} {
		if settings.Warehouse == "" {
			settings.Warehouse = folder
		}
		if c, err := openCatalog(t.Context(), &settings, true); err == nil {
			closeCatalog(c)
			t.Errorf("%s: opened", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if _, err := openObjects("s3://KEY:secret/x@bucket/lake"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error of a location is %v", err)
	}
	if _, err := openObjects("gs://KEY:secret@bucket/lake"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error of another location is %v", err)
	}
}

// TestOddAddresses has addresses that some programs decode and others take as they are. The committer must
// put nothing there, whatever the store lets through.
func TestOddAddresses(t *testing.T) {
	for _, odd := range []string{"a b", "ü", "a%41b", "a%2Fb", "a#b", "a?b"} {
		root := t.TempDir()
		for _, settings := range []lake.Settings{
			{Warehouse: filepath.Join(root, odd)},
			{Warehouse: filepath.Join(root, odd), Catalog: "sqlite://" + filepath.Join(root, "catalog.db")},
			{Warehouse: root, Catalog: "sqlite://" + filepath.Join(root, odd)},
			{Warehouse: "s3://bucket/" + odd, Catalog: "sqlite://" + filepath.Join(root, "catalog.db")},
		} {
			settings.Table = "sales.mails"
			r := publish(t.Context(), orderOf(settings, 1, writeFile(t, t.TempDir(), 1, 0, 9)))
			if entries, err := os.ReadDir(root); !strings.Contains(r.Error, "other characters than") || r.Hint == "" || err != nil || len(entries) > 0 {
				t.Errorf("warehouse %s, catalog %s: the error is %q, and the folder has %v, %v", settings.Warehouse, settings.Catalog, r.Error, entries, err)
			}
		}
	}
	for location, want := range map[string]string{"s3://bucket/a%20b": "other characters than", "s3://bucket/a b": "other characters than", "file:///srv/a?b": "other characters than"} {
		if _, err := openObjects(location); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("location %s: the error is %v, want …%s…", location, err, want)
		}
	}
}

// TestSQLitePath: what is no absolute path would be a temporary database, or a file in the working folder.
func TestSQLitePath(t *testing.T) {
	for rest, want := range map[string]string{
		"///srv/lake.db": "/srv/lake.db", "////srv/lake.db": "/srv/lake.db", "/srv/lake.db": "/srv/lake.db", "///srv//lake.db": "/srv//lake.db",
		"": "", "//": "", "///": "", "////": "", "///srv/": "", "//lake.db": "", "//srv/lake.db": "", "lake.db": "", ":memory:": "",
	} {
		if got, err := sqlitePath(rest); got != want || (err == nil) != (want != "") {
			t.Errorf("sqlite:%s: got %q, %v, want %q", rest, got, err, want)
		}
	}
	address := "sqlite:///" + filepath.Join(t.TempDir(), "catalog.db")
	c, err := openCatalog(t.Context(), &lake.Settings{Warehouse: t.TempDir(), Catalog: address}, true)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	closeCatalog(c)
}
