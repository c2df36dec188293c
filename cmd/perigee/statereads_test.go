package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/engine/eventservice"
)

// readsConfig is two pipelines: one reads the counts of the other.
const readsConfig = `
data: %[1]s
http: off
pipelines:
  counts:
    source: {generate: {events: 4000, rate: 2000}}
    script:
      lua: |
        local n = require("nodedb").node "^n"
        function main(e) return {id = e.id, n = n:incr()} end
    state: {name: counts, scope: pipeline}
    batch: {events: 50}
    sink: {eventstore: {table: counted}}
  reader:
    source: {generate: {events: 4000, rate: 2000}}
    script:
      lua: |
        local n = require("state").open("counts").node "^n"
        function main(e) return {id = e.id, n = n:get(0)} end
    reads: [counts]
    batch: {events: 50}
    sink: {eventstore: {table: seen}}
`

// TestReadsKilled kills an engine with a pipeline that reads the state of another. Each event of both
// has one row in the end, and the reader has seen only numbers that were counted.
func TestReadsKilled(t *testing.T) {
	skipWithoutState(t)
	if eventservice.Available() != nil {
		t.Skip("the event store needs cgo")
	}
	t.Parallel()
	folder := shortDir(t)
	file, data := filepath.Join(folder, "reads.yaml"), filepath.Join(folder, "data")
	writeFile(t, file, fmt.Sprintf(readsConfig, data))
	for range 4 {
		p := runEngine(t, file)
		p.says("engine started")
		time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond)
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	}
	p := runEngine(t, file)
	p.ends(0)
	query := func(sql string) string {
		out, err := exec.Command("perigee", "query", "--data", data, "--format", "csv", sql).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		_, row, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return row
	}
	for sql, want := range map[string]string{
		"SELECT count(*) AS rows, count(DISTINCT n) AS numbers, max(n) AS last FROM counted":                                          "4000,4000,4000",
		"SELECT count(*) AS rows, count(DISTINCT id) AS ids, max(n) > 0 AS some, min(n) >= 0 AND max(n) <= 4000 AS counted FROM seen": "4000,4000,true,true",
		"SELECT count(*) AS uneven FROM seen WHERE n <> floor(n)":                                                                     "0",
	} {
		if got := query(sql); got != want {
			t.Errorf("%s: got %s, want %s", sql, got, want)
		}
	}
}
