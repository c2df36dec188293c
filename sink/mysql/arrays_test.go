package mysql

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
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
		t.Errorf("landed %v", got)
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
	for i, statement := range change {
		if err := w.Write(t.Context(), span(w, uint64(i*rows), rows)); err != nil {
			t.Fatal(err)
		}
		g.exec(statement)
	}
	if err := w.Write(t.Context(), span(w, uint64(len(change)*rows), rows)); err != nil {
		t.Fatal(err)
	}
	if w.inserts {
		t.Error("arrays were given up")
	}
	if got := g.text("SELECT COUNT(DISTINCT id) FROM events UNION ALL SELECT COUNT(DISTINCT id) FROM gone"); got[0] != "250" || got[1] != "250" {
		t.Errorf("there are %v", got)
	}
}

// TestArraysOfHugeRows writes more than one packet of arrays takes, and a row
// that no such packet takes.
func TestArraysOfHugeRows(t *testing.T) {
	columns := named(20)
	columns[1].SQL = "LONGTEXT"
	g := newTarget(t, columns...)
	g.exec("SET GLOBAL max_allowed_packet = 64 << 20")
	defer g.exec("SET GLOBAL max_allowed_packet = DEFAULT")
	w := g.open()
	if w.plan.way != byArrays {
		t.Fatalf("rows go in by %v", w.plan.way)
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

// TestArraysAreForbidden gives arrays up where the server, or what stands before
// it, says that it does not know them. A trigger says so, the first time.
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
	if !w.inserts {
		t.Error("arrays are tried for ever")
	}
	g.once(200)
}

// TestMistrustedArrays gives arrays up that are refused for rows the server takes
// as text: a trigger refuses every row once.
func TestMistrustedArrays(t *testing.T) {
	g := newTarget(t, named(20)...)
	w := g.open()
	g.exec("CREATE TABLE tried (id BIGINT) ENGINE=MyISAM")
	g.exec(`CREATE TRIGGER twice BEFORE INSERT ON events FOR EACH ROW
		IF NOT EXISTS (SELECT * FROM tried WHERE id = NEW.id) THEN
			INSERT INTO tried VALUES (NEW.id);
			SIGNAL SQLSTATE '45000';
		END IF`)
	for i := range uint64(mistrust) {
		passing(t, w.Write(t.Context(), span(w, i*100, 1)))
	}
	if !w.inserts {
		t.Error("arrays are tried for ever")
	}
}

// TestServersWithoutArrays writes through an encrypted connection, of which only
// the driver knows what is sent, and to a server that logs statements.
func TestServersWithoutArrays(t *testing.T) {
	certificate, key := testserver.WriteCertificate(t, t.TempDir())
	server := testserver.MariaDB(t, "--ssl-cert="+certificate, "--ssl-key="+key, "--log-bin", "--server-id=1")

	encrypted := on(t, server)
	encrypted.config.Columns, encrypted.config.Create = named(20), true
	encrypted.config.Params = map[string]string{"tls": "skip-verify"}
	encrypted.goesIn(byLoad)
	encrypted.config.Method = Bulk
	encrypted.refusesOpen("not through tls", "remove method")

	logged := on(t, server)
	logged.config.Columns, logged.config.Create = named(20), true
	w := logged.goesIn(byArrays)
	w.forgetAll()
	logged.exec("SET GLOBAL binlog_format = 'STATEMENT'")
	if err := w.Write(t.Context(), span(w, 1000, 500)); err != nil {
		t.Fatal(err)
	}
	if !w.inserts {
		t.Error("arrays are tried for ever")
	}
	logged.once(1500)
	logged.config.Method = Bulk
	logged.refusesOpen("binlog_format is STATEMENT", "remove method")
}

// goesIn writes a thousand rows, and fails the test unless they go in by way.
func (g *target) goesIn(by way) writer {
	g.t.Helper()
	w := g.open()
	if w.plan.way != by {
		g.t.Errorf("rows go in by %v, want %v", w.plan.way, by)
	}
	if err := w.Write(g.t.Context(), span(w, 0, 1000)); err != nil {
		g.t.Fatal(err)
	}
	g.once(1000)
	return w
}
