package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink/sqltest"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// shared has the defaults that a session must not inherit. Nobody kills it, so
// it need not wait for the disk.
var shared = testserver.SharedPostgreSQL{Flags: []string{
	"-c", "fsync=off", "-c", "timezone=Asia/Kolkata", "-c", "datestyle=German", "-c", "bytea_output=escape",
	"-c", "standard_conforming_strings=off", "-c", "default_transaction_isolation=serializable",
}}

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A place is a schema of its own, and a configuration of a table in it.
type place struct {
	t      testing.TB
	config Config
	conn   *conn // of the test, as the superuser
}

// on makes a schema on server, and a configuration of it without columns.
func on(t testing.TB, server *testserver.PostgreSQLServer) *place {
	t.Helper()
	direct, err := pgconn.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Close(context.Background()) })
	schema := "It's " + rand.Text()[:8]
	g := &place{t: t, conn: &conn{PgConn: direct}, config: Config{
		Address: server.Address(), User: "postgres", Database: "postgres", Schema: schema, Table: "events",
	}}
	g.text("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET bytea_output = 'hex'; SET standard_conforming_strings = on")
	g.text("CREATE SCHEMA " + quote(schema) + "; SET search_path = " + quote(schema))
	return g
}

func newPlace(t testing.TB, columns ...sqlsink.Column) *place {
	t.Helper()
	g := on(t, shared.Server(t))
	g.config.Columns, g.config.Create = columns, true
	return g
}

// text runs statements and returns the rows of the last, columns separated by |.
func (g *place) text(statements string) []string {
	g.t.Helper()
	rows, err := g.conn.Query(context.Background(), statements)
	if err != nil {
		g.t.Fatalf("%s: %v", statements, err)
	}
	var all []string
	for _, row := range rows {
		var cells []string
		for _, cell := range row {
			if cell == nil {
				cell = []byte("NULL")
			}
			cells = append(cells, string(cell))
		}
		all = append(all, strings.Join(cells, "|"))
	}
	return all
}

// await waits until a query of one cell returns want.
func (g *place) await(query, want string) {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if rows := g.text(query); len(rows) == 1 && rows[0] == want {
			return
		}
	}
	g.t.Fatalf("%s never became %s", query, want)
}

func env(pipeline string) sink.Env { return sink.Env{Pipeline: pipeline} }

func (g *place) sink(pipeline string) *Sink {
	g.t.Helper()
	s, err := New(env(pipeline), g.config)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// A hand is a writer of partition a of pipeline p.
type hand struct {
	sink.Writer
	sink *Sink
	done event.Ranges
}

func (g *place) open() hand {
	g.t.Helper()
	s := g.sink("p")
	g.t.Cleanup(func() { s.Close() })
	w, done, err := s.Open(g.t.Context(), "a")
	if err != nil {
		g.t.Fatal(err)
	}
	return hand{w, s, done}
}

func named(length int) []sqlsink.Column {
	return []sqlsink.Column{
		{Name: "id", Type: sqlsink.Type(event.Int64), Required: true},
		{Name: "name", Type: sqlsink.Type(event.String), SQL: fmt.Sprintf("VARCHAR(%d)", length)},
	}
}

func TestSuite(t *testing.T) {
	t.Run(string(sqlsink.Insert), func(t *testing.T) { sinktest.Run(t, places(sqlsink.Insert)) })
	t.Run(string(sqlsink.Upsert), func(t *testing.T) { sinktest.RunVariant(t, places(sqlsink.Upsert)) })
}

// TestCommon runs the suite of what the SQL sinks have in common.
func TestCommon(t *testing.T) {
	sqltest.Run(t, sqltest.Kind{
		Table: func(t *testing.T) *sqltest.Table { return newPlace(t, named(20)...).table() },
		OwnServer: func(t *testing.T) (*sqltest.Table, sqltest.Server, func()) {
			server := testserver.PostgreSQL(t)
			g := on(t, server)
			g.config.Columns, g.config.Create = named(20), true
			table := g.table()
			return table, server, func() {
				after := on(t, server)
				after.text("SET search_path = " + quote(g.config.Schema))
				table.Query = after.text
			}
		},
		Claim:      func(t *testing.T, s sink.Sink) positions.Store { return claim(t, s.(*Sink)) },
		Proxy:      newProxy,
		CutsCommit: true,
		HoursAgo:   "committed - interval '3 hours'",
	})
}

// table is the place as the common suite knows it.
func (g *place) table() *sqltest.Table {
	return &sqltest.Table{
		Address: g.config.Address,
		Query:   g.text,
		Sink: func(t *testing.T, table *sqltest.Table, pipeline string) sink.Sink {
			config := g.config
			config.Address, config.Mode = table.Address, table.Mode
			if table.Keyed {
				config.PrimaryKey = []string{"id"}
			}
			env := env(pipeline)
			env.State = table.State
			s, err := New(env, config)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
}

// places returns what makes a place for each test of the suite.
func places(mode sqlsink.Mode) func(t *testing.T) sinktest.Place {
	return func(t *testing.T) sinktest.Place {
		g := newPlace(t, named(60)...)
		if g.config.Mode = mode; mode == sqlsink.Upsert {
			g.config.PrimaryKey = []string{"id"}
		}
		return sinktest.Place{
			Guarantee: Kind().Guarantee,
			Sink:      func(_ *testing.T, pipeline string) sink.Sink { return g.sink(pipeline) },
			Rows:      func(*testing.T) []sinktest.Row { return g.rows() },
			RejectedDoc: func(id int64) string {
				return fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, strings.Repeat("too long ", 10))
			},
			Proxy: func(t *testing.T) *sinktest.Proxy {
				p := newProxy(t, g.config.Address)
				g.config.Address = p.Addr().String()
				return p
			},
			Snapshot: func(*testing.T) func() {
				return sqltest.Snapshot(g.text, "current_schema()", "INSERT INTO %s OVERRIDING SYSTEM VALUE SELECT * FROM %s")
			},
			RemoveNote: func(_ *testing.T, unit string, number uint64) {
				g.text(fmt.Sprintf("DELETE FROM perigee_notes WHERE number = %d AND unit = (SELECT id FROM perigee_units WHERE pipeline = 'p' AND name = '%s')", number, unit))
			},
			Stall:    g.stall,
			Deadlock: g.deadlock,
		}
	}
}

func (g *place) rows() []sinktest.Row {
	g.t.Helper()
	if g.text("SELECT to_regclass('events') IS NULL")[0] == "t" {
		return nil
	}
	rows, err := g.conn.Query(context.Background(), "SELECT id, name FROM events")
	if err != nil {
		g.t.Fatal(err)
	}
	var all []sinktest.Row
	for _, row := range rows {
		id, err := strconv.ParseInt(string(row[0]), 10, 64)
		if err != nil {
			g.t.Fatal(err)
		}
		all = append(all, sinktest.Row{ID: id, Name: string(row[1])})
	}
	return all
}

// stall locks the table, so that a write hangs at its rows.
func (g *place) stall(t *testing.T) (hanging, release func()) {
	g.text("BEGIN;LOCK TABLE events IN EXCLUSIVE MODE")
	hanging = func() {
		g.await("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'events'::regclass", "1")
	}
	return hanging, func() { g.text("COMMIT") }
}

// deadlock has another transaction wait longer than the server lets the sink's.
func (g *place) deadlock(_ *testing.T, ids []int64) (collide, end func()) {
	if g.config.Mode != sqlsink.Upsert {
		g.text("ALTER TABLE events ADD PRIMARY KEY (id)")
	}
	insert := fmt.Sprintf("INSERT INTO events VALUES (%d, 'other')", ids[1])
	g.text("BEGIN; SET LOCAL deadlock_timeout = '30s'; " + insert)
	collide = func() {
		g.await("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted", "t")
		g.text(fmt.Sprintf("INSERT INTO events VALUES (%d, 'other')", ids[0]))
	}
	return collide, func() { g.text("ROLLBACK") }
}
