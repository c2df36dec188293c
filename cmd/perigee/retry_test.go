package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/pipeline"
)

// poisoned makes two rows of some events, fails on others, and makes one of two
// rows that does not fit the table.
const poisoned = `
function main(event)
  local n = event.id % 1000
  if n == 999 then error("poison") end
  if n == 499 then return {{id = event.id, part = 0}, {id = event.id, part = "one"}} end
  return {id = event.id, part = 0}
end`

const fixedScript = `
function main(event)
  if event.id % 1000 == 499 then return {{id = event.id, part = 0}, {id = event.id, part = 1}} end
  return {id = event.id, part = 0}
end`

const poisonConfig = `
data: ${DATA}
http: off
pipelines:
  numbers:
    source: {%s}
    script: %s
    batch: {events: 500}
    sink:
      mysql: {address: "${MYSQL}", user: root, database: "${MYSQL_DATABASE}", table: numbers, create: true,
              columns: [{name: id, type: int64}, {name: part, type: int64}]}
`

// TestPoison has an event in every thousand that fails, and another that loses a
// row. Exactly those become dead letters, although the engine is killed midway. After the
// script is fixed they are retried, with a kill at every point, and each row is written
// once.
func TestPoison(t *testing.T) {
	const events = 9000
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	m.setenv()
	var lines strings.Builder
	for id := range events {
		fmt.Fprintf(&lines, "{\"id\":%d}\n", id)
	}
	script := write(t, "poison.lua", poisoned)
	file := write(t, "poison.yaml", fmt.Sprintf(poisonConfig, "file: {path: "+write(t, "lines.ndjson", lines.String())+"}", script))
	killed := func(point pipeline.Point, n int) {
		t.Helper()
		runEngine(t, file, fmt.Sprintf("PERIGEE_KILL_AT=%s:%d", point, n)).ends(-1)
	}
	run := func() { t.Helper(); runEngine(t, file).ends(0) }

	killed(pipeline.AfterDeadLetters, 5)
	says(t, 0, "skipped: the batch is not committed", "dlq", "retry", "--all", "--data", m.data)
	run()
	letters := m.letters()
	want := map[string]bool{}
	for id := 499; id < events; id += 500 {
		want[fmt.Sprintf(`{"id":%d}`, id)] = true
	}
	for _, l := range letters {
		if stage := map[bool]string{true: "script", false: "column"}[strings.HasSuffix(l.Original, "999}")]; !want[l.Original] || l.Stage != stage {
			t.Errorf("%s is a dead letter of stage %s", l.Original, l.Stage)
		}
		delete(want, l.Original)
	}
	if len(want) > 0 {
		t.Fatalf("of %d letters, none is of %v", len(letters), want)
	}

	says(t, 0, " queued for retry", "dlq", "retry", letters[0].ID, letters[1].ID, "--data", m.data)
	runEngine(t, file).ends(1) // as bad as before: every event became a dead letter
	if again := m.letters(); len(again) != len(letters) {
		t.Errorf("%d letters of %d came back", len(again), len(letters))
	}
	if err := os.WriteFile(script, []byte(fixedScript), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, point := range pipeline.Points() {
		if point == pipeline.AfterOutbox || point == pipeline.BeforeReplay {
			continue // one sink has no outbox
		}
		says(t, 0, "2 dead letters queued for retry", "dlq", "retry", letters[0].ID, letters[1].ID, "--data", m.data)
		letters = letters[2:]
		killed(point, 1)
		run()
	}
	says(t, 0, " queued for retry", "dlq", "retry", "--all", "--data", m.data)
	run()
	says(t, 0, "0 dead letters\n", "dlq", "list", "--data", m.data)

	var rows, distinct, second int
	err := m.db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT id, part), SUM(part) FROM numbers").Scan(&rows, &distinct, &second)
	if all := events + events/1000; err != nil || rows != all || distinct != all || second != events/1000 {
		t.Errorf("%d rows, %d distinct, %d second ones of %d: %v", rows, distinct, second, all, err)
	}
}

// TestRetryBesideEngine fixes the script of a running engine, which keeps reading its queue,
// and retries the dead letters.
func TestRetryBesideEngine(t *testing.T) {
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	m.setenv()
	script := write(t, "poison.lua", poisoned)
	p := runEngine(t, write(t, "poison.yaml", fmt.Sprintf(poisonConfig, `redis: {address: "${REDIS}", list: pepi_queue}`, script)))
	m.do("RPUSH", queue, `{"id":498}`, `{"id":499}`, `{"id":999}`)
	m.drained()
	says(t, 0, "2 dead letters\n  numbers: 1 column, 1 script\n", "dlq", "list", "--data", m.data)
	if err := os.WriteFile(script, []byte(fixedScript), 0o600); err != nil {
		t.Fatal(err)
	}
	p.says("script", "replaced")
	if out := says(t, 0, "2 dead letters queued", "dlq", "retry", "--all", "--data", m.data); strings.Contains(out, "no engine") {
		t.Errorf("beside an engine it says\n%s", out)
	}
	eventually(t, "all rows are there, each once", func() bool {
		var rows string
		err := m.db.QueryRow("SELECT GROUP_CONCAT(id, '.', part ORDER BY id, part) FROM numbers").Scan(&rows)
		return err == nil && rows == "498.0,499.0,499.1,999.0"
	})
	p.signal(syscall.SIGTERM)
	p.ends(0)
	says(t, 0, "0 dead letters\n", "dlq", "list", "--data", m.data)
}
