//go:build linux && cgo

package eventstore

import (
	"os"
	"regexp"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/sqltext"
)

func TestMacros(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{Time: "time"})), 0,
		`{"time":"2026-01-02T00:00:10Z","user":1,"page":"a","bytes":5,"ms":10}`,
		`{"time":"2026-01-02T00:00:50Z","user":1,"page":"b","bytes":9,"ms":20}`,
		`{"time":"2026-01-02T00:03:00Z","user":2,"page":"c","bytes":1,"ms":30}`,
		`{"time":"2026-01-02T00:40:00Z","user":1,"page":"d","bytes":2,"ms":40}`)
	for sql, want := range map[string]string{
		`SELECT bucket, coalesce(n, 0) FROM time_buckets(INTERVAL 1 MINUTE, TIMESTAMP '2026-01-02 00:00:30', TIMESTAMP '2026-01-02 00:04:00')
			LEFT JOIN (SELECT time_bucket(INTERVAL 1 MINUTE, time) AS bucket, count(*) AS n FROM events GROUP BY 1) USING (bucket) ORDER BY 1`: "2026-01-02 00:00:00,2\n2026-01-02 00:01:00,0\n2026-01-02 00:02:00,0\n2026-01-02 00:03:00,1",
		`SELECT rate(count(*), INTERVAL 2 SECOND) FROM events`:                                                                                                                   "2",
		`SELECT user, latest(page, time), earliest(page, time) FROM events GROUP BY 1 ORDER BY 1`:                                                                                "1,d,a\n2,c,c",
		`SELECT p50(ms), p90(ms), p95(ms), round(p99(ms), 1) FROM events`:                                                                                                        "25,37,38.5,39.7",
		`SELECT user, page, sum(start) OVER (PARTITION BY user ORDER BY time) FROM (SELECT *, session_start(time, user, INTERVAL 30 MINUTE) AS start FROM events) ORDER BY page`: "1,a,1\n1,b,1\n2,c,1\n1,d,2",
		`SELECT page, increase(bytes, user, time) FROM events ORDER BY page`:                                                                                                     "a,\nb,4\nc,\nd,2",
		`SELECT count(*) FROM duckdb_functions() WHERE function_name = 'p99'`:                                                                                                    "1",
	} {
		if got := ask(t, s, sql); got != want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", sql, got, want)
		}
	}
}

// TestExamplesInSQLPage runs the examples of the reference page.
func TestExamplesInSQLPage(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{Time: "time"})), 0, `{"time":"2026-01-02T00:00:10Z","event":"click","user":1,"page":"a","host":"h","bytes":5,"ms":10}`)
	domain, score := field("email", event.String), field("ms", event.Float64)
	domain.Name, score.Name = "domain", "score"
	if err := s.SetFunctions([]Function{domain, score}); err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(page, -1) {
		for _, part := range sqltext.Split(string(block[1])) {
			ask(t, s, part.SQL)
			examples++
		}
	}
	if examples < 6 {
		t.Errorf("got %d examples in the page, want at least 6", examples)
	}
}
