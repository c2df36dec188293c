//go:build linux && cgo

package eventstore

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/eventstore/lakecatalog"
	"github.com/perigeedb/perigee/internal/httpserver"
	"github.com/perigeedb/perigee/internal/testseed"
)

// TestLakeCatalog reads a table by several engines through the engine's own catalog, before and
// after it changes.
func TestLakeCatalog(t *testing.T) {
	s, p, _ := openLake(t)
	r := testseed.New(t)
	access := httpserver.Access{Token: "a-token"}
	catalog := lakecatalog.Handler(func() (tables []lakecatalog.Table, err error) {
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
		catalog.ServeHTTP(w, r)
	}))
	defer server.Close()
	engines := []string{"pyiceberg", "duckdb", "chdb", "sail"}
	read := func(token string, want string) {
		t.Helper()
		out, err := exec.Command(os.Getenv("PERIGEE_LAKE_PYTHON"), append([]string{"../tools/lake/restcatalog.py", server.URL + "/iceberg", token, "test", "events"}, engines...)...).Output()
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
