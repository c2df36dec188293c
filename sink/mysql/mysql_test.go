package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/sqlsink/sqltest"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// shared has the defaults that a session must not inherit. Nobody kills it, so
// it need not wait for the disk.
var shared = testserver.SharedMariaDB{Flags: []string{
	"--sql-mode=NO_BACKSLASH_ESCAPES,ANSI_QUOTES", "--default-time-zone=+05:30", "--character-set-server=latin1",
	"--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--sync-frm=0",
}}

// certificates is the folder of the shared server's certificate.
var (
	offerTLS     sync.Once
	certificates string
)

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Close()
	os.RemoveAll(certificates)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A target is a table in a database of its own.
type target struct {
	t      *testing.T
	config Config
	db     *sql.DB
}

// on makes a database on server, and a configuration of it without columns.
func on(t *testing.T, server *testserver.MariaDBServer) *target {
	t.Helper()
	database := server.Database(t)
	db, err := sql.Open("mysql", server.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &target{t: t, db: db, config: Config{
		Address: server.Address(), User: "root", Database: database, Table: "events",
	}}
}

// A link is a way to connect.
type link struct {
	name   string
	params map[string]string
}

var links = []link{
	{"plain", nil},
	{"TLS", map[string]string{"tls": "skip-verify"}},
	{"compressed", map[string]string{"compress": "true"}},
	{"TLS, compressed", map[string]string{"tls": "skip-verify", "compress": "true"}},
}

func newTarget(t *testing.T, columns ...Column) *target {
	t.Helper()
	offerTLS.Do(func() {
		var err error
		if certificates, err = os.MkdirTemp("", "mysql"); err != nil {
			t.Fatal(err)
		}
		certificate, key := testserver.WriteCertificate(t, certificates)
		shared.Flags = append(shared.Flags, "--ssl-cert="+certificate, "--ssl-key="+key)
	})
	target := on(t, shared.Server(t))
	target.config.Columns, target.config.Create = columns, true
	return target
}

func (g *target) exec(statement string, args ...any) {
	g.t.Helper()
	if _, err := g.db.ExecContext(g.t.Context(), statement, args...); err != nil {
		g.t.Fatalf("%s: %v", statement, err)
	}
}

// text returns the rows of a query, columns separated by |.
func (g *target) text(query string) []string {
	g.t.Helper()
	rows, err := g.db.QueryContext(g.t.Context(), query)
	if err != nil {
		g.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		g.t.Fatal(err)
	}
	var all []string
	for rows.Next() {
		cells, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			g.t.Fatal(err)
		}
		var row []string
		for _, cell := range cells {
			if !cell.Valid {
				cell.String = "NULL"
			}
			row = append(row, cell.String)
		}
		all = append(all, strings.Join(row, "|"))
	}
	if err := rows.Err(); err != nil {
		g.t.Fatal(err)
	}
	return all
}

func env(pipeline string) sink.Env { return sink.Env{Pipeline: pipeline} }

func (g *target) sink(pipeline string) *Sink {
	g.t.Helper()
	s, err := New(env(pipeline), g.config)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// open opens partition a of pipeline p.
func (g *target) open() writer {
	g.t.Helper()
	s := g.sink("p")
	g.t.Cleanup(func() { s.Close() })
	w, _, err := s.Open(g.t.Context(), "a")
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { w.Close() })
	return w.(writer)
}

func named(length int) []Column {
	return []Column{
		{Name: "id", Type: Type(event.Int64), Required: true},
		{Name: "name", Type: Type(event.String), SQL: fmt.Sprintf("VARCHAR(%d)", length)},
	}
}

func TestSuite(t *testing.T) {
	t.Run(string(Rows), func(t *testing.T) { sinktest.Run(t, places(Rows, links[0])) })
	t.Run(string(Bulk), func(t *testing.T) { sinktest.RunVariant(t, places(Bulk, links[0])) })
	t.Run("TLS", func(t *testing.T) { sinktest.RunVariant(t, places(Bulk, links[3])) })
}

// TestCommon runs the suite of what the SQL sinks have in common.
func TestCommon(t *testing.T) {
	for _, method := range []Method{Rows, Bulk} {
		t.Run(string(method), func(t *testing.T) {
			sqltest.Run(t, sqltest.Kind{
				Table: func(t *testing.T) *sqltest.Table { return newTarget(t, named(20)...).table(method) },
				OwnServer: func(t *testing.T) (*sqltest.Table, sqltest.Server, func()) {
					server := testserver.MariaDB(t)
					g := on(t, server)
					g.config.Columns, g.config.Create = named(20), true
					return g.table(method), server, func() {}
				},
				Claim: func(t *testing.T, s sink.Sink) positions.Store {
					p := &partition{Claim: s.(*Sink).store.NewClaim("a"), sink: s.(*Sink)}
					if _, err := p.TakeOver(t.Context()); err != nil {
						t.Fatal(err)
					}
					return p
				},
				Proxy:      newProxy,
				CutsCommit: method == Rows,
				HoursAgo:   "committed - INTERVAL 3 HOUR",
			})
		})
	}
}

// table is the target as the common suite knows it.
func (g *target) table(method Method) *sqltest.Table {
	return &sqltest.Table{
		Address: g.config.Address,
		Query:   g.text,
		Sink: func(t *testing.T, table *sqltest.Table, pipeline string) sink.Sink {
			config := g.config
			config.Address, config.Method, config.Mode = table.Address, method, table.Mode
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
func places(method Method, link link) func(t *testing.T) sinktest.Place {
	return func(t *testing.T) sinktest.Place {
		g := newTarget(t, named(60)...)
		g.config.Method, g.config.Params = method, link.params
		return sinktest.Place{
			Guarantee: Kind().Guarantee,
			Sink:      func(_ *testing.T, pipeline string) sink.Sink { return g.sink(pipeline) },
			Rows:      func(*testing.T) []sinktest.Row { return g.rows() },
			RejectedDoc: func(id int64) string {
				return fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, strings.Repeat("too long ", 10))
			},
			Proxy: g.proxy(link),
			Snapshot: func(*testing.T) func() {
				return sqltest.Snapshot(g.text, "DATABASE()", "INSERT INTO %s SELECT * FROM %s")
			},
			RemoveNote: func(_ *testing.T, unit string, number uint64) {
				g.exec("DELETE FROM perigee_notes WHERE number = ? AND unit = (SELECT id FROM perigee_units WHERE pipeline = 'p' AND name = ?)", number, unit)
			},
			Stall:    g.stall,
			Deadlock: g.deadlock,
		}
	}
}

// proxy puts a proxy before the server, which can read what is neither encrypted nor
// compressed.
func (g *target) proxy(l link) func(t *testing.T) *sinktest.Proxy {
	if l.params != nil {
		return nil
	}
	return func(t *testing.T) *sinktest.Proxy {
		p := newProxy(t, g.config.Address)
		g.config.Address = p.Addr().String()
		return p
	}
}

func (g *target) rows() []sinktest.Row {
	g.t.Helper()
	rows, err := g.db.QueryContext(context.Background(), "SELECT id, name FROM events")
	if err != nil {
		if strings.Contains(err.Error(), "1146") {
			return nil
		}
		g.t.Fatal(err)
	}
	defer rows.Close()
	var all []sinktest.Row
	for rows.Next() {
		var row sinktest.Row
		if err := rows.Scan(&row.ID, &row.Name); err != nil {
			g.t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

// stall locks the table, so that a write hangs at its first row.
func (g *target) stall(t *testing.T) (hanging, release func()) {
	conn, err := g.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES events WRITE"); err != nil {
		t.Fatal(err)
	}
	hanging = func() {
		g.await("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock'", "1")
	}
	return hanging, func() {
		if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
}

// deadlock has another transaction write more than the sink does, so that the
// server gives the sink's up.
func (g *target) deadlock(t *testing.T, ids []int64) (collide, end func()) {
	g.exec("ALTER TABLE events ADD PRIMARY KEY (id)")
	other, err := g.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := other.ExecContext(t.Context(), statement, args...); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	exec("INSERT INTO events SELECT seq, 'other' FROM seq_1000_to_4000")
	exec("INSERT INTO events VALUES (?, 'other')", ids[1])
	collide = func() {
		g.await("SELECT variable_value > 0 FROM information_schema.global_status WHERE variable_name = 'Innodb_row_lock_current_waits'", "1")
		exec("INSERT INTO events VALUES (?, 'other')", ids[0])
	}
	return collide, func() { _ = other.Rollback() }
}

// await waits until a query of one cell returns want.
func (g *target) await(query, want string) {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if rows := g.text(query); len(rows) == 1 && rows[0] == want {
			return
		}
	}
	g.t.Fatalf("%s never became %s", query, want)
}
