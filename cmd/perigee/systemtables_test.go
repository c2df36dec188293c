package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/engine/eventservice"
)

// TestSystemTables reads the system tables beside a running engine, and then in its folder.
func TestSystemTables(t *testing.T) {
	if eventservice.Available() != nil {
		t.Skip("the event store needs cgo")
	}
	data := shortDir(t)
	file := write(t, "system.yaml", `
data: ${DATA}
http: 127.0.0.1:0
tables: {segments: {time: time}}
pipelines:
  slow:
    source: {generate: {events: 1000000, rate: 1000}}
    script: |
      local stats = require("stats")
      function main(event)
        stats.count("seen", 1, {kind = "all"})
        stats.gauge("endless", 1/0)
        stats.histogram("size", 3)
        if event.id == 1 then error("the first is bad") end
        return event
      end
    sink: {eventstore: {table: segments}}
`)
	ask := func(sql string) (string, error) {
		out, err := exec.Command("perigee", "query", "--data", data, "--format", "csv", sql).CombinedOutput()
		_, rows, _ := strings.Cut(strings.TrimSuffix(string(out), "\n"), "\n")
		if err != nil {
			return string(out), err
		}
		return rows, nil
	}
	p := runEngine(t, file, "DATA="+data)
	eventually(t, "rows can be seen", func() bool {
		out, _ := ask("SELECT count(*) > 0 FROM segments")
		return out == "true"
	})
	eventually(t, "the script has measured", func() bool {
		out, _ := ask("SELECT count(*) FROM script_stats")
		return out == "3"
	})
	pid := fmt.Sprint(p.cmd.Process.Pid)
	for _, test := range []struct{ sql, want string }{
		{`SELECT pipeline, state, sinks->0->>'name', events > 0, dead, circuit_open FROM pipelines`, "slow,running,eventstore,true,1,false"},
		{`SELECT name, kind, labels->>'kind', value > 0, count > 0, buckets->>'2.5' = '0', isinf(value) FROM perigee.script_stats ORDER BY name`,
			"endless,gauge,,true,false,,true\nseen,counter,all,true,false,,false\nsize,histogram,,true,true,true,false"},
		{`SELECT level, attributes->>'data' FROM log WHERE message = 'engine started'`, "INFO," + data},
		{`SELECT stage, count(*) FROM dead_letters GROUP BY ALL`, "script,1"},
		{`SELECT table_name, sum(rows) > 0, bool_and(newest > oldest) FROM perigee.segments GROUP BY ALL`, "segments,true,true"},
		{`SELECT role, pid <> ` + pid + `, requests FROM workers WHERE role = 'query' AND requests > 0`, "query,true,1"},
		{`SELECT state FROM perigee.queries`, "running"},
	} {
		if got, err := ask(test.sql); err != nil || got != test.want {
			t.Errorf("%s: %v, %q, want %q", test.sql, err, got, test.want)
		}
	}
	p.signal(syscall.SIGINT)
	p.ends(0)
	for sql, want := range map[string]string{
		`FROM pipelines`:                                          "perigee: hint: start one with perigee run",
		`SELECT * FROM script_stats`:                              "perigee: error: perigee.script_stats needs a running engine",
		`SELECT * FROM perigee.log`:                               "perigee.log needs a running engine",
		`SELECT stage FROM dead_letters`:                          "script",
		`SELECT count(DISTINCT table_name) FROM perigee.segments`: "1",
		`SELECT role FROM workers`:                                "query",
	} {
		if got, _ := ask(sql); !strings.Contains(got, want) {
			t.Errorf("without an engine: %s: %q, want %q", sql, got, want)
		}
	}
}
