//go:build linux && cgo

package queryhttp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/eventstoretest"
)

// TestMain is also the worker that answers queries.
func TestMain(m *testing.M) {
	eventstore.RunWorker()
	os.Exit(m.Run())
}

// endless runs for hours and returns rows only at its end.
const endless = `SELECT count(*) FROM range(100000000000) a(i) WHERE hash(i) = 1`

// awaitQueries waits until n queries run.
func awaitQueries(t *testing.T, s *eventstore.Store, n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(s.Queries()) != n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got queries %+v, want %d", s.Queries(), n)
		}
	}
}

func TestHandler(t *testing.T) {
	s := eventstoretest.Open(t, eventstore.TableConfig{}, `{"id":1,"name":"x"}`, `{"id":2}`)
	server := httptest.NewServer(Handler(s, eventstore.Limits{}))
	defer server.Close()
	for _, test := range []struct {
		name, method, query, accept, sql string
		status                           int
		contentType, body                string
	}{
		{"default", "POST", "", "", `FROM events ORDER BY id`, 200, "application/json", "[\n{\"id\":1,\"name\":\"x\"},\n{\"id\":2,\"name\":null}\n]\n"},
		{"csv", "POST", "?format=csv", "", `FROM events ORDER BY id`, 200, "text/csv; charset=utf-8", "id,name\n1,x\n2,\n"},
		{"accept", "POST", "", "application/x-ndjson", `FROM events ORDER BY id`, 200, "application/x-ndjson", "{\"id\":1,\"name\":\"x\"}\n{\"id\":2,\"name\":null}\n"},
		{"limit", "POST", "?format=ndjson&rows=1", "", `FROM events ORDER BY id`, 200, "application/x-ndjson", "{\"id\":1,\"name\":\"x\"}\n"},
		{"error", "POST", "", "", "SELECT\nnope FROM events", 400, "application/json", `{"error":"Referenced column \"nope\" not found in FROM clause!","hint":"Candidate bindings: \"name\"","line":2,"column":1}` + "\n"},
		{"format", "POST", "?format=xml", "", `SELECT 1`, 400, "application/json", `{"error":"unknown format \"xml\": one of [table json ndjson csv arrow parquet]"}` + "\n"},
		{"bad limit", "POST", "?rows=x", "", `SELECT 1`, 400, "application/json", `{"error":"invalid rows \"x\": use a whole number above 0"}` + "\n"},
		{"get", "GET", "", "", ``, 405, "application/json", `{"error":"send the SQL as the body of a POST"}` + "\n"},
		{"fails before its first row", "POST", "", "", `SELECT error('no')`, 400, "application/json", `{"error":"no"}` + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req, err := http.NewRequest(test.method, server.URL+"/query"+test.query, strings.NewReader(test.sql))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", test.accept)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != test.status || res.Header.Get("Content-Type") != test.contentType || string(body) != test.body {
				t.Errorf("got %d %s\n%s", res.StatusCode, res.Header.Get("Content-Type"), body)
			}
		})
	}
	t.Run("fails midway", func(t *testing.T) {
		res, err := http.Post(server.URL+"?format=csv", "", strings.NewReader(`SELECT CASE WHEN i = 500000 THEN error('no') ELSE i::VARCHAR END FROM range(1000000) t(i)`))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Error("half an answer looks like a whole one")
		}
	})
}

// TestGrafanaDashboard runs the queries of the dashboard's panels.
func TestGrafanaDashboard(t *testing.T) {
	text, err := os.ReadFile("../../docs/howto/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct {
				Columns []struct{ Selector string }
				Options struct{ Data string } `json:"url_options"`
			}
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || len(dashboard.Panels) < 4 {
		t.Fatalf("got %d panels and error %v, want at least 4 panels", len(dashboard.Panels), err)
	}
	s := eventstoretest.Open(t, eventstore.TableConfig{Time: "time"}, `{"time":"2026-01-02T00:00:10Z","event":"error","id":1}`)
	server := httptest.NewServer(Handler(s, eventstore.Limits{}))
	defer server.Close()
	times := strings.NewReplacer("${__from:date:iso}", "2026-01-02T00:00:00.000Z", "${__to:date:iso}", "2026-01-02T01:00:00.000Z")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			status, body, _ := post(t, server.URL, "application/json", times.Replace(target.Options.Data))
			var rows []map[string]any
			if err := json.Unmarshal([]byte(body), &rows); status != 200 || err != nil || len(rows) == 0 {
				t.Errorf("%s: %d %s", p.Title, status, body)
				continue
			}
			for _, c := range target.Columns {
				if _, ok := rows[0][c.Selector]; !ok {
					t.Errorf("%s: no column %s", p.Title, c.Selector)
				}
			}
		}
	}
}
