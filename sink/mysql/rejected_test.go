package mysql

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestRejectedRowsSayWhy writes a row with each fault between two good ones.
func TestRejectedRowsSayWhy(t *testing.T) {
	const table = `CREATE TABLE events (b TINYINT, i SMALLINT, l BIGINT NOT NULL, f FLOAT, d DECIMAL(5,2), s VARCHAR(10) CHARACTER SET latin1,
		t TIMESTAMP NULL, j JSON, kind ENUM('a','b'), UNIQUE KEY only_once (l), CHECK (l <> 13), CONSTRAINT i CHECK (i <> 14))`
	columns := append(every(), Column{Name: "kind", Type: Type(event.String)})
	good := []any{int64(1), int64(1), int64(1), 1.5, "1.5", "text", int64(1_000_000), "{}", "a"}
	tests := []struct {
		name   string
		column int
		value  any
		want   []string // in the error
	}{
		{"too long", 5, "eleven char", []string{`column "s"`, "Data too long", "'eleven char'"}},
		{"not in the charset", 5, "☾", []string{`column "s"`, "Incorrect string value", "'☾'"}},
		{"out of range", 1, int64(40000), []string{`column "i"`, "Out of range", "40000"}},
		{"null", 2, nil, []string{`column "l"`, "cannot be null", "NULL"}},
		{"duplicate", 2, int64(1), []string{"Duplicate entry '1' for key 'only_once'"}},
		{"check constraint", 2, int64(13), []string{"CONSTRAINT"}},
		{"check constraint with the name of a column", 1, int64(14), []string{`column "i"`, "CONSTRAINT `i` failed", "14"}},
		{"not JSON", 7, "{", []string{`column "j"`, "CONSTRAINT `events.j` failed", "'{'"}},
		{"decimal too large", 4, "1234.5", []string{`column "d"`, "Out of range", "'1234.5'"}},
		{"decimal too fine", 4, "1.001", []string{`column "d"`, "3 digits after the point, and the column keeps 2", "'1.001'"}},
		{"float too large", 3, 1e300, []string{`column "f"`, "Out of range", "1e+300"}},
		{"before TIMESTAMP", 6, int64(-1_000_000), []string{`column "t"`, "Incorrect datetime value", "'1969-12-31 23:59:59"}},
		{"no such year", 6, int64(253402300800000000), []string{`column "t"`, "the year is outside of 1 to 9999"}},
		{"not of the ENUM", 8, "c", []string{`column "kind"`, "truncated", "'c'"}},
		{"long value", 5, strings.Repeat("☾x", 1000), []string{"☾x☾x", "… (4000 bytes)"}},
	}
	g := newTarget(t, columns...)
	g.exec(table)
	w := g.open()
	all := newRows(w)
	id := int64(100)
	next := func() []any {
		id++
		row := slices.Clone(good)
		row[2] = id
		return row
	}
	first := next()
	first[2] = int64(1)
	all.Add(first...)
	for _, test := range tests {
		row := next()
		row[test.column] = test.value
		all.Add(row...)
		all.Add(next()...)
	}
	err := w.Write(t.Context(), all.out)
	rejected, ok := errors.AsType[*sink.RowErrors](err)
	if !ok {
		t.Fatalf("writing returned %v", err)
	}
	if len(rejected.Rows) != len(tests) {
		t.Fatalf("%d rows rejected, want %d: %v", len(rejected.Rows), len(tests), rejected.Rows)
	}
	for i, test := range tests {
		if rejected.Rows[i].Row != 2*i+1 {
			t.Fatalf("row %d is rejected, want row %d (%s)", rejected.Rows[i].Row, 2*i+1, test.name)
		}
		if fits := test.name == "duplicate" || strings.HasPrefix(test.name, "check constraint"); (rejected.Rows[i].Stage == sink.StageColumn) == fits {
			t.Errorf("%s: the stage is %q", test.name, rejected.Rows[i].Stage)
		}
		for _, want := range test.want {
			if message := rejected.Rows[i].Err.Error(); !strings.Contains(message, want) || strings.Contains(message, "at row") {
				t.Errorf("%s: %s\nwant %q", test.name, message, want)
			}
		}
	}
	if written := g.text("SELECT * FROM events"); len(written) != 0 {
		t.Errorf("the table has %v", written)
	}
}

// TestNoTransactionToFindRejected has a server that begins no second transaction: the rejected row
// is not looked for, and no row is left in the table.
func TestNoTransactionToFindRejected(t *testing.T) {
	g := newTarget(t, named(20)...)
	var begun atomic.Int32
	p := sinktest.NewProxy(t, g.config.Address, func() sinktest.Wire {
		return sinktest.Wire{
			Commits: func(packet []byte) bool {
				if at := bytes.Index(packet, []byte(startTransaction)); at >= 0 && begun.Add(1) == 2 {
					packet[at] = 'X' // a syntax error
				}
				return false
			},
			Answered: func([]byte) bool { return true },
		}
	})
	g.config.Address, g.config.Method = p.Addr().String(), Rows
	w := g.open()
	r := newRows(w)
	for i, name := range []string{"ok", strings.Repeat("x", 21), "ok"} {
		r.Add(int64(i), name)
	}
	begun.Store(0)
	sinktest.ExpectClass(t, w.Write(t.Context(), r.out), sinktest.Permanent)
	if n := begun.Load(); n != 2 {
		t.Errorf("%d transactions, want 2", n)
	}
	if left := g.text("SELECT id FROM events"); len(left) > 0 {
		t.Errorf("the table has the rows %v of a batch that failed", left)
	}
}

// TestBisectionIsBounded counts the statements that one bad row among many costs.
func TestBisectionIsBounded(t *testing.T) {
	g := newTarget(t, named(20)...)
	w := g.open()
	r := newRows(w)
	for i := range 4096 {
		r.Add(int64(i), "ok")
	}
	bad := newRows(w)
	for i := range 4096 {
		name := "ok"
		if i == 1234 {
			name = strings.Repeat("x", 21)
		}
		bad.Add(int64(i), name)
	}
	before := g.insertStatements()
	rejected, ok := errors.AsType[*sink.RowErrors](w.Write(t.Context(), bad.out))
	if !ok || len(rejected.Rows) != 1 || rejected.Rows[0].Row != 1234 {
		t.Fatalf("rejected %v", rejected)
	}
	if n := g.insertStatements() - before; n > 4096/maxPrepared+2*12+2 {
		t.Errorf("%d INSERTs to find one row among 4096", n)
	}
	r.write(t, w)
}

// TestRowLargerThanAPacket sends what the server would hang up on, between rows
// that together need several packets.
func TestRowLargerThanAPacket(t *testing.T) {
	g := newTarget(t,
		Column{Name: "id", Type: Type(event.Int64)},
		Column{Name: "text", Type: Type(event.String), SQL: "LONGTEXT"})
	g.config.Method = Rows
	w := g.open()
	w.plan.packet = 64 << 10
	r := newRows(w)
	for i := range 50 {
		r.Add(int64(i), strings.Repeat("x", 7000))
	}
	r.Add(int64(50), strings.Repeat("y", 65<<10))
	r.Add(int64(51), strings.Repeat("z", 60<<10))
	r.out.Range.Fingerprints = make([]uint32, 52)
	err := w.Write(t.Context(), r.out)
	rejected, ok := errors.AsType[*sink.RowErrors](err)
	if !ok || len(rejected.Rows) != 1 || rejected.Rows[0].Row != 50 || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Fatalf("rejected %v", err)
	}
	rest := newRows(w)
	for i := range 50 {
		rest.Add(int64(i), strings.Repeat("x", 7000))
	}
	rest.Add(int64(51), strings.Repeat("z", 60<<10))
	rest.out.From[50], rest.out.Range.Count, rest.out.Range.Fingerprints = 51, 52, make([]uint32, 52)
	rest.write(t, w)
	if got := g.text("SELECT COUNT(*), SUM(id), SUM(LENGTH(text)) FROM events"); got[0] != fmt.Sprintf("51|1276|%d", 50*7000+60<<10) {
		t.Errorf("the table has %v", got)
	}
}
