package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/sink"
)

// TestFirstHour runs the commands of README and the tutorials as written, also from another
// folder, and corrects wrong configurations by following their hints. README's verify runs in
// long tests, one of its rounds, and all in make test-first-hour; TestVerifyOwnPipeline verifies
// another pipeline.
func TestFirstHour(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the commands of pages, in hundreds of processes")
	}
	if !slices.ContainsFunc(linked().Sinks, func(k sink.Kind) bool { return k.Name == "eventstore" }) {
		t.Skip("the event store needs cgo")
	}
	steps, failed := 0, 0
	for _, part := range []struct {
		name string
		play func(*testing.T) *page
	}{
		{"first pipeline", playFirstPipeline}, {"event store", playEventStore}, {"node database", playNodeDatabase},
		{"projects", playProjects}, {"readme", playReadme}, {"wrong configurations", playWrongConfigurations},
	} {
		t.Run(part.name, func(t *testing.T) {
			p := new(page)
			defer func() { // also when the test ends early
				steps, failed = steps+p.steps, failed+p.failed
				if t.Failed() && p.failed == 0 {
					failed++
				}
			}()
			p = part.play(t)
		})
	}
	fmt.Printf("figure first_hour_steps %d\nfigure first_hour_steps_failed %d\n", steps, failed)
}

// wants checks that the commands of a page have printed certain texts.
func (p *page) wants(t *testing.T, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(p.out.String(), want) {
			p.fails(t, "%s does not print %q:\n%s", p.path, want, p.out.String())
		}
	}
}

// fromElsewhere runs a command in another folder, with the configuration's absolute path, and
// checks its output.
func (p *page) fromElsewhere(t *testing.T, command, want string) {
	t.Helper()
	command = strings.ReplaceAll(command, "pipeline.yaml", filepath.Join(p.folder, "pipeline.yaml"))
	elsewhere := t.TempDir()
	if out, code := p.run(t, elsewhere, command); code != 0 || !strings.Contains(out, want) {
		p.fails(t, "%s, from another folder: %s exits with %d and prints\n%s\nwant %q", p.path, command, code, out, want)
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		p.fails(t, "%s, from another folder: %s leaves %v there (%v)", p.path, command, left, err)
	}
}

func playFirstPipeline(t *testing.T) *page {
	p := openPage(t, "docs/tutorial/first-pipeline.md")
	p.play(t)
	p.wants(t, "next:", "1 case", `"domain":"example.com"`, "attempt to index field 'email'", "2 cases", "│ 11 │ NULL", "(3 rows)")
	if left, code := p.run(t, p.folder, "perigee dlq list"); code != 0 || strings.Contains(left, "emails") {
		p.fails(t, "a dead letter is left:\n%s", left)
	}
	p.fromElsewhere(t, "perigee check pipeline.yaml", "data folder: "+p.folder)
	p.fromElsewhere(t, "perigee run pipeline.yaml", "events=0") // all were sent
	p.fromElsewhere(t, "perigee query --config pipeline.yaml 'SELECT count(*) AS n FROM emails'", "│ 10 │")
	p.fromElsewhere(t, "perigee dlq list --config pipeline.yaml", p.folder)
	return p
}

func playEventStore(t *testing.T) *page {
	p := openPage(t, "docs/tutorial/event-store.md")
	p.play(t)
	p.wants(t, "rows=100000", "│ sent       │", "2026-01-01 00:01:00,", "1 rows imported, 0 imported before, 1 rejected", `"reason":"column id wants int64, got \"none\""`,
		"│    1 │", "delete 1: the rows are removed from queries and files", "│    0 │", "100,000 (0 only in the log)", "mails.parquet written", "│ 100000 │")
	p.fromElsewhere(t, "perigee run pipeline.yaml", "events=0")
	p.fromElsewhere(t, "perigee table show mails --config pipeline.yaml", "event_name")
	return p
}

func playNodeDatabase(t *testing.T) *page {
	if nodedb.Version() == "" {
		t.Skip("the node database needs cgo and the build tag lmdb")
	}
	p := openPage(t, "docs/tutorial/node-database.md")
	p.play(t)
	p.wants(t, "NL\n", `"click":"docs","nth":4}`, `^clicks("ada","docs")    │ number │ 2`, `"click":"docs","session":2}`,
		`"type":"number","value":2,"ttl_ms":17`, `"country":"FR"}`, "2 nodes loaded", `^domains("example.net")`, "ok: 12 nodes", "restored restored from saved\n4\n")
	return p
}

// readmeEvents are events; one of them has no email.
const readmeEvents = `{"id":1,"event_name":"open","email":"ada@example.com","time":"2026-11-22T10:00:00Z"}
{"id":2,"event_name":"spam","email":"eve@example.net","time":"2026-11-22T10:00:01Z"}
{"id":3,"event_name":"click","email":"grace@example.org","time":"2026-11-22T10:00:02Z"}
{"id":4,"event_name":"open","email":null,"time":"2026-11-22T10:00:03Z"}
`

// playReadme writes the files of README and runs its commands, with real servers at other
// ports. The script fails for an event without an email.
func playReadme(t *testing.T) *page {
	p := openPage(t, "README.md")
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	p.put(t, "pipeline.yaml", strings.NewReplacer("127.0.0.1:6379", m.redis.Address(), "127.0.0.1:3306", maria.Server(t).Address(),
		"database: mail", "database: "+m.name).Replace(p.block(t, "yaml")))
	p.put(t, "email.lua", p.block(t, "lua"))
	p.put(t, "events.ndjson", readmeEvents)
	for line := range strings.Lines(readmeEvents) {
		m.do("RPUSH", "pepi_queue", strings.TrimSuffix(line, "\n"))
	}
	p.link(t)
	commands := regexp.MustCompile(`(?m)^    (bin/perigee \w+.*?)(?:  +#.*)?$`).FindAllStringSubmatch(p.text, -1)
	if len(commands) < 6 {
		t.Fatalf("README has %d commands", len(commands))
	}
	for _, match := range commands {
		switch command := match[1]; strings.Fields(command)[1] {
		case "eval": // prints the events that pass, and fails for the one without an email
			if out, code := p.run(t, p.folder, command); code != 1 || !strings.Contains(out, `"domain":"example.org"`) {
				p.fails(t, "%s exits with %d:\n%s", command, code, out)
			}
		case "bench":
			p.step(t, command+" --time 1s")
		case "run":
			p.runUntilDrained(t, m, command)
		case "verify":
			all := os.Getenv("PERIGEE_VERIFY_ROUNDS") == "all"
			if !all && !testsize.Long() {
				continue
			}
			command += " --kills 4 --events events.ndjson"
			if !all {
				command += " --round 'workers: 2'"
			}
			p.step(t, command)
		default:
			p.step(t, command)
		}
	}
	p.wants(t, "events (run creates it)", "\nok\n", "attempt to index field 'email'")
	return p
}

// runUntilDrained runs an engine until the table has the events, and drains it by SIGTERM.
func (p *page) runUntilDrained(t *testing.T, m *mail, command string) {
	t.Helper()
	p.steps++
	engine := exec.Command("sh", "-c", "exec "+command)
	var log syncBuffer
	engine.Dir, engine.Stdout, engine.Stderr = p.folder, &log, &log
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	defer engine.Process.Kill()
	rows := 0
	for end := time.Now().Add(patience); rows < 2 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_ = m.db.QueryRow("SELECT COUNT(*) FROM events").Scan(&rows) // the table may not exist yet
	}
	engine.Process.Signal(syscall.SIGTERM)
	if err := engine.Wait(); err != nil || rows != 2 {
		p.fails(t, "%s: %d rows of 2, %v\n%s", command, rows, err, log.String())
	}
}

// block returns the first block of code of a language.
func (p *page) block(t *testing.T, language string) string {
	t.Helper()
	match := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(p.text)
	if match == nil {
		t.Fatalf("%s has no block of %s", p.path, language)
	}
	return match[1]
}

func (p *page) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// link puts the command in the folder that make build uses.
func (p *page) link(t *testing.T) {
	t.Helper()
	command, err := exec.LookPath("perigee")
	if err == nil {
		err = os.Mkdir(filepath.Join(p.folder, "bin"), 0o700)
	}
	if err == nil {
		err = os.Symlink(command, filepath.Join(p.folder, "bin", "perigee"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// playWrongConfigurations follows the hints of wrong configurations, and runs the result.
func playWrongConfigurations(t *testing.T) *page {
	all := &page{path: "a wrong configuration"}
	for _, c := range []struct {
		name, config, events string
		command, hint        string // the command that finds the mistake
		wrong, right         string // in the configuration
	}{
		{"a type of another database", "tables:\n  t: {columns: [{name: id, type: integer}]}\npipelines:\n  p:\n    source: {file: {path: events.ndjson}}\n    sink: {eventstore: {table: t}}\n",
			`{"id":1}` + "\n", "perigee check pipeline.yaml", `did you mean "int64"?`, "integer", "int64"},
		{"a file that does not exist", "pipelines:\n  p:\n    source: {file: {path: event.ndjson}}\n    sink: {eventstore: {table: t}}\n",
			`{"id":1}` + "\n", "perigee check pipeline.yaml", "event.ndjson", "event.ndjson", "events.ndjson"},
		{"lines that are not JSON", "pipelines:\n  p:\n    source: {file: {path: events.ndjson}}\n    sink: {eventstore: {table: t}}\n",
			"GET /index.html 200\n", "perigee run pipeline.yaml", "format: lines", "path: events.ndjson", "path: events.ndjson, format: lines"},
	} {
		p := &page{path: c.name, folder: newPageFolder(t)}
		p.put(t, "pipeline.yaml", c.config)
		p.put(t, "events.ndjson", c.events)
		out, code := p.run(t, p.folder, c.command)
		letters, _ := p.run(t, p.folder, "perigee dlq list --format json 2>&1 || true")
		if code != 1 || !strings.Contains(out+letters, c.hint) {
			p.fails(t, "%s: %s exits with %d and prints\n%s%s\nwant 1 and %q", c.name, c.command, code, out, letters, c.hint)
		}
		p.put(t, "pipeline.yaml", strings.Replace(c.config, c.wrong, c.right, 1))
		p.put(t, "events.ndjson", c.events)
		p.step(t, "perigee check pipeline.yaml")
		p.step(t, "rm -rf perigee-data && perigee run pipeline.yaml")
		if out := p.step(t, "perigee query 'SELECT count(*) AS n FROM t'"); !strings.Contains(out, "│ 1 │") {
			p.fails(t, "%s: after following the hint the table has\n%s", c.name, out)
		}
		all.steps, all.failed = all.steps+p.steps, all.failed+p.failed
	}
	return all
}
