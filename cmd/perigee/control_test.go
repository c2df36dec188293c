package main

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/internal/testserver"
)

// says runs a command, checks its output and exit code, and returns the output.
func says(t *testing.T, code int, want string, args ...string) string {
	t.Helper()
	cmd := exec.Command("perigee", args...)
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
		t.Errorf("%v exits with %d and says\n%s\nwant %d and %q", args, cmd.ProcessState.ExitCode(), out, code, want)
	}
	return string(out)
}

func TestPauseAndResume(t *testing.T) {
	data := shortDir(t)
	file := write(t, "steady.yaml", `
data: ${DATA}
http: off
pipelines:
  steady:
    source: {generate: {events: 1000000, rate: 1000}}
    sink: {stdout: {}}
`)
	says(t, 1, "no engine has run in data folder "+data, "pause", "steady", "--data", data)
	t.Setenv("DATA", data)
	says(t, 1, "perigee: hint: did you mean \"steady\"? known: steady", "pause", "stedy", "--config", file)
	says(t, 0, "no engine is running: pipeline steady will be paused when one starts\ndata folder: "+data+"\n", "pause", "steady", "--config", file, "--reason", "before the start")
	says(t, 1, "perigee: hint: name the engine's data folder", "status", "--data", data)
	says(t, 1, "perigee: hint: name the engine's data folder", "status", "--live", "--data", data)

	p := runEngine(t, file, "DATA="+data)
	p.says("still paused", "before the start")
	says(t, 0, "", "status", "--live", "--data", data) // although it exits with 1 otherwise
	if out := says(t, 1, "steady is paused since 20", "status", "--data", data); !strings.Contains(out, "UTC: before the start\n") {
		t.Errorf("status has no reason:\n%s", out)
	}
	says(t, 0, "pipeline steady is resumed\n", "resume", "steady", "--data", data)
	eventually(t, "it runs", func() bool {
		out, _ := exec.Command("perigee", "status", "--data", data, "--format", "json").Output()
		return strings.Contains(string(out), `"state":"running"`) && !strings.Contains(string(out), `"events_per_s":0}`)
	})
	says(t, 0, "│ stdout │", "status", "--data", data)

	says(t, 0, "pipeline steady is paused until perigee resume steady\n", "pause", "steady", "--data", data)
	settled := says(t, 1, `"open_partitions":0,`, "status", "--data", data, "--format", "json")
	if again := says(t, 1, `"events_per_s":0}`, "status", "--data", data, "--format", "json"); again != settled {
		t.Errorf("a paused pipeline continues:\n%s%s", settled, again)
	}
	says(t, 1, "perigee: hint: did you mean \"steady\"? known: steady", "pause", "stedy", "--data", data)

	p.signal(syscall.SIGTERM)
	p.ends(0)
	says(t, 0, "no engine is running: pipeline steady will read when one starts\n", "resume", "steady", "--data", data)
}

// TestCheckConnect tries the example's servers, with a user that may do nothing
// and with one that may.
func TestCheckConnect(t *testing.T) {
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	check := func(code int, want, user string) string {
		t.Helper()
		cmd := exec.Command("perigee", "check", "--connect", "../../examples/email/redis-mysql.yaml")
		cmd.Env = append(append(os.Environ(), m.env()...), "MYSQL_USER="+user)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), want) {
			t.Errorf("as %s it exits with %d and says\n%s\nwant %d and %q", user, cmd.ProcessState.ExitCode(), out, code, want)
		}
		return string(out)
	}
	if out := check(0, "\nok\n", "root"); strings.Count(out, "│ ok ") != 3 {
		t.Errorf("not all three are ok:\n%s", out)
	} else if want := "sink mysql: events (run creates it), perigee_owners (run creates it), "; !strings.Contains(out, want) {
		t.Errorf("it does not name the tables that run creates, %q:\n%s", want, out)
	}
	if _, err := m.db.Exec("CREATE USER IF NOT EXISTS nobody@'%' IDENTIFIED BY ''"); err != nil {
		t.Fatal(err)
	}
	check(1, "perigee: error: pipeline emails, sink mysql: ", "nobody")
	var tables int
	if err := m.db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ?", m.name).Scan(&tables); err != nil || tables != 0 {
		t.Errorf("trying has made %d tables, %v", tables, err)
	}
}

// setenv sets the variables of the mail for every command of the test.
func (m *mail) setenv() {
	for _, variable := range m.env() {
		name, value, _ := strings.Cut(variable, "=")
		m.t.Setenv(name, value)
	}
}

// numbers is a pipeline from a source into the table numbers of a database.
const numbers = `
data: ${DATA}
http: off
pipelines:
  numbers:
    source: {%s}
    sink:
      mysql: {address: "${MYSQL}", user: root, database: "${MYSQL_DATABASE}", table: numbers, create: true, columns: [{name: id, type: int64}]}
`

// ids asks for the IDs in the table numbers.
func ids(t *testing.T, db *sql.DB) (ids string) {
	t.Helper()
	if err := db.QueryRow("SELECT COALESCE(GROUP_CONCAT(id ORDER BY id), '') FROM numbers").Scan(&ids); err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestPosition(t *testing.T) {
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	m.setenv()
	lines := write(t, "lines.ndjson", "{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n{\"id\":4}\n")
	file := write(t, "numbers.yaml", fmt.Sprintf(numbers, "file: {path: "+lines+"}"))
	run := func(want string) {
		t.Helper()
		runEngine(t, file).ends(0)
		if got := ids(t, m.db); got != want {
			t.Errorf("the table has %s, want %s", got, want)
		}
	}
	says(t, 0, "no sink has committed a position yet\n", "position", "show", file)
	run("0,1,2,3,4")
	says(t, 0, "│    5 │ [0,5)     │", "position", "show", file, "numbers")
	says(t, 2, "sink mysql: 2 events [3,5) read again, none skipped\ndata folder: "+m.data+"\nperigee: error: Continue? Standard input is not a terminal: confirm with --yes", "position", "rewind", file, "numbers", "2")
	run("0,1,2,3,4")
	says(t, 0, "sink mysql: 2 events [3,5) read again, none skipped\n", "position", "rewind", file, "numbers", "2", "--yes")
	run("0,1,2,3,3,4,4")
	f, err := os.OpenFile(lines, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("{\"id\":5}\n{\"id\":6}\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	says(t, 0, "sink mysql: none read again, 1 event [5,6) skipped\n", "position", "set", file, "numbers", "6", "--yes")
	run("0,1,2,3,3,4,4,6")
	says(t, 1, "cannot rewind 9 events: only 7 precede this position", "position", "rewind", file, "numbers", "9", "--yes")
	says(t, 1, "unknown pipeline \"nombers\"", "position", "set", file, "nombers", "9", "--yes")
	says(t, 1, "no sink of pipeline numbers has a position of partition \"x\"", "position", "set", file, "numbers", "0", "--partition", "x", "--yes")
}

// TestPositionAndSource shows how far a sink is behind its source.
func TestPositionAndSource(t *testing.T) {
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	m.setenv()
	file := write(t, "numbers.yaml", fmt.Sprintf(numbers, `redis: {address: "${REDIS}", list: numbers, until_empty: true}`))
	m.do("RPUSH", "numbers", `{"id":0}`, `{"id":1}`)
	runEngine(t, file).ends(0)
	m.do("RPUSH", "numbers", `{"id":2}`, `{"id":3}`, `{"id":4}`)
	says(t, 0, "│ [0,2)     │ [2,5)      │ 3   │", "position", "show", file)
	says(t, 0, `"source":"[2,5)","lag":3`, "position", "show", file, "--format", "json")
	if err := m.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	says(t, 0, "│ [0,2)     │ redis 127.0.0.1:", "position", "show", file)
}

// TestPositionBesideEngine moves a position while a worker has the partition.
func TestPositionBesideEngine(t *testing.T) {
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	m.setenv()
	file := write(t, "numbers.yaml", fmt.Sprintf(numbers, "generate: {events: 1000000, rate: 500}"))
	p := runEngine(t, file)
	const landed = "SELECT COUNT(*) FROM numbers WHERE id = 1"
	lands := func(times int) {
		t.Helper()
		eventually(t, fmt.Sprintf("the first event has landed %d times", times), func() bool {
			var n int
			return m.db.QueryRow(landed).Scan(&n) == nil && n == times
		})
	}
	lands(1)
	says(t, 1, "perigee: hint: pause the pipeline first", "position", "set", file, "numbers", "0", "--yes")
	says(t, 0, "continues from 0", "position", "set", file, "numbers", "0", "--yes", "--force")
	p.says("another worker has taken over the partition")
	lands(2)
	says(t, 0, "numbers is paused", "pause", "numbers", "--data", m.data)
	says(t, 0, "continues from 0", "position", "set", file, "numbers", "0", "--yes")
	says(t, 0, "pipeline numbers is resumed", "resume", "numbers", "--config", file)
	lands(3)

	// Another engine with the same pipeline has the lease.
	t.Setenv("DATA", shortDir(t))
	says(t, 1, "has the lease of partition", "position", "set", file, "numbers", "0", "--yes")
	p.signal(syscall.SIGTERM)
	p.ends(0)
}
