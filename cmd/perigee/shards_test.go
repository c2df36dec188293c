//go:build cgo && luajit && lmdb

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/pipeline"
)

const splitConfig = `
data: split-data
http: off
pipelines:
  split:
    source: {file: {path: events.ndjson}}
    sink: {redis: {address: %[1]q, list: events, shards: 8, by: user.id}}
`

const countConfig = `
data: count-data
http: off
pipelines:
  count:
    source: {redis: {address: %[1]q, list: events, shards: %[2]d, until_empty: true}}
    script: {lua: count.lua}
    state: {name: users}
    sink: {file: {folder: rows}}
    batch: {events: 50}
`

const countOfShards = `
local nodedb = require "nodedb"
function main(event) return {user = event.user.id, n = nodedb.node("^users")[event.user.id]:incr()} end
`

// TestShardsAndState distributes events over shards by user and counts them behind, in a pipeline that
// is killed: each user is counted in one unit, and each event once. Another number of shards is
// refused.
func TestShardsAndState(t *testing.T) {
	redis := testserver.Redis(t)
	folder := shortDir(t)
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const events, users = 3000, 60
	var lines strings.Builder
	for i := range events {
		fmt.Fprintf(&lines, "{\"user\":{\"id\":%d}}\n", i*7%users)
	}
	write("events.ndjson", lines.String())
	write("count.lua", countOfShards)
	runEngine(t, write("split.yaml", fmt.Sprintf(splitConfig, redis.Address()))).ends(0)
	count := write("count.yaml", fmt.Sprintf(countConfig, redis.Address(), 8))
	for _, at := range []pipeline.Point{pipeline.AfterNote, pipeline.AfterScript, pipeline.BeforeAck} {
		runEngine(t, count, fmt.Sprintf("%s=%s:5", killVariable, at)).ends(-1)
	}
	runEngine(t, count).ends(0)
	files, err := filepath.Glob(filepath.Join(folder, "rows", "*.ndjson*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the files are %q, %v", files, err)
	}
	seen := map[string]bool{}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for s := bufio.NewScanner(file); s.Scan(); {
			var row struct{ User, N int }
			if err := json.Unmarshal(s.Bytes(), &row); err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprintf("%d of user %d", row.N, row.User)
			if seen[key] || row.N < 1 || row.N > events/users {
				t.Errorf("the number %s is wrong, or there twice", key)
			}
			seen[key] = true
		}
	}
	if len(seen) != events {
		t.Errorf("%d rows, want %d", len(seen), events)
	}
	p := runEngine(t, write("more.yaml", fmt.Sprintf(countConfig, redis.Address(), 9)))
	p.says("events has 9 partitions, and state users was made for 8")
	p.ends(1)
}
