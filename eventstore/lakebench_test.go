//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

// TestBenchLake measures what a lake costs and brings. make bench-lake runs it.
func TestBenchLake(t *testing.T) {
	if os.Getenv("PERIGEE_BENCH_LAKE") == "" {
		t.Skip("needs PERIGEE_BENCH_LAKE: make bench-lake")
	}
	useCommitter(t)
	folder := t.TempDir()
	rates := map[string][]float64{}
	for round := range 3 {
		for _, kind := range []string{"local", "lake"} {
			place := filepath.Join(folder, fmt.Sprint(kind, round))
			rates[kind] = append(rates[kind], ingestRate(t, place, kind == "lake"))
			if kind == "local" || round > 0 {
				_ = os.RemoveAll(place)
			}
		}
	}
	local, inLake := medianOf(rates["local"]), medianOf(rates["lake"])
	fmt.Printf("rows/s: %.0f local, %.0f in a lake\nfigure ingest_lake_vs_local %.2f\n", local, inLake, inLake/local)
	benchCached(t, folder)
	benchScans(t, filepath.Join(folder, "lake0", "warehouse", "test.db", "events"), filepath.Join(folder, "small"))
}

func medianOf(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// benchRows is the number of rows of a commit, and benchTime how long they are ingested.
const (
	benchRows = 1000
	benchTime = 30 * time.Second
)

// ingestRate ingests rows at full speed while the store seals and merges and, in a lake,
// publishes four times as often as an engine does. It returns the rows per second.
func ingestRate(t *testing.T, folder string, inLake bool) float64 {
	t.Helper()
	s, err := Open(filepath.Join(folder, "store"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	config := TableConfig{Time: "time", Event: "event"}
	if inLake {
		config.Lake = &catalog.Lake{Warehouse: filepath.Join(folder, "warehouse"), Catalog: "sqlite://" + filepath.Join(folder, "catalog.db"), Table: "test.events"}
	}
	p := take(t, openTable(t, s, config))
	ctx, end := context.WithCancel(t.Context())
	published := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(15 * time.Second):
				err = s.publish(context.WithoutCancel(ctx), time.Now().Add(time.Hour))
			}
		}
		published <- err
	}()
	begun, rows := time.Now(), uint64(0)
	for time.Since(begun) < benchTime {
		if err := p.Append(ctx, tenColumns(rows, benchRows)); err != nil {
			t.Fatal(err)
		}
		rows += benchRows
	}
	rate := float64(rows) / time.Since(begun).Seconds()
	end()
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	if inLake {
		seal(t, s)
		if err := s.publish(t.Context(), time.Now().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	return rate
}

// benchScans measures how long engines scan a table of a lake, and a copy with the row groups of
// files that are not published.
func benchScans(t *testing.T, location, folder string) {
	t.Helper()
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	least := 1e9
	for engine := range strings.FieldsSeq(os.Getenv("PERIGEE_LAKE_ENGINES")) {
		out, err := exec.Command(os.Getenv("PERIGEE_LAKE_PYTHON"), "../tools/lake/scan.py", location, folder, engine).CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		var published, small float64
		if _, failed := fmt.Sscan(lines[len(lines)-1], &published, &small); err != nil || failed != nil {
			t.Fatalf("%s: %v: %s", engine, err, out)
		}
		fmt.Printf("%s: %.0f ms for a scan, %.0f ms in small row groups\nfigure %[1]s_vs_small_groups %.2[4]f\n", engine, 1000*published, 1000*small, small/published)
		least = min(least, small/published)
	}
	fmt.Printf("figure engine_vs_small_groups %.2f\n", least)
}

// cachedQueries are ten queries over the rows of tenColumns: of the whole table, of a time, of
// rare and of frequent values.
var cachedQueries = []string{
	"SELECT count(*) FROM events",
	"SELECT event, count(*), sum(score) FROM events GROUP BY event ORDER BY event",
	"SELECT campaign, avg(score) FROM events WHERE event = 'click' GROUP BY campaign ORDER BY campaign",
	"SELECT count(DISTINCT email) FROM events WHERE event = 'bounce'",
	"SELECT * FROM events WHERE id = 1234567",
	"SELECT count(*) FROM events WHERE email = 'user77@example.com'",
	"SELECT count(*), min(id) FROM events WHERE time BETWEEN TIMESTAMP '2026-01-02 05:00:00' AND TIMESTAMP '2026-01-02 05:10:00'",
	"SELECT * FROM events ORDER BY time DESC LIMIT 20",
	"SELECT ip, count(*) AS n FROM events WHERE campaign = 7 GROUP BY ip ORDER BY n DESC, ip LIMIT 10",
	"SELECT count(*) FROM events WHERE url LIKE '%/77?%'",
}

// benchCached compares the times of queries over rows that have left the disk, once they are in
// the cache, with those over the same rows of a table without a lake.
func benchCached(t *testing.T, folder string) {
	t.Helper()
	const rows = 2_000_000
	stores := map[string]*Store{}
	for _, kind := range []string{"local", "lake"} {
		s, err := Open(filepath.Join(folder, "cached "+kind), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		config := TableConfig{Event: "event"}
		if kind == "lake" {
			config.Lake = &catalog.Lake{Warehouse: filepath.Join(folder, "cached warehouse"), Local: catalog.Duration(time.Hour)}
		}
		config.Time, config.TimeUnit = "time", event.Seconds
		p := take(t, openTable(t, s, config))
		for first := uint64(0); first < rows; first += 10_000 {
			if err := p.Append(t.Context(), tenColumns(first, 10_000)); err != nil {
				t.Fatal(err)
			}
		}
		seal(t, s)
		settle(t, s)
		stores[kind] = s
	}
	s := stores["lake"]
	for range 2 { // the last order covers what the first one put
		if err := s.publish(t.Context(), time.Now().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.leave(t.Context(), time.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if remote, here := remoteFiles(s); len(remote) == 0 || here > 0 {
		t.Fatalf("%d files have left the disk, and %d have not", len(remote), here)
	}
	product := 1.0
	for _, sql := range cachedQueries {
		times, answers := map[string][]float64{}, map[string]string{}
		for turn := range 6 {
			for kind, s := range stores {
				begun := time.Now()
				answers[kind] = ask(t, s, sql)
				if turn > 0 { // the first one fetches
					times[kind] = append(times[kind], time.Since(begun).Seconds())
				}
			}
		}
		if answers["local"] != answers["lake"] {
			t.Errorf("%s: %s in the lake, want %s", sql, answers["lake"], answers["local"])
		}
		local, cached := medianOf(times["local"]), medianOf(times["lake"])
		fmt.Printf("%6.1f ms local, %6.1f ms cached, %.2f: %s\n", 1000*local, 1000*cached, local/cached, sql)
		product *= local / cached
	}
	fmt.Printf("figure lake_cached_vs_local %.2f\n", math.Pow(product, 1/float64(len(cachedQueries))))
}
