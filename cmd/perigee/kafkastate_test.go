//go:build cgo && luajit && lmdb

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/pipeline"
)

const writeToTopic = `
data: write-data
http: off
pipelines:
  write:
    source: {file: {path: events.ndjson}}
    script: {lua: count.lua}
    state: {name: written}
    sink: {kafka: {brokers: [%[1]q], topic: counts, create: true, key: user}}
    batch: {events: 50}
`

const readFromTopic = `
data: read-data
http: off
pipelines:
  read:
    source: {kafka: {brokers: [%[1]q], topic: counts}}
    script: {lua: again.lua}
    state: {name: read}
    sink: {file: {folder: rows}}
    batch: {events: 40}
`

// TestStatesThroughKafka kills a pipeline that writes to a topic, so that it writes records again, and
// another one that reads them: both states count each event once.
func TestStatesThroughKafka(t *testing.T) {
	if os.Getenv("PERIGEE_KAFKA_JARS") == "" {
		t.Skip("needs a broker: make test-kafka")
	}
	var shared testserver.SharedKafka
	t.Cleanup(shared.Close)
	address := shared.Server(t).Address()
	folder := shortDir(t)
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const events, users = 2000, 40
	var lines strings.Builder
	for i := range events {
		fmt.Fprintf(&lines, "{\"user\":\"u%d\"}\n", i%users)
	}
	write("events.ndjson", lines.String())
	count := `
		local users = require "nodedb".node "^users"
		function main(event) event.%s = users[event.user]:incr() return event end`
	write("count.lua", fmt.Sprintf(count, "written"))
	write("again.lua", fmt.Sprintf(count, "read"))
	file := write("write.yaml", fmt.Sprintf(writeToTopic, address))
	for range 3 {
		runEngine(t, file, fmt.Sprintf("%s=%s:7", killVariable, pipeline.BeforeAck)).ends(-1)
	}
	runEngine(t, file).ends(0)

	file = write("read.yaml", fmt.Sprintf(readFromTopic, address))
	for _, at := range []pipeline.Point{pipeline.AfterNote, pipeline.AfterScript} {
		runEngine(t, file, fmt.Sprintf("%s=%s:6", killVariable, at)).ends(-1)
	}
	p := runEngine(t, file)
	var rows map[string]bool
	eventually(t, "all events are read", func() bool {
		rows = readCounts(t, filepath.Join(folder, "rows"))
		return len(rows) >= events
	})
	p.signal(syscall.SIGTERM)
	p.ends(0)
	if rows = readCounts(t, filepath.Join(folder, "rows")); len(rows) != events {
		t.Errorf("%d rows, want %d", len(rows), events)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), "counts")
	if err != nil {
		t.Fatal(err)
	}
	records := int64(0)
	ends.Each(func(o kadm.ListedOffset) { records += o.Offset })
	if records <= events {
		t.Errorf("the topic has %d records, want some of the %d twice", records, events)
	}
}

// readCounts reads what again.lua makes, and reports what is not right.
func readCounts(t *testing.T, folder string) map[string]bool {
	t.Helper()
	rows := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(folder, "*.ndjson*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			continue // it was sealed meanwhile
		}
		for s := bufio.NewScanner(file); s.Scan(); {
			var row struct {
				User          string
				Written, Read int
			}
			if json.Unmarshal(s.Bytes(), &row) != nil {
				continue // the end of a file that is being written
			}
			if row.Written != row.Read {
				t.Errorf("%s was written as number %d, and read as number %d", row.User, row.Written, row.Read)
			}
			rows[fmt.Sprint(row.User, "/", row.Written)] = true
		}
		file.Close()
	}
	return rows
}
