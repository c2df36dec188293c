package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/leaktest"
)

// TestCommandsCloseWhatTheyOpen runs the commands that use a data folder without an engine, and
// lets them share this process.
func TestCommandsCloseWhatTheyOpen(t *testing.T) {
	folder := shortDir(t)
	config := filepath.Join(folder, "perigee.yaml")
	for name, text := range map[string]string{
		config:                             fmt.Sprintf("data: %s/state\nhttp: off\npipelines:\n  lines:\n    source: {file: {path: %[1]s/in.ndjson}}\n    sink: {file: {folder: %[1]s/out}}\n", folder),
		filepath.Join(folder, "in.ndjson"): "{\"n\":1}\nbroken\n{\"n\":3}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"run", config},
		{"position", "show", config},
		{"position", "rewind", config, "lines", "1", "--yes"},
		{"dlq", "list", "--data", folder + "/state"},
		{"import", "events", filepath.Join(folder, "in.ndjson"), "--data", folder + "/state", "--rejected", filepath.Join(folder, "rejected.ndjson")},
		{"dlq", "purge", "--data", folder + "/state", "--all", "--yes"},
		{"position", "show", config},
	} {
		if args[0] == "import" && eventservice.Available() != nil {
			continue // the event store needs cgo
		}
		leaktest.Closed(t, folder, func() {
			var out, errs bytes.Buffer
			if code := perigee(args, console{in: &out, out: &out, err: &errs, lookup: os.LookupEnv}); code != 0 {
				t.Fatalf("%q ended with %d: %s%s", args, code, &errs, &out)
			}
		})
	}
}
