package testserver

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
)

// A MariaDBServer is a private MariaDB. Its user is root without a password.
type MariaDBServer struct {
	server
	databases atomic.Int64 // created so far
}

// StartMariaDB starts a MariaDB with its data in dir, which it initializes if it is empty.
// It runs with the server's defaults, except for flags such as "--innodb-autoinc-lock-mode=2".
func StartMariaDB(ctx context.Context, dir string, flags ...string) (*MariaDBServer, error) {
	path, err := FindBinary("mariadbd", "mariadb-server")
	if err != nil {
		return nil, err
	}
	if dir, err = makeFolder(dir); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := installMariaDB(ctx, data); err != nil {
		return nil, err
	}
	m := &MariaDBServer{server: server{name: "mariadbd", path: path, dir: dir}}
	m.ready = m.ping
	m.command = func(port int) []string {
		// The path is relative because the absolute one may be too long for a socket.
		fixed := append(commonFlags(), "--datadir="+data, "--tmpdir="+dir, "--socket=../s", "--port="+strconv.Itoa(port),
			"--bind-address=127.0.0.1", "--skip-name-resolve", "--pid-file="+filepath.Join(dir, "pid"))
		return append(fixed, flags...)
	}
	return m, m.startFirst(ctx)
}

// installMariaDB creates the system tables in a folder beside data and renames it, so that
// data is always complete.
func installMariaDB(ctx context.Context, data string) error {
	if _, err := os.Stat(data); err == nil {
		return nil
	}
	path, err := FindBinary("mariadb-install-db", "mariadb-server")
	if err != nil {
		return err
	}
	draft := data + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	// Each server needs its own folder for temporary files: a starting server removes
	// those that it finds, including another server's.
	args := append(commonFlags(), "--datadir="+draft, "--tmpdir="+filepath.Dir(data), "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("install MariaDB's tables: %w\n%s", err, out)
	}
	return os.Rename(draft, data)
}

// commonFlags returns the first flags of every command line. MariaDB runs as root only on
// request.
func commonFlags() []string {
	if os.Getuid() == 0 {
		return []string{"--no-defaults", "--user=root"}
	}
	return []string{"--no-defaults"}
}

// DSN returns the data source name of a database for the Go driver.
func (m *MariaDBServer) DSN(database string) string {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", m.Address(), database
	return c.FormatDSN()
}

// CreateDatabase creates a database with a new name.
func (m *MariaDBServer) CreateDatabase(ctx context.Context) (string, error) {
	name := fmt.Sprintf("db%d", m.databases.Add(1))
	return name, m.exec(ctx, "CREATE DATABASE "+name)
}

// DropDatabase drops a database.
func (m *MariaDBServer) DropDatabase(ctx context.Context, name string) error {
	return m.exec(ctx, "DROP DATABASE IF EXISTS "+name)
}

func (m *MariaDBServer) exec(ctx context.Context, statement string) error {
	db, err := sql.Open("mysql", m.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// ping connects through the driver without its log: the server does not answer at first.
func (m *MariaDBServer) ping(ctx context.Context) error {
	c, err := mysql.ParseDSN(m.DSN(""))
	if err != nil {
		return err
	}
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	return db.PingContext(ctx)
}
