package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"github.com/perigeedb/perigee/admin"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/internal/audit"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/source/generate"
)

const patience = 3 * time.Minute // for what happens within a second on an idle machine

// A process is an engine under test.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  syncBuffer
	done chan error
}

// syncBuffer is written by the process's copier while a test reads it.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// runEngine starts "perigee run FILE" with the variables, and kills it at the end of
// the test if it still runs.
func runEngine(t *testing.T, file string, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("perigee", "run", file), done: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = io.Discard, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("the engine's log:\n%s", p.log.String())
		}
	})
	return p
}

// says waits until the log has all the parts, in one line.
func (p *process) says(parts ...string) {
	p.t.Helper()
	eventually(p.t, "the log says "+strings.Join(parts, " … "), func() bool {
		for line := range strings.Lines(p.log.String()) {
			if hasAll(line, parts) {
				return true
			}
		}
		return false
	})
}

func hasAll(line string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for the process and holds its exit code to want.
func (p *process) ends(want int) {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- err
		var failed *exec.ExitError
		if err != nil && !errors.As(err, &failed) {
			p.t.Fatal(err)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != want {
			p.t.Fatalf("the engine exits with %d, want %d", code, want)
		}
	case <-time.After(patience):
		p.t.Fatal("the engine does not end")
	}
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// A mail is a Redis with a list of email events and a database for their rows.
type mail struct {
	t      *testing.T
	redis  *testserver.RedisServer
	maria  *testserver.MariaDBServer
	name   string // of the database
	db     *sql.DB
	client rueidis.Client
	data   string
	pushed uint64
}

const queue = "pepi_queue"

func newMail(t *testing.T, redis *testserver.RedisServer, maria *testserver.MariaDBServer) *mail {
	t.Helper()
	m := &mail{t: t, redis: redis, maria: maria, name: maria.Database(t)}
	var err error
	if m.db, err = sql.Open("mysql", maria.DSN(m.name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.db.Close() })
	m.data = shortDir(t)
	m.connect()
	m.do("FLUSHALL")
	return m
}

func (m *mail) connect() {
	m.t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{m.redis.Address()}, DisableCache: true})
	if err != nil {
		m.t.Fatal(err)
	}
	m.client = client
	m.t.Cleanup(client.Close)
}

func (m *mail) do(args ...string) rueidis.RedisResult {
	m.t.Helper()
	result := m.client.Do(context.Background(), m.client.B().Arbitrary(args...).Build())
	if err := result.Error(); err != nil {
		m.t.Fatal(err)
	}
	return result
}

// push appends the next events to the list; replaced are those at an index that
// are to be something else.
func (m *mail) push(events uint64, replaced map[uint64]string) {
	m.t.Helper()
	for end := m.pushed + events; m.pushed < end; {
		args := []string{"RPUSH", queue}
		for len(args) < 1000 && m.pushed < end {
			line, other := replaced[m.pushed]
			if !other {
				line = string(generate.Append(nil, demoSeed, m.pushed))
			}
			args = append(args, line)
			m.pushed++
		}
		m.do(args...)
	}
}

// env are the variables of redis-mysql.yaml.
func (m *mail) env() []string {
	return []string{
		"REDIS=" + m.redis.Address(), "MYSQL=" + m.maria.Address(), "MYSQL_DATABASE=" + m.name, "MYSQL_USER=root",
		"MYSQL_PASSWORD=", "DATA=" + m.data, "HTTP=127.0.0.1:0",
	}
}

// run starts the example as it stands in examples. gopher-lua limits an event's time by the
// clock, which goes on while a busy machine runs others: it gets more of it.
func (m *mail) run() *process {
	m.t.Helper()
	file := "../../examples/email/redis-mysql.yaml"
	if lua.Slower() != "" {
		example, err := os.ReadFile(file)
		if err != nil {
			m.t.Fatal(err)
		}
		const script = "script: email.lua\n"
		if !strings.Contains(string(example), script) {
			m.t.Fatalf("%s lacks %q", file, script)
		}
		patient := "script: {lua: " + examplePath(m.t) + ", event_time: 1m, batch_time: 2m}\n"
		file = write(m.t, "redis-mysql.yaml", strings.Replace(string(example), script, patient, 1))
	}
	return runEngine(m.t, file, m.env()...)
}

// drained waits until the list is empty: everything is durable then.
func (m *mail) drained() {
	m.t.Helper()
	eventually(m.t, "the list is empty", func() bool {
		n, err := m.do("LLEN", queue).AsInt64()
		return err == nil && n == 0
	})
}

// finish waits for the list, drains the engine and returns what became of the
// events. Dead letters are known by their position, which is the id less one.
func (m *mail) finish(p *process) (audit.Report, []admin.DeadLetter) {
	m.t.Helper()
	m.drained()
	p.signal(syscall.SIGTERM)
	p.ends(0)
	ledger := audit.New(m.pushed)
	rows, err := m.db.Query("SELECT id FROM events")
	if err != nil {
		m.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			m.t.Fatal(err)
		}
		ledger.AddRow(id)
	}
	if err := rows.Err(); err != nil {
		m.t.Fatal(err)
	}
	letters := m.letters()
	for _, l := range letters {
		ledger.AddDead(l.Position + 1)
	}
	return ledger.Report(audit.DroppedByEmail(demoSeed)), letters
}

// letters asks the command for the dead letters.
func (m *mail) letters() (all []admin.DeadLetter) {
	m.t.Helper()
	out, err := exec.Command("perigee", "dlq", "list", "--data", m.data, "--format", "json").Output()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := json.Unmarshal(out, &all); err != nil {
		m.t.Fatalf("dlq list: %v\n%s", err, out)
	}
	return all
}

// write makes a file in the test's own folder.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// shortDir is a data folder for a test. A socket's path must be short, and a
// test's own folder may have a long one.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "perigee-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
