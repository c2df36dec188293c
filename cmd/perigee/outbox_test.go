package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
)

// twoTables gives every event a new time on each run of the script.
const twoTables = `
data: %[1]s
http: off
pipelines:
  double:
    source: {generate: {events: 6000, seed: 1}}
    script: {lua: double.lua}
    sinks:
      one: {mysql: {address: %[2]q, user: root, database: %[3]s, table: one, create: true, columns: [{name: id, type: int64}, {name: run, type: float64}]}}
      two: {mysql: {address: %[2]q, user: root, database: %[3]s, table: two, create: true, columns: [{name: id, type: int64}, {name: run, type: float64}]}}
    batch: {events: 100}
`

const doubleLua = `
local time = require "time"
function main(event) return {id = event.id, run = time.now()} end
`

// TestTwoSinksAgree kills an engine with two sinks at every point: each event
// lands once in both, with what one and the same run of the script said.
func TestTwoSinksAgree(t *testing.T) {
	maria := maria.Server(t)
	name, folder := maria.Database(t), shortDir(t)
	file := filepath.Join(folder, "double.yaml")
	for path, text := range map[string]string{
		file:                                fmt.Sprintf(twoTables, filepath.Join(folder, "data"), maria.Address(), name),
		filepath.Join(folder, "double.lua"): doubleLua,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, at := range pipeline.Points() {
		if at == pipeline.BeforeReplay {
			continue // the kill between two sinks leaves something to replay, which need not be
		}
		p := runEngine(t, file, fmt.Sprintf("%s=%s:%d", killVariable, at, 2+i%3))
		p.ends(-1)
	}
	runEngine(t, file).ends(0)

	db, err := sql.Open("mysql", maria.DSN(name))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows, ids, agreed int
	err = db.QueryRow(`SELECT (SELECT COUNT(*) FROM one) + (SELECT COUNT(*) FROM two),
		(SELECT COUNT(DISTINCT id) FROM one), (SELECT COUNT(*) FROM one JOIN two USING (id, run))`).Scan(&rows, &ids, &agreed)
	if err != nil {
		t.Fatal(err)
	}
	// A hundredth of the generated events, at most, is bad on purpose.
	if rows != 2*ids || agreed != ids || ids > 6000 || ids < 5940 {
		t.Errorf("%d rows in two tables, of %d events; the tables agree about %d", rows, ids, agreed)
	}
}

func TestKillAtRefuses(t *testing.T) {
	for _, text := range []string{"after-commit", "after-commit:0", "after-commit:x", "nowhere:1", "after-ack:1,", ":3"} {
		if _, err := killAt(text); err == nil || event.HintOf(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if onPoint, err := killAt(""); onPoint != nil || err != nil {
		t.Errorf("nothing is %v", err)
	}
}
