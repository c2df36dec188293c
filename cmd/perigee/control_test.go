package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/internal/private"
)

// says runs a command and holds what it prints, and its exit code, to the
// expectation. It returns what it prints.
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
	says(t, 0, "no engine runs in "+data+": steady starts paused when one does", "pause", "steady", "--data", data, "--reason", "before the start")
	says(t, 1, "perigee: hint: name the engine's data folder", "status", "--data", data)

	p := runEngine(t, file, "DATA="+data)
	p.says("still paused", "before the start")
	if out := says(t, 1, "steady is paused since 20", "status", "--data", data); !strings.Contains(out, "UTC: before the start\n") {
		t.Errorf("status has no reason:\n%s", out)
	}
	says(t, 0, "steady reads again\n", "resume", "steady", "--data", data)
	eventually(t, "it runs", func() bool {
		out, _ := exec.Command("perigee", "status", "--data", data, "--format", "json").Output()
		return strings.Contains(string(out), `"state":"running"`) && !strings.Contains(string(out), `"events_per_s":0,`)
	})
	says(t, 0, "│ stdout │", "status", "--data", data)

	says(t, 0, "steady is paused: nothing is read until perigee resume steady\n", "pause", "steady", "--data", data)
	settled := says(t, 1, `"open":0,`, "status", "--data", data, "--format", "json")
	if again := says(t, 1, `"events_per_s":0,`, "status", "--data", data, "--format", "json"); again != settled {
		t.Errorf("a paused pipeline goes on:\n%s%s", settled, again)
	}
	says(t, 1, "perigee: hint: this engine runs steady", "pause", "stedy", "--data", data)

	p.signal(syscall.SIGTERM)
	p.ends(0)
	says(t, 0, "steady reads when one does\n", "resume", "steady", "--data", data)
}

// TestCheckConnect tries the example's servers, with a user that may do nothing
// and with one that may.
func TestCheckConnect(t *testing.T) {
	m := newMail(t, private.Redis(t), maria.Server(t))
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
	if out := check(0, "\nok\n", "root"); strings.Count(out, "│ ok ") != 2 {
		t.Errorf("not both are ok:\n%s", out)
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
