package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/testserver"
)

// faultEvents is enough for several batches in every lane.
const faultEvents = 12_000

func accept(t *testing.T, m *mail, p *process) []admin.DeadLetter {
	t.Helper()
	report, letters := m.finish(p)
	if err := report.Err(); err != nil {
		t.Errorf("%v: %v", report, err)
	}
	if report.Rows == 0 || report.Dropped == 0 {
		t.Errorf("nothing went through the script into the table: %v", report)
	}
	return letters
}

func TestExampleRedisToMariaDB(t *testing.T) {
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	m.push(faultEvents, nil)
	p := m.run()
	p.says("serving http")
	m.push(faultEvents, nil) // while the first are read
	accept(t, m, p)
	p.says("pipeline ended", "pipeline=emails", fmt.Sprintf("events=%d", 2*faultEvents))

	var domain, class, device string
	var campaign int
	err := m.db.QueryRow("SELECT domain, class, device, campaign_number FROM events WHERE id = 1").Scan(&domain, &class, &device, &campaign)
	if err != nil || domain != "example.org" || class != "delivery" || device != "phone" || campaign != 5 {
		t.Errorf("row 1 is %s, %s, %s, %d: %v", domain, class, device, campaign, err)
	}
}

// TestBadEvents puts every kind of bad event between good ones.
func TestBadEvents(t *testing.T) {
	const email = `{"id":%d,"event_name":"sent","email":"%s","campaign":"a-1","time":"%s","ip":"::1","url":"u"}`
	const noon = "2026-01-01T12:00:00Z"
	bad := []struct {
		index        uint64
		line         string
		stage, error string
	}{
		{100, "not json", "parse", ""},
		{101, `[1,2]`, "parse", ""},
		{102, `"text"`, "parse", ""},
		{103, "{\"email\":\"a\xff@b\"}", "parse", ""},
		{104, ``, "parse", ""},
		{2000, fmt.Sprintf(email, 2001, "nobody", noon), "script", "email.lua:19: no @ in email nobody"},
		{2001, `{"id":2002,"event_name":"sent"}`, "script", "email.lua:18"},
		{3000, fmt.Sprintf(email, 3001, "a@b", "yesterday"), "column", "time"},
		{3001, strings.Replace(fmt.Sprintf(email, 0, "a@b", noon), `"id":0`, `"id":"one"`, 1), "column", "id"},
		{3002, strings.Replace(fmt.Sprintf(email, 0, "a@b", noon), `"id":0,`, ``, 1), "column", "id"},
		{3003, fmt.Sprintf(email, 3004, strings.Repeat("x", 200)+"@b", noon), "column", "email"},
	}
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	replaced := map[uint64]string{}
	for _, b := range bad {
		replaced[b.index] = b.line
	}
	m.push(faultEvents, replaced)
	letters := accept(t, m, m.run())
	at := map[uint64]admin.DeadLetter{}
	for _, l := range letters {
		at[l.Position] = l
	}
	for _, b := range bad {
		l, found := at[b.index]
		original := l.Original + string(l.Bytes)
		if !found || l.Stage != b.stage || !strings.Contains(l.Error, b.error) || l.Error == "" || original != b.line {
			t.Errorf("event %d %q is the dead letter %+v, want stage %s and an error with %q", b.index, b.line, l, b.stage, b.error)
		}
		delete(at, b.index)
	}
	for _, l := range at {
		t.Errorf("a good event is the dead letter %+v", l)
	}
}

// TestServersAbsentAtStart starts the engine before either server is there.
func TestServersAbsentAtStart(t *testing.T) {
	t.Parallel()
	m := newMail(t, testserver.Redis(t, "--appendonly", "yes"), testserver.MariaDB(t))
	m.push(faultEvents, nil)
	stop(t, m.redis, m.maria)

	p := m.run()
	p.says("failed; retrying", "pipeline=emails", "source", m.redis.Address())
	begin(t, m.redis)
	m.connect()
	p.says("failed; retrying", "pipeline=emails", "leases", m.maria.Address())
	begin(t, m.maria)
	accept(t, m, p)
}

// TestServersLostMidway kills each server while events flow.
func TestServersLostMidway(t *testing.T) {
	t.Parallel()
	m := newMail(t, testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "always"), testserver.MariaDB(t))
	m.push(faultEvents, nil)
	p := m.run()
	eventually(t, "there are rows", func() bool {
		var n int
		return m.db.QueryRow("SELECT count(*) FROM events").Scan(&n) == nil && n > 0
	})
	if err := m.maria.Kill(); err != nil {
		t.Fatal(err)
	}
	m.push(faultEvents, nil)
	p.says("failed; retrying", "pipeline=emails", "sink", m.maria.Address())
	begin(t, m.maria)
	if err := m.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	p.says("failed; retrying", "pipeline=emails", "source", m.redis.Address())
	begin(t, m.redis)
	m.connect()
	m.push(faultEvents, nil)
	accept(t, m, p)
}

// TestSecondSignalStopsAtOnce drains an engine that can't finish, and says why.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	m := newMail(t, testserver.Redis(t), testserver.MariaDB(t))
	m.push(faultEvents, nil)
	p := m.run()
	m.drained()
	stop(t, m.maria)
	m.push(faultEvents, nil)
	p.says("failed; retrying", "pipeline=emails", "sink", m.maria.Address())
	p.signal(syscall.SIGTERM)
	p.says("draining")
	p.says("still draining", "pipeline=emails", m.maria.Address())
	p.signal(syscall.SIGTERM)
	p.ends(128 + int(syscall.SIGTERM))

	begin(t, m.maria)
	accept(t, m, m.run())
}

// TestTableLacksColumn expects the run to stop at once with an error that names the missing
// column, and to continue once the table has the column.
func TestTableLacksColumn(t *testing.T) {
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	m.push(faultEvents, nil)
	if _, err := m.db.Exec("CREATE TABLE events (id BIGINT PRIMARY KEY, email VARCHAR(100)) ENGINE=InnoDB"); err != nil {
		t.Fatal(err)
	}
	const config = `
data: ${DATA}
http: off
pipelines:
  emails:
    source: {redis: {address: "${REDIS}", list: pepi_queue}}
    script: %s
    sink:
      mysql: {address: "${MYSQL}", user: root, database: "${MYSQL_DATABASE}", table: events, columns: [{name: id, type: int64}, {name: domain, type: string}]}
`
	file := write(t, "narrow.yaml", fmt.Sprintf(config, examplePath(t)))
	p := runEngine(t, file, m.env()...)
	p.ends(1)
	for _, part := range []string{"perigee: error: ", "domain", "events", "perigee: hint: "} {
		if !strings.Contains(p.log.String(), part) {
			t.Errorf("the message lacks %q:\n%s", part, p.log.String())
		}
	}
	if _, err := m.db.Exec("ALTER TABLE events ADD COLUMN domain VARCHAR(100)"); err != nil {
		t.Fatal(err)
	}
	accept(t, m, runEngine(t, file, m.env()...))
}

// TestPortTaken fails at the start, and leaves the data folder free.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := write(t, "port.yaml", `
data: ${DATA}
http: ${HTTP}
pipelines:
  few:
    source: {generate: {events: 10}}
    sink: {stdout: {}}
`)
	data := "DATA=" + shortDir(t)
	p := runEngine(t, file, data, "HTTP="+l.Addr().String())
	p.ends(1)
	p.says("perigee: error: ", "listen", l.Addr().String(), "address already in use")
	p.says("perigee: hint: ", "http")
	runEngine(t, file, data, "HTTP=off").ends(0)
}

// TestBesideRunningEngine asks an engine that owns the folder.
func TestBesideRunningEngine(t *testing.T) {
	if eventservice.Available() != nil {
		t.Skip("the event store needs cgo")
	}
	data := shortDir(t)
	file := write(t, "slow.yaml", `
data: ${DATA}
http: 127.0.0.1:0
query: {listen: "127.0.0.1:0", token: secret}
tables: {events: {time: time}}
pipelines:
  slow:
    source: {generate: {events: 1000000, rate: 1000}}
    sink: {eventstore: {table: events}}
`)
	p := runEngine(t, file, "DATA="+data)
	eventually(t, "rows can be seen", func() bool {
		out, _ := exec.Command("perigee", "query", "--data", data, "--format", "csv", "SELECT count(*) > 0 FROM events").Output()
		return strings.Contains(string(out), "true")
	})
	ready(t, p)

	wrong, err := exec.Command("perigee", "query", "--data", data, "SELECT nmae FROM events").CombinedOutput()
	if err == nil || !strings.Contains(string(wrong), "perigee: error: SQL:1:8: ") || !strings.Contains(string(wrong), "perigee: hint: ") {
		t.Errorf("a wrong query: %v\n%s", err, wrong)
	}
	port := addressOf(t, p, "answering SQL over HTTP")
	for token, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer secret": 200} {
		request, err := http.NewRequest("POST", "http://"+port+"/query", strings.NewReader("SELECT count(*) > 0 AS some FROM events"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != want || want == 200 && string(body) != "[\n{\"some\":true}\n]\n" {
			t.Errorf("token %q: %s %s", token, response.Status, body)
		}
	}
	letters, err := exec.Command("perigee", "dlq", "list", "--data", data).Output()
	if err != nil || string(letters) != "0 dead letters\ndata folder: "+data+"\n" {
		t.Errorf("dlq list: %v\n%s", err, letters)
	}

	second := runEngine(t, file, "DATA="+data)
	second.ends(1)
	second.says("perigee: error: data folder", fmt.Sprintf("in use by process %d", p.cmd.Process.Pid))
	second.says("perigee: hint: ")

	p.signal(syscall.SIGINT)
	p.ends(0)
	out, err := exec.Command("perigee", "query", "--data", data, "--format", "ndjson", "SELECT min(id) AS least FROM events").Output()
	if err != nil || string(out) != "{\"least\":1}\n" {
		t.Errorf("the store after the engine: %v\n%s", err, out)
	}
}

// TestF21ExitCodes looks for a fault of TalariaDB: the process always exited with 1, and did
// not start on a host without a private address.
func TestF21ExitCodes(t *testing.T) {
	if eventservice.Available() != nil {
		t.Skip("the event store needs cgo")
	}
	data := shortDir(t)
	file := write(t, "few.yaml", `
data: ${DATA}
http: off
tables: {events: {time: time}}
pipelines:
  few:
    source: {generate: {events: 10}}
    sink: {eventstore: {table: events}}
`)
	runEngine(t, file, "DATA="+data).ends(0)
	for sql, want := range map[string]int{"SELECT count(*) FROM events": 0, "SELECT nowhere FROM events": 1} {
		cmd := exec.Command("perigee", "query", "--data", data, sql)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d\n%s", sql, got, want, out)
		}
	}
}

// addressOf returns the address in the message of an engine's log.
func addressOf(t *testing.T, p *process, message string) string {
	t.Helper()
	p.says(message, "address=")
	_, rest, _ := strings.Cut(p.log.String(), message)
	_, rest, _ = strings.Cut(rest, "address=")
	return strings.Fields(rest)[0]
}

// ready asks the engine's port, which its log names.
func ready(t *testing.T, p *process) {
	t.Helper()
	address := addressOf(t, p, "serving http")
	for _, path := range []string{"/ready", "/ping", "/metrics"} {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", path, response.Status)
		}
	}
}

func stop(t *testing.T, servers ...interface{ Stop() error }) {
	t.Helper()
	for _, s := range servers {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func begin(t *testing.T, server interface{ Start(context.Context) error }) {
	t.Helper()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func examplePath(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../examples/email/email.lua")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
