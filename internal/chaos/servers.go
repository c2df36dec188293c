package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	_ "github.com/go-sql-driver/mysql" // the driver of MySQL
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perigeedb/perigee/internal/testserver"
)

// A server is a private server of any kind.
type server interface {
	Kill() error
	Start(ctx context.Context) error
	Address() string
	Dir() string
}

// A database is a private server for the sinks of one kind.
type database struct {
	server
	kind         string
	transactions func(ctx context.Context) ([]string, error)                // names of open ones
	leases       func(ctx context.Context, worker string) ([]string, error) // partitions that a worker holds leases of
	activity     func(ctx context.Context) ([]string, error)                // a line on what each connection does
	// readNumbers calls each with the number of every row in a table.
	readNumbers func(ctx context.Context, table, column string, each func(uint64)) error
}

// A sqlServer is a server with one database.
type sqlServer struct {
	server
	kind  string
	query func(ctx context.Context, database, query string, each func(string), args ...string) error
}

// A dialect holds the queries that differ between kinds.
type dialect struct {
	transactions, activity string
	leases                 string // its argument is the worker
}

var mysqlDialect = dialect{
	transactions: "SELECT CONCAT(trx_id, '@', trx_started) FROM information_schema.innodb_trx WHERE trx_rows_modified + trx_tables_locked > 0",
	leases:       "SELECT `partition` FROM perigee_leases WHERE worker = ? AND until > UTC_TIMESTAMP(6)",
	activity: `SELECT CONCAT('connection ', p.id, ' from ', p.host, ': ', p.command, ' for ', p.time, ' s, ', COALESCE(p.state, ''), ', transaction ',
		COALESCE(CONCAT(t.trx_state, ', rows ', t.trx_rows_modified, ', locks ', t.trx_rows_locked), 'none'), ': ', COALESCE(LEFT(p.info, 200), ''))
		FROM information_schema.processlist p LEFT JOIN information_schema.innodb_trx t ON t.trx_mysql_thread_id = p.id`,
}

var postgresDialect = dialect{
	transactions: `SELECT pid::text || '@' || xact_start::text FROM pg_stat_activity
		WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()`,
	leases: "SELECT partition FROM perigee_leases WHERE worker = $1 AND until > clock_timestamp()",
	activity: `SELECT format('connection %s: %s for %s, waits for %s %s: %s', pid, state, clock_timestamp() - state_change, wait_event_type, wait_event, left(query, 200))
		FROM pg_stat_activity WHERE datname = current_database()`,
}

// Settings that make servers keep committed data when their process is killed. They do not
// sync: that would cost time and protect only against a power failure.
var (
	durableRedis    = []string{"--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"}
	durableMariaDB  = []string{"--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=64M"}
	durablePostgres = []string{"-c", "fsync=off", "-c", "shared_buffers=32MB"}
)

// startDatabase starts a server of a kind. withoutBulk keeps MySQL sinks from using arrays of
// parameters, which a log of statements does not support.
func startDatabase(ctx context.Context, kind, folder string, withoutBulk bool) (d *database, err error) {
	switch kind {
	case Redis:
		return startRedisSink(ctx, folder)
	case Postgres:
		s, err := startPostgres(ctx, folder)
		return s.database(ctx, postgresDialect, err)
	}
	s, err := startMySQL(ctx, folder, withoutBulk)
	return s.database(ctx, mysqlDialect, err)
}

// database creates the database of a server that was started with an error, or without.
func (s *sqlServer) database(ctx context.Context, of dialect, err error) (*database, error) {
	if err != nil {
		return nil, err
	}
	texts := func(ctx context.Context, query string, args ...string) (all []string, err error) {
		err = s.query(ctx, databaseName, query, func(one string) { all = append(all, one) }, args...)
		return all, err
	}
	d := &database{
		server: s, kind: s.kind, readNumbers: s.readNumbers,
		transactions: func(ctx context.Context) ([]string, error) { return texts(ctx, of.transactions) },
		leases:       func(ctx context.Context, worker string) ([]string, error) { return texts(ctx, of.leases, worker) },
		activity:     func(ctx context.Context) ([]string, error) { return texts(ctx, of.activity) },
	}
	return d, s.query(ctx, "", "CREATE DATABASE "+databaseName, nil)
}

func startPostgres(ctx context.Context, folder string) (*sqlServer, error) {
	s, err := testserver.StartPostgreSQL(ctx, folder, durablePostgres...)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, database, query string, each func(string), args ...string) error {
		conn, err := pgconn.Connect(ctx, s.DSN(database))
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		values := make([][]byte, len(args))
		for i, arg := range args {
			values[i] = []byte(arg)
		}
		rows := conn.ExecParams(ctx, query, values, nil, nil, nil)
		for rows.NextRow() {
			each(string(rows.Values()[0]))
		}
		_, err = rows.Close()
		return err
	}
	return &sqlServer{server: s, kind: Postgres, query: ask}, nil
}

func startMySQL(ctx context.Context, folder string, withoutBulk bool) (*sqlServer, error) {
	flags := slices.Clone(durableMariaDB)
	if withoutBulk {
		flags = append(flags, "--log-bin", "--server-id=1", "--binlog-format=STATEMENT")
	}
	s, err := testserver.StartMariaDB(ctx, folder, flags...)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, database, query string, each func(string), args ...string) error {
		db, err := sql.Open("mysql", s.DSN(database))
		if err != nil {
			return err
		}
		defer db.Close()
		var values []any
		for _, arg := range args {
			values = append(values, arg)
		}
		rows, err := db.QueryContext(ctx, query, values...)
		if err != nil {
			return err
		}
		defer rows.Close()
		var one string
		for rows.Next() {
			if err := rows.Scan(&one); err != nil {
				return err
			}
			each(one)
		}
		return rows.Err()
	}
	return &sqlServer{server: s, kind: MySQL, query: ask}, nil
}

func (s *sqlServer) readNumbers(ctx context.Context, table, column string, each func(uint64)) error {
	quote := map[string]string{MySQL: "`", Postgres: `"`}[s.kind]
	var strange error
	err := s.query(ctx, databaseName, "SELECT "+quote+column+quote+" FROM "+table, func(text string) {
		n, err := strconv.ParseUint(text, 10, 64)
		strange = errors.Join(strange, err)
		each(n)
	})
	if err = errors.Join(err, strange); err != nil {
		return fmt.Errorf("read the events back: %w", err)
	}
	return nil
}

// dataFiles returns the folder with all data of a server.
func dataFiles(s server) string {
	if d, ok := s.(*database); ok {
		s = d.server
	}
	if _, ok := s.(*testserver.RedisServer); ok {
		return filepath.Join(s.Dir(), "appendonlydir")
	}
	return filepath.Join(s.Dir(), "data")
}

// copyFiles copies a folder with owners and permissions.
func copyFiles(from, to string) error {
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, strings.TrimSpace(string(out)))
	}
	return nil
}
