package testserver_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/internal/testserver"
)

// childFolder makes this test binary a program that starts a Redis and waits.
const childFolder = "PERIGEE_TEST_PRIVATE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		child(dir)
	}
	goleak.VerifyTestMain(m)
}

func child(dir string) {
	r, err := testserver.StartRedis(context.Background(), dir)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(r.PID()) + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestRedisKeepsPortAndDataOverKill(t *testing.T) {
	r := testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	address := r.Address()
	ask(t, r, "SET k v", "+OK")
	must(t, r.Kill())
	if _, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		t.Fatal("a killed Redis still listens")
	}
	must(t, r.Start(t.Context()))
	if r.Address() != address {
		t.Errorf("started again at %s, was at %s", r.Address(), address)
	}
	ask(t, r, "GET k", "$1")
	must(t, r.Stop())
	must(t, r.Stop())
}

func TestRedisKeepsNothingByDefault(t *testing.T) {
	r := testserver.Redis(t)
	ask(t, r, "SET k v", "+OK")
	must(t, r.Stop())
	must(t, r.Start(t.Context()))
	ask(t, r, "GET k", "$-1")
}

func TestStartTwiceIsRefused(t *testing.T) {
	r := testserver.Redis(t)
	if err := r.Start(t.Context()); err == nil {
		t.Error("a running Redis was started again")
	}
}

func TestFailedStartShowsTheServersOwnWords(t *testing.T) {
	_, err := testserver.StartRedis(t.Context(), t.TempDir(), "--maxmemory", "plenty")
	if err == nil || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("error %v, want what Redis says about maxmemory", err)
	}
}

func TestMissingBinaryNamesThePackage(t *testing.T) {
	_, err := testserver.FindBinary("perigee-no-such-server", "no-such-package")
	if err == nil || !strings.Contains(err.Error(), "apt-get install no-such-package") {
		t.Errorf("error %v, want the package to install", err)
	}
}

func TestServerDiesWithItsParent(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFolder+"="+dir)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must(t, err)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for start := time.Now(); !ended(pid); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("process %d outlives its parent", pid)
		}
	}
}

// ended reports whether a process is gone or a zombie.
func ended(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestMariaDBKeepsDataOverKill(t *testing.T) {
	m := testserver.MariaDB(t, "--innodb-autoinc-lock-mode=2")
	name := m.Database(t)
	db, err := sql.Open("mysql", m.DSN(name))
	must(t, err)
	defer db.Close()
	execute(t, db, "CREATE TABLE t (a INT) ENGINE=InnoDB")
	execute(t, db, "INSERT INTO t VALUES (42)")
	must(t, m.Kill())
	must(t, m.Start(t.Context()))
	var a, mode int
	must(t, db.QueryRow("SELECT a, @@innodb_autoinc_lock_mode FROM t").Scan(&a, &mode))
	if a != 42 || mode != 2 {
		t.Errorf("a = %d, lock mode %d; want 42 and 2", a, mode)
	}
}

func TestPostgreSQLKeepsDataOverKill(t *testing.T) {
	p, ca := testserver.PostgreSQLWithTLS(t, "-c", "fsync=off")
	name := p.Database(t)
	ask := func(dsn, query string) string {
		t.Helper()
		conn, err := pgconn.Connect(t.Context(), dsn)
		must(t, err)
		defer conn.Close(t.Context())
		results, err := conn.Exec(t.Context(), query).ReadAll()
		must(t, err)
		return string(results[len(results)-1].Rows[0][0])
	}
	value := func(query string) string { t.Helper(); return ask(p.DSN(name), query) }
	value("CREATE TABLE t (a INT); INSERT INTO t VALUES (42) RETURNING a")
	for range 2 {
		must(t, p.Kill())
		must(t, p.Start(t.Context()))
		if a := value("SELECT a FROM t"); a != "42" {
			t.Errorf("a = %s, want 42", a)
		}
	}
	const encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
	checked := strings.Replace(p.DSN(name), "sslmode=disable", "sslmode=verify-full&sslrootcert="+ca, 1)
	if plain, tls := value(encrypted), ask(checked, encrypted); plain != "f" || tls != "t" {
		t.Errorf("encrypted: %s for a plain connection, %s with TLS", plain, tls)
	}
	if sync := value("SHOW fsync"); sync != "off" {
		t.Errorf("fsync is %s: the flags were lost", sync)
	}
	must(t, p.Stop())
	must(t, p.Kill())
}

func TestSharedMariaDBGivesDatabasesOfTheirOwn(t *testing.T) {
	var shared testserver.SharedMariaDB
	defer shared.Close()
	first, second := shared.Server(t), shared.Server(t)
	if first != second {
		t.Error("two servers where one is shared")
	}
	if a, b := first.Database(t), first.Database(t); a == b {
		t.Errorf("both databases are called %s", a)
	}
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.Exec(statement)
	must(t, err)
}

// ask sends one inline command and compares the first line of the answer.
func ask(t *testing.T, r *testserver.RedisServer, command, want string) {
	t.Helper()
	conn, err := net.Dial("tcp", r.Address())
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(command + "\r\n"))
	must(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	must(t, err)
	if strings.TrimSpace(line) != want {
		t.Fatalf("%s: %q, want %q", command, line, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
