//go:build linux && cgo

package eventstore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/lakecatalog"
	"github.com/perigeedb/perigee/internal/httpserver"
	"github.com/perigeedb/perigee/internal/testseed"
)

// serveLakeCatalog serves the catalog of a store's tables, for the token a-token, and returns its
// address.
func serveLakeCatalog(t *testing.T, s *Store) string {
	t.Helper()
	access := httpserver.Access{Token: "a-token"}
	handler := lakecatalog.Handler(func() (tables []lakecatalog.Table, err error) {
		for _, state := range s.LakeStates() {
			tables = append(tables, lakecatalog.Table{Name: state.LakeTable, Metadata: state.Metadata})
		}
		return tables, nil
	}, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.Authorized(w, r) {
			lakecatalog.WriteError(w, r, http.StatusUnauthorized, "NotAuthorizedException", "no token")
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/iceberg"
}

// TestLakeCatalog reads a table by several engines through the engine's own catalog, before and
// after it changes.
func TestLakeCatalog(t *testing.T) {
	s, p, _ := openLake(t)
	r := testseed.New(t)
	address := serveLakeCatalog(t, s)
	engines := []string{"pyiceberg", "duckdb", "chdb", "sail"}
	read := func(token string, want string) {
		t.Helper()
		out, err := exec.Command(os.Getenv("PERIGEE_LAKE_PYTHON"), append([]string{"../tools/lake/restcatalog.py", address, token, "test", "events"}, engines...)...).Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		for _, engine := range engines {
			if i := slices.Index(lines, engine+" "+want); (i >= 0) != (want != "") {
				t.Errorf("%s, want %q: %s (%v)", engine, want, out, err)
			}
		}
		if want == "" && strings.Count(string(out), "\n") < len(engines) {
			t.Errorf("with a wrong token: %s", out)
		}
	}
	count := 0
	for _, wide := range []bool{false, true} {
		docs := typeDocs(r, count, 50, wide)
		appendDocs(t, p, uint64(count), docs...)
		count += len(docs)
		seal(t, s)
		publishAll(t, s)
		read("a-token", fmt.Sprint(count, " ", count*(count-1)/2))
	}
	read("another", "")
}

// TestLakePage runs the programs of docs/scale.md that read a table through the engine's catalog.
func TestLakePage(t *testing.T) {
	s, _, location := openLake(t)
	table, err := s.Table("mails", TableConfig{Lake: &catalog.Lake{Warehouse: filepath.Dir(filepath.Dir(location)), Table: "sales.mails"}})
	if err != nil {
		t.Fatal(err)
	}
	p := take(t, table)
	appendDocs(t, p, 0, typeDocs(testseed.New(t), 0, 70, false)...)
	seal(t, s)
	publishAll(t, s)
	address := serveLakeCatalog(t, s)
	sections := map[string]string{"pyiceberg": "pyiceberg", "duckdb": "DuckDB", "chdb": "ClickHouse", "sail": "Sail", "spark": "Spark", "trino": "Trino"}
	for engine := range strings.FieldsSeq(os.Getenv("PERIGEE_LAKE_ENGINES")) {
		name, settings, _ := strings.Cut(engine, "=")
		python := os.Getenv("PERIGEE_LAKE_PYTHON")
		if name == "spark" {
			python = os.Getenv("PERIGEE_LAKE_SPARK_PYTHON")
		}
		out, err := exec.Command(python, "../tools/lake/page.py", address, "a-token", sections[name], settings).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != "70" {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				got += string(exit.Stderr)
			}
			t.Errorf("%s prints %q (%v), want 70", engine, got, err)
		}
	}
}

// TestCheckLakes checks a lake in which a table can be published, and one in which none can.
func TestCheckLakes(t *testing.T) {
	useCommitter(t)
	folder := t.TempDir()
	good := catalog.Lake{Warehouse: filepath.Join(folder, "lake"), Table: "sales.mails"}
	bad := good
	bad.Catalog = "sqlite://" + folder + "/missing/catalog.db"
	failed := CheckLakes(t.Context(), []catalog.Lake{good, bad})
	if len(failed) != 2 || failed[0] != nil || failed[1] == nil || !strings.Contains(failed[1].Error(), "missing/catalog.db") || event.HintOf(failed[1]) == "" {
		t.Errorf("got %v, want an error with a hint for the second lake only", failed)
	}
	if _, err := os.Stat(good.Warehouse); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the check has made the warehouse: %v", err)
	}
}

// TestLakeInOwnFolder declares lakes whose files would be in the folder of the store, which removes files
// there that it does not know.
func TestLakeInOwnFolder(t *testing.T) {
	parent := t.TempDir()
	folder, link := filepath.Join(parent, "events"), filepath.Join(parent, "link")
	s := openStore(t, folder)
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	for l, refused := range map[catalog.Lake]bool{
		{Warehouse: folder}:                                                               true,
		{Warehouse: folder + "/tables"}:                                                   true,
		{Warehouse: folder + "/tables/lake"}:                                              true,
		{Warehouse: link + "/tables/lake"}:                                                true,
		{Warehouse: parent, Table: "events.tables"}:                                       true,
		{Warehouse: filepath.Dir(parent), Table: filepath.Base(parent) + ".events"}:       true,
		{Warehouse: parent + "/lake", Catalog: "sqlite://" + folder + "/tables/lake.db"}:  true,
		{Warehouse: parent + "/lake", Catalog: "sqlite:///" + folder + "/tables/lake.db"}: true,
		{Warehouse: parent, Table: "event.tables"}:                                        false,
		{Warehouse: folder + "2"}:                                                         false,
		{Warehouse: "s3://events/tables", Catalog: "http://127.0.0.1:1"}:                  false,
	} {
		_, err := s.Table("events", TableConfig{Lake: &l})
		if got := err != nil && strings.Contains(err.Error(), "the folder of the event store") && event.HintOf(err) != ""; got != refused || (err != nil) != refused {
			t.Errorf("%+v: the error is %v, want one: %t", l, err, refused)
		}
		known, err := ReadCatalog(folder)
		if err == nil {
			err = known.Check("events", &TableConfig{Lake: &l})
		}
		if (err != nil) != refused {
			t.Errorf("%+v: the check of the configuration says %v, want an error: %t", l, err, refused)
		}
	}
}

// TestLakeUser has a lake table in which an undeclared table of the store is published.
func TestLakeUser(t *testing.T) {
	s := openStore(t, t.TempDir())
	l := catalog.Lake{Warehouse: t.TempDir(), Table: "sales.mails"}
	openTable(t, s, TableConfig{Lake: &l})
	known, err := ReadCatalog(s.folder)
	if err != nil {
		t.Fatal(err)
	}
	other := l
	other.Table = "sales.others"
	for _, test := range []struct {
		table string
		lake  *catalog.Lake
		want  string
	}{{"orders", &l, "events"}, {"EVENTS", &l, ""}, {"orders", &other, ""}, {"orders", nil, ""}} {
		if got := known.LakeUser(test.table, test.lake); got != test.want {
			t.Errorf("table %s in %+v: got %q, want %q", test.table, test.lake, got, test.want)
		}
	}
}

// TestLakeUserRenamed renames tables with the default name in a lake, which they keep.
func TestLakeUserRenamed(t *testing.T) {
	s := openStore(t, t.TempDir())
	l := &catalog.Lake{Warehouse: t.TempDir()}
	for _, name := range []string{"a", "b"} {
		if _, err := s.Table(name, TableConfig{Lake: l}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.RenameTable(t.Context(), "b", "c", true), s.RenameTable(t.Context(), "a", "b", true)); err != nil {
		t.Fatal(err)
	}
	_, err := s.Table("b", TableConfig{Lake: l})
	known, failed := ReadCatalog(s.folder)
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	if got := known.LakeUser("b", l); got != "" {
		t.Errorf("the lake table of b is said to be that of %s", got)
	}
}
