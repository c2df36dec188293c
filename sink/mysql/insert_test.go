package mysql

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"

	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestArraysAndTriggers has the server change rows on their way in.
func TestArraysAndTriggers(t *testing.T) {
	g := newTarget(t, append(named(20), Column{Name: "note", Type: Type(event.String), SQL: "VARCHAR(20) DEFAULT 'none'"})...)
	g.config.Method = Bulk
	w := g.open()
	g.exec("CREATE TRIGGER loud BEFORE INSERT ON events FOR EACH ROW SET NEW.name = UPPER(NEW.name), NEW.note = COALESCE(NEW.note, 'null')")
	r := newRows(w)
	for i := range 1000 {
		r.Add(int64(i), "row", nil)
	}
	r.write(t, w)
	if got := g.text("SELECT name, note, COUNT(*), COUNT(DISTINCT id) FROM events GROUP BY name, note"); len(got) != 1 || got[0] != "ROW|null|1000|1000" {
		t.Errorf("the table has %v", got)
	}
}

// TestTableChangesUnderArrays alters and replaces the table while a statement is prepared.
func TestTableChangesUnderArrays(t *testing.T) {
	g := newTarget(t, named(20)...)
	g.config.Method = Bulk
	w := g.open()
	change := []string{
		"ALTER TABLE events ADD COLUMN added INT NOT NULL DEFAULT 5 FIRST", "ALTER TABLE events MODIFY name VARCHAR(500) CHARACTER SET latin1",
		"CREATE TABLE other LIKE events", "INSERT INTO other SELECT * FROM events", "RENAME TABLE events TO gone, other TO events",
	}
	const rows = 50
	write := func(first int) {
		t.Helper()
		err := w.Write(t.Context(), span(w, uint64(first), rows))
		if isNumber(err, 0) { // MariaDB 11; the pipeline retries with another session
			sinktest.ExpectClass(t, err, sinktest.Transient)
			err = w.Write(t.Context(), span(w, uint64(first), rows))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, statement := range change {
		write(i * rows)
		g.exec(statement)
	}
	write(len(change) * rows)
	if w.bulkDisabled {
		t.Error("arrays were given up")
	}
	if got := g.text("SELECT COUNT(DISTINCT id) FROM events UNION ALL SELECT COUNT(DISTINCT id) FROM gone"); got[0] != "250" || got[1] != "250" {
		t.Errorf("there are %v", got)
	}
}

// TestArraysOfHugeRows writes more than one packet of arrays takes, and a row
// that does not fit into such a packet.
func TestArraysOfHugeRows(t *testing.T) {
	columns := named(20)
	columns[1].SQL = "LONGTEXT"
	g := newTarget(t, columns...)
	g.exec("SET GLOBAL max_allowed_packet = 64 << 20")
	defer g.exec("SET GLOBAL max_allowed_packet = DEFAULT")
	w := g.open()
	if w.plan.method != Bulk {
		t.Fatalf("rows are inserted by %v", w.plan.method)
	}
	r := newRows(w)
	var want int
	for i, size := range []int{1, 3 << 20, 3 << 20, 0, 17 << 20, 3} {
		r.Add(int64(i), strings.Repeat("x", size))
		want += size
	}
	r.write(t, w)
	if got := g.text("SELECT COUNT(*), SUM(LENGTH(name)) FROM events"); got[0] != fmt.Sprintf("6|%d", want) {
		t.Errorf("rows and bytes: %s, want %d", got[0], want)
	}
}

// TestArraysAreForbidden gives arrays up where the server, or a proxy before it, does not
// know them. A trigger raises the error, the first time.
func TestArraysAreForbidden(t *testing.T) {
	g := newTarget(t, named(20)...)
	w := g.open()
	g.exec("CREATE TABLE said (once INT) ENGINE=MyISAM")
	g.exec(`CREATE TRIGGER forbid BEFORE INSERT ON events FOR EACH ROW
		IF NOT EXISTS (SELECT * FROM said) THEN
			INSERT INTO said VALUES (1);
			SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1295;
		END IF`)
	for i := range uint64(2) {
		if err := w.Write(t.Context(), span(w, i*100, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if !w.bulkDisabled {
		t.Error("arrays are tried for ever")
	}
	g.once(200)
}

// TestWrongRejections gives up arrays that are rejected for rows that the server
// accepts as text: a trigger rejects every row once.
func TestWrongRejections(t *testing.T) {
	g := newTarget(t, named(20)...)
	w := g.open()
	g.exec("CREATE TABLE tried (id BIGINT) ENGINE=MyISAM")
	g.exec(`CREATE TRIGGER twice BEFORE INSERT ON events FOR EACH ROW
		IF NOT EXISTS (SELECT * FROM tried WHERE id = NEW.id) THEN
			INSERT INTO tried VALUES (NEW.id);
			SIGNAL SQLSTATE '45000';
		END IF`)
	for i := range uint64(maxWrongRejections) {
		sinktest.ExpectClass(t, w.Write(t.Context(), span(w, i*100, 1)), sinktest.Transient)
	}
	if !w.bulkDisabled {
		t.Error("arrays are tried for ever")
	}
}

// TestSecuredConnections inserts by arrays through TLS, compression and both.
func TestSecuredConnections(t *testing.T) {
	for _, link := range links {
		t.Run(link.name, func(t *testing.T) {
			g := newTarget(t, named(20)...)
			g.config.Params = link.params
			w := g.insertsBy(Bulk)
			s, err := w.session(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer w.release(s)
			if s.wire.Encrypted() != (link.params["tls"] != "") || s.wire.Compressed() != (link.params["compress"] != "") {
				t.Errorf("the connection is encrypted: %v, compressed: %v", s.wire.Encrypted(), s.wire.Compressed())
			}
		})
	}
}

// TestStatementLog inserts no arrays where the server logs statements.
func TestStatementLog(t *testing.T) {
	g := on(t, testserver.MariaDB(t, "--log-bin", "--server-id=1"))
	g.config.Columns, g.config.Create = named(20), true
	w := g.insertsBy(Bulk)
	w.closeSessions()
	g.exec("SET GLOBAL binlog_format = 'STATEMENT'")
	if err := w.Write(t.Context(), span(w, 1000, 500)); err != nil {
		t.Fatal(err)
	}
	if !w.bulkDisabled {
		t.Error("arrays are tried for ever")
	}
	g.once(1500)
	g.config.Method = Bulk
	g.refusesOpen("binlog_format is STATEMENT", "remove method")
	g.config.Method, g.config.Table = Auto, "others"
	if w := g.open(); w.plan.method != Rows {
		t.Errorf("rows are inserted by %v", w.plan.method)
	}
}

func TestChooseMethod(t *testing.T) {
	for _, test := range []struct {
		method Method
		noBulk string
		want   choice
	}{
		{Auto, "", choice{Bulk, "the server supports it"}}, {Auto, "none", choice{Rows, "none"}},
		{Rows, "", choice{Rows, "method is insert"}}, {Bulk, "", choice{Bulk, "method is bulk"}},
	} {
		c := Config{Method: test.method}
		if got, err := c.chooseMethod(serverSettings{noBulk: test.noBulk}); err != nil || got != test.want {
			t.Errorf("%s, %q: %+v, %v", test.method, test.noBulk, got, err)
		}
	}
	var m Method
	if err := m.UnmarshalText([]byte("load")); err == nil || !strings.Contains(err.Error(), "auto, insert, bulk") {
		t.Errorf("load: %v", err)
	}
}

// insertsBy writes a thousand rows, and fails the test unless they go in by method.
func (g *target) insertsBy(method Method) writer {
	g.t.Helper()
	w := g.open()
	before := g.insertStatements()
	if err := w.Write(g.t.Context(), span(w, 0, 1000)); err != nil {
		g.t.Fatal(err)
	}
	// With arrays it is one statement for the rows and one for their range.
	if got := g.insertStatements() - before; w.plan.method != method || (got == 2) != (method == Bulk) {
		g.t.Errorf("the plan says %v, and the server ran %d INSERTs; want %v", w.plan.method, got, method)
	}
	g.once(1000)
	return w
}

// insertStatements is how many INSERTs the server has run.
func (g *target) insertStatements() (n int) {
	g.t.Helper()
	_, _ = fmt.Sscan(g.text("SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Com_insert'")[0], &n)
	return n
}

// TestServerWithoutRoomForStatements inserts as text where nothing can be prepared.
func TestServerWithoutRoomForStatements(t *testing.T) {
	for _, method := range []Method{Rows, Bulk} {
		g := newTarget(t, named(20)...)
		g.config.Method = method
		w := g.open()
		g.exec("SET GLOBAL max_prepared_stmt_count = 0")
		err := w.Write(t.Context(), span(w, 0, 1000))
		g.exec("SET GLOBAL max_prepared_stmt_count = DEFAULT")
		if err != nil {
			t.Fatal(err)
		}
		g.once(1000)
	}
}

// TestSessionsAreUsedAgain writes one batch after the other: one session serves them all.
func TestSessionsAreUsedAgain(t *testing.T) {
	g := newTarget(t, named(20)...)
	w := g.open()
	var first *session
	for i := range 4 {
		if err := w.Write(t.Context(), span(w, uint64(10*i), 10)); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		idle := w.sessions
		w.mu.Unlock()
		if len(idle) != 1 || first != nil && idle[0] != first {
			t.Fatalf("after batch %d: %d idle sessions", i+1, len(idle))
		}
		first = idle[0]
	}
	g.once(40)
}
