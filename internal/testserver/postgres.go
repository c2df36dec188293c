package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A PostgreSQLServer is a private PostgreSQL. Its superuser is postgres without a password.
type PostgreSQLServer struct {
	server
	databases atomic.Int64 // created so far
}

// StartPostgreSQL starts a PostgreSQL with its data in dir, which it initializes if it is
// empty. It runs with the server's defaults, except for flags such as "-c", "fsync=off".
// PostgreSQL refuses to run as root: for root it runs as the account postgres, which
// becomes the owner of dir.
func StartPostgreSQL(ctx context.Context, dir string, flags ...string) (*PostgreSQLServer, error) {
	path, err := findPostgreSQL("postgres")
	if err != nil {
		return nil, err
	}
	if dir, err = makeFolder(dir); err != nil {
		return nil, err
	}
	as, err := postgresAccount(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := installPostgreSQL(ctx, as, data); err != nil {
		return nil, err
	}
	p := &PostgreSQLServer{server: server{name: "postgres", path: path, dir: dir, stopSignal: syscall.SIGINT, account: as}}
	p.ready = p.ping
	p.command = func(port int) []string {
		// A killed server leaves shared memory of the type posix behind.
		return append([]string{"-D", data, "-p", strconv.Itoa(port), "-h", "127.0.0.1", "-k", "", "-c", "dynamic_shared_memory_type=mmap"}, flags...)
	}
	return p, p.startFirst(ctx)
}

// findPostgreSQL finds a binary of the server: on the path, or in Debian's folder of the
// newest version.
func findPostgreSQL(name string) (string, error) {
	path, err := FindBinary(name, "postgresql")
	if err == nil {
		return path, nil
	}
	for version := 30; version >= 10; version-- {
		path := fmt.Sprintf("/usr/lib/postgresql/%d/bin/%s", version, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", err
}

// postgresAccount returns the account that the server runs as when this process is root,
// and makes it the owner of dir.
func postgresAccount(dir string) (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, err
	}
	return &account{uid, gid}, os.Chown(dir, uid, gid)
}

// installPostgreSQL creates the cluster in a folder beside data and renames it, so that data
// is always complete.
func installPostgreSQL(ctx context.Context, as *account, data string) error {
	if _, err := os.Stat(data); err == nil {
		return nil
	}
	path, err := findPostgreSQL("initdb")
	if err != nil {
		return err
	}
	draft := data + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "-D", draft, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = filepath.Dir(data), processAttributes(as, syscall.SIGKILL)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make PostgreSQL's cluster: %w\n%s", err, out)
	}
	return os.Rename(draft, data)
}

// DSN returns the data source name of a database for the Go driver; "" means the superuser's.
func (p *PostgreSQLServer) DSN(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", p.Address(), database)
}

// CreateDatabase creates a database with a new name.
func (p *PostgreSQLServer) CreateDatabase(ctx context.Context) (string, error) {
	name := fmt.Sprintf("db%d", p.databases.Add(1))
	return name, p.exec(ctx, "CREATE DATABASE "+name+" STRATEGY FILE_COPY")
}

// DropDatabase drops a database and closes the connections to it.
func (p *PostgreSQLServer) DropDatabase(ctx context.Context, name string) error {
	return p.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// Kill kills the server with SIGKILL, including the processes that serve connections.
func (p *PostgreSQLServer) Kill() error {
	if !p.running() {
		return nil
	}
	children := childrenOf(p.PID())
	if err := p.server.Kill(); err != nil {
		return err
	}
	for _, pid := range children {
		if process, err := os.FindProcess(pid); err == nil {
			_ = process.Kill() // it may have exited by itself
		}
	}
	for end := time.Now().Add(stopTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		children = runningProcesses(children)
		if len(children) == 0 {
			return nil
		}
	}
	return fmt.Errorf("kill %s: processes %v still run", p.name, children)
}

// childrenOf returns the child processes of pid, as far as the system tells.
func childrenOf(pid int) []int {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var all []int
	for _, field := range strings.Fields(string(list)) {
		if child, err := strconv.Atoi(field); err == nil {
			all = append(all, child)
		}
	}
	return all
}

// runningProcesses returns the pids whose process neither exited nor is a zombie.
func runningProcesses(pids []int) []int {
	var left []int
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			left = append(left, pid)
		}
	}
	return left
}

func (p *PostgreSQLServer) exec(ctx context.Context, statement string) error {
	conn, err := pgconn.Connect(ctx, p.DSN(""))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Exec(ctx, statement).Close()
}

func (p *PostgreSQLServer) ping(ctx context.Context) error { return p.exec(ctx, "") }
