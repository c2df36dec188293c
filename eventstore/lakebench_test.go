//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

// TestBenchLake measures what a lake costs and brings. make bench-lake runs it.
func TestBenchLake(t *testing.T) {
	program := os.Getenv("PERIGEE_LAKE")
	if program == "" || os.Getenv("PERIGEE_BENCH_LAKE") == "" {
		t.Skip("needs PERIGEE_BENCH_LAKE: make bench-lake")
	}
	t.Setenv("PATH", filepath.Dir(program)+":"+os.Getenv("PATH"))
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
		fmt.Printf("%s: %.0f ms for a scan, %.0f ms in small row groups\nfigure %[1]s_vs_small_groups %[4].2f\n", engine, 1000*published, 1000*small, small/published)
		least = min(least, small/published)
	}
	fmt.Printf("figure engine_vs_small_groups %.2f\n", least)
}
