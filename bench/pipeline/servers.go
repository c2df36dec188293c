package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of MariaDB
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL
	"github.com/redis/go-redis/v9"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source/generate"
)

// A queue is a Redis. The events are generated once into a database of their own, the
// archive, and copied from there before each turn.
type queue struct {
	server  *testserver.RedisServer
	client  *redis.Client // of the database that is drained
	archive *redis.Client // of the other one
}

const archiveNumber = 1 // number of that database

func startQueue(ctx context.Context, folder string, events uint64) (*queue, error) {
	server, err := testserver.StartRedis(ctx, folder)
	if err != nil {
		return nil, err
	}
	q := &queue{server: server,
		client:  redis.NewClient(&redis.Options{Addr: server.Address()}),
		archive: redis.NewClient(&redis.Options{Addr: server.Address(), DB: archiveNumber}),
	}
	return q, q.fillArchive(ctx, events)
}

// pushSize is how many events one request pushes.
const pushSize = 1000

// fillArchive fills the archive's list and stream with all events.
func (q *queue) fillArchive(ctx context.Context, events uint64) error {
	for first := uint64(0); first < events; first += pushSize {
		pipe := q.archive.Pipeline()
		var all []any
		for i := first; i < min(events, first+pushSize); i++ {
			event := generate.Append(nil, seed, i)
			all = append(all, event)
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"event", event}})
		}
		pipe.RPush(ctx, list, all...)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("make events: %w", err)
		}
	}
	return nil
}

func (q *queue) pid() int { return q.server.PID() }

func (q *queue) close() {
	q.client.Close()
	q.archive.Close()
	_ = q.server.Stop()
}

// A queueKey is a list or stream of a queue, as a source.
type queueKey struct {
	*queue
	name string
}

// fill copies the key from the archive and trims a list to its first events.
func (k queueKey) fill(ctx context.Context, events uint64) error {
	if err := k.client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	if err := k.archive.Copy(ctx, k.name, k.name, 0, true).Err(); err != nil {
		return err
	}
	if k.name != list {
		return nil
	}
	return k.client.LTrim(ctx, k.name, 0, int64(events)-1).Err()
}

func (k queueKey) remaining(ctx context.Context) (int64, error) {
	if k.name == list {
		return k.client.LLen(ctx, k.name).Result()
	}
	return k.client.XLen(ctx, k.name).Result()
}

// A noSource is the source of contestants that load ready rows.
type noSource struct{ *queue }

func (noSource) fill(context.Context, uint64) error       { return nil }
func (noSource) remaining(context.Context) (int64, error) { return 0, nil }

// A mariadb is a server with the table.
type mariadb struct {
	server *testserver.MariaDBServer
	db     *sql.DB
}

func startMariaDB(ctx context.Context, folder string, flags ...string) (*mariadb, error) {
	server, err := testserver.StartMariaDB(ctx, folder, flags...)
	if err != nil {
		return nil, err
	}
	m := &mariadb{server: server}
	if m.db, err = sql.Open("mysql", server.DSN("")); err != nil {
		return nil, err
	}
	defer m.db.Close()
	if _, err = m.db.ExecContext(ctx, "CREATE DATABASE "+database); err != nil {
		return nil, err
	}
	m.db, err = sql.Open("mysql", server.DSN(database))
	return m, err
}

// tlsConnections returns how many connections have used TLS so far.
func (m *mariadb) tlsConnections(ctx context.Context) (n int, err error) {
	var name string
	err = m.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Ssl_finished_accepts'").Scan(&name, &n)
	return n, err
}

func (m *mariadb) pid() int { return m.server.PID() }

func (m *mariadb) close() {
	m.db.Close()
	_ = m.server.Stop()
}

// positionTables are the tables in which sinks keep positions and leases.
var positionTables = []string{"perigee_ranges", "perigee_owners", "perigee_leases", "perigee_workers"}

func (m *mariadb) empty(ctx context.Context) error {
	err := empty(ctx, m.db, `CREATE TABLE `+table+` (
		pk BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
		id BIGINT NOT NULL, event_name VARCHAR(16) NOT NULL, email VARCHAR(120) NOT NULL, domain VARCHAR(80) NOT NULL,
		topic VARCHAR(40) NOT NULL, campaign_number INT NOT NULL, time DATETIME(6) NOT NULL, url VARCHAR(200) NOT NULL,
		KEY campaign (campaign_number, time)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`)
	if err != nil {
		return err
	}
	return m.flushPages(ctx)
}

// idleDirtyPages is how many pages are dirty in an idle server.
const idleDirtyPages = 100

// flushPages waits until all changes are on disk, as CHECKPOINT does. Otherwise the next
// turn would pay for them.
func (m *mariadb) flushPages(ctx context.Context) (err error) {
	if _, err := m.db.ExecContext(ctx, "SET GLOBAL innodb_max_dirty_pages_pct = 0"); err != nil {
		return err
	}
	defer func() {
		_, back := m.db.ExecContext(ctx, "SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")
		err = errors.Join(err, back)
	}()
	for dirty := idleDirtyPages; dirty >= idleDirtyPages; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
		var name string
		if err := m.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'").Scan(&name, &dirty); err != nil {
			return err
		}
	}
	return nil
}

// A postgres is a server with the table.
type postgres struct {
	server *testserver.PostgreSQLServer
	db     *sql.DB
}

func startPostgreSQL(ctx context.Context, folder string) (*postgres, error) {
	server, err := testserver.StartPostgreSQL(ctx, folder)
	if err != nil {
		return nil, err
	}
	p := &postgres{server: server}
	if p.db, err = sql.Open("pgx", server.DSN("postgres")); err != nil {
		return nil, err
	}
	defer p.db.Close()
	if _, err = p.db.ExecContext(ctx, "CREATE DATABASE "+database); err != nil {
		return nil, err
	}
	p.db, err = sql.Open("pgx", server.DSN(database))
	return p, err
}

func (p *postgres) pid() int { return p.server.PID() }

func (p *postgres) close() {
	p.db.Close()
	_ = p.server.Stop()
}

func (p *postgres) empty(ctx context.Context) error {
	return empty(ctx, p.db, `CREATE TABLE `+table+` (
		pk BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		id BIGINT NOT NULL, event_name VARCHAR(16) NOT NULL, email VARCHAR(120) NOT NULL, domain VARCHAR(80) NOT NULL,
		topic VARCHAR(40) NOT NULL, campaign_number INT NOT NULL, time TIMESTAMPTZ NOT NULL, url VARCHAR(200) NOT NULL)`,
		"CREATE INDEX campaign ON "+table+" (campaign_number, time)", "CHECKPOINT")
}

func empty(ctx context.Context, db *sql.DB, create ...string) error {
	statements := []string{"DROP TABLE IF EXISTS " + table}
	for _, name := range positionTables {
		statements = append(statements, "DROP TABLE IF EXISTS "+name)
	}
	for _, statement := range append(statements, create...) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// checkCount returns an error unless the table has as many rows as expected.
func checkCount(ctx context.Context, db *sql.DB, want int) error {
	var rows, ids int
	err := db.QueryRowContext(ctx, "SELECT COUNT(*), COUNT(DISTINCT id) FROM "+table).Scan(&rows, &ids)
	if err == nil && (rows != want || ids != want) {
		err = fmt.Errorf("%d rows with %d ids landed, want %d", rows, ids, want)
	}
	return err
}
