package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/testseed"
)

// TestImportIsKilled kills the import of a file again and again, until it ends by itself: each
// row is stored once.
func TestImportIsKilled(t *testing.T) {
	if eventservice.Available() != nil {
		t.Skip("the event store needs cgo")
	}
	const rows = 150_000
	folder := t.TempDir()
	source := filepath.Join(folder, "rows.ndjson")
	var text strings.Builder
	for id := range rows {
		fmt.Fprintf(&text, "{\"id\":%d,\"text\":\"row %d\"}\n", id, id)
	}
	if err := os.WriteFile(source, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, 0, "150,000 rows imported", "import", "events", source, "--data", filepath.Join(folder, "whole"))
	parquet := filepath.Join(folder, "rows.parquet")
	says(t, 0, "written", "export", "events", parquet, "--data", filepath.Join(folder, "whole"))
	r := testseed.New(t)
	for _, file := range []string{source, parquet} {
		data := filepath.Join(folder, "data"+filepath.Ext(file))
		kills := 0
		for longest := 400; ; longest *= 2 { // on a slow machine an import may not even begin in less
			cmd := exec.Command("perigee", "import", "events", file, "--data", data)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(time.Duration(r.IntN(longest))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			err := cmd.Wait()
			if timer.Stop() && err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if err == nil {
				break
			}
			if kills++; kills > 11 { // the last one had minutes
				t.Fatalf("%s: no import ends within %d ms", file, longest)
			}
		}
		t.Logf("%s: %d kills", filepath.Base(file), kills)
		says(t, 0, "\n150000,150000,149999\n", "query", "--data", data, "--format", "csv", "SELECT count(*) AS n, count(DISTINCT id) AS ids, max(id) AS last FROM events")
		says(t, 0, "0 rows imported, 150,000 imported before", "import", "events", file, "--data", data)
	}
}
