package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestRejectedRowsSayWhy writes a row with each fault between two good ones, straight
// and through the staging table.
func TestRejectedRowsSayWhy(t *testing.T) {
	const create = `CREATE TABLE parents (l bigint PRIMARY KEY); INSERT INTO parents SELECT generate_series(0, 1000);
		CREATE TABLE events (b boolean, i integer, l bigint PRIMARY KEY REFERENCES parents, f float8, s varchar(10) UNIQUE, t timestamptz, j jsonb,
			CONSTRAINT unlucky CHECK (l <> 13))`
	good := []any{int64(1), int64(1), int64(1), 1.5, nil, int64(1_000_000), "{}"}
	tests := []struct {
		name   string
		column int
		value  any
		want   []string // in the error
	}{
		{"too long", 4, "eleven char", []string{`column "s"`, "value too long for type character varying(10)", "'eleven char'"}},
		{"NUL", 4, "a\x00b", []string{`column "s"`, `\u0000, which PostgreSQL cannot store`, `'a\u0000b'`}},
		{"no UTF-8", 4, "a\xff", []string{`column "s"`, "invalid byte sequence"}},
		{"NUL in JSON", 6, `{"a":"\u0000"}`, []string{`column "j"`, "unsupported Unicode escape sequence", `'{"a":"\u0000"}'`}},
		{"NUL between JSON", 6, "{\x00}", []string{`column "j"`, `\u0000, which PostgreSQL cannot store`, `'{\u0000}'`}},
		{"not JSON", 6, "{", []string{`column "j"`, "invalid input syntax for type json", "'{'"}},
		{"out of range", 1, int64(1 << 40), []string{`column "i"`, "out of range", "1099511627776"}},
		{"null", 2, nil, []string{`column "l"`, "null value", "NULL"}},
		{"check constraint", 2, int64(13), []string{`constraint "unlucky"`}},
		{"foreign key", 2, int64(100_000), []string{`foreign key constraint "events_l_fkey"`, `(l)=(100000)`}},
		{"duplicate", 4, "same", []string{"duplicate key", `(s)=(same)`}},
		{"no such year", 5, int64(253402300800000000), []string{`column "t"`, "the year is outside of 1 to 9999"}},
		{"long value", 4, strings.Repeat("☾x", 1000), []string{"☾x☾x", "… (4000 bytes)"}},
	}
	for _, mode := range []sqlsink.Mode{sqlsink.Insert, sqlsink.Upsert} {
		t.Run(string(mode), func(t *testing.T) {
			g := newPlace(t, every()[:7]...)
			g.config.Mode = mode
			g.text(create)
			w := g.open()
			all := sinktest.NewOutputBuilder(w.sink.columns)
			id := int64(100)
			next := func() []any {
				id++
				row := slices.Clone(good)
				row[2] = id
				return row
			}
			first := next()
			first[4] = "same"
			all.Add(first...)
			for _, test := range tests {
				row := next()
				row[test.column] = test.value
				all.Add(row...)
				all.Add(next()...)
			}
			rejected := g.rejected(w, all.Output(0))
			if len(rejected) != len(tests) {
				t.Fatalf("%d rows rejected, want %d: %v", len(rejected), len(tests), rejected)
			}
			for i, test := range tests {
				if rejected[i].Row != 2*i+1 {
					t.Fatalf("row %d is rejected, want row %d (%s): %v", rejected[i].Row, 2*i+1, test.name, rejected)
				}
				if fits := strings.Contains("check constraint, foreign key, duplicate", test.name); (rejected[i].Stage == sink.StageColumn) == fits {
					t.Errorf("%s: the stage is %q", test.name, rejected[i].Stage)
				}
				for _, want := range test.want {
					if message := rejected[i].Err.Error(); !strings.Contains(message, want) {
						t.Errorf("%s: %s\nwant %q", test.name, message, want)
					}
				}
			}
			if written := g.text("SELECT * FROM events"); len(written) != 0 {
				t.Errorf("the table has %v", written)
			}
		})
	}
}

// TestTriggerRejects takes an exception of a trigger for the fault of its row.
func TestTriggerRejects(t *testing.T) {
	g := newPlace(t, named(20)...)
	g.text(`CREATE TABLE events (id bigint, name text);
		CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''id % is odd'', NEW.id; END';
		CREATE TRIGGER odd BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.id % 2 = 1) EXECUTE FUNCTION odd()`)
	w := g.open()
	r := sinktest.NewOutputBuilder(w.sink.columns)
	for i := range int64(5) {
		r.Add(i, "x")
	}
	rejected := g.rejected(w, r.Output(0))
	if len(rejected) != 2 || rejected[0].Row != 1 || rejected[1].Row != 3 || !strings.Contains(rejected[1].Err.Error(), "id 3 is odd") {
		t.Errorf("rejected %v", rejected)
	}
}

// TestDeferredConstraint is checked only when the transaction commits.
func TestDeferredConstraint(t *testing.T) {
	g := newPlace(t, named(20)...)
	g.text("CREATE TABLE events (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, name text); INSERT INTO events VALUES (2, 'there')")
	w := g.open()
	r := sinktest.NewOutputBuilder(w.sink.columns)
	for i := range int64(5) {
		r.Add(i, "x")
	}
	if rejected := g.rejected(w, r.Output(0)); len(rejected) != 1 || rejected[0].Row != 2 {
		t.Errorf("rejected %v", rejected)
	}
}

// TestBisectionIsBounded counts the tries that bad rows among many cost.
func TestBisectionIsBounded(t *testing.T) {
	const rows = 4096
	tests := []struct {
		name     string
		table    string
		bad      func(row int) bool
		maxTries int
	}{
		{"one that the server names", "CREATE TABLE events (id bigint, name varchar(20))", func(row int) bool { return row == 1234 }, 5},
		{"one that it does not", "CREATE TABLE names (name text PRIMARY KEY); INSERT INTO names VALUES ('ok'); " +
			"CREATE TABLE events (id bigint, name text REFERENCES names)", func(row int) bool { return row == 1234 }, 4 * 12},
		{"all", "CREATE TABLE events (id bigint, name varchar(20))", func(int) bool { return true }, rows + 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := newPlace(t, named(20)...)
			g.text(test.table)
			g.text("CREATE SEQUENCE tries; CREATE FUNCTION try() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS 'BEGIN PERFORM nextval(''tries''); RETURN NULL; END'; " +
				"CREATE TRIGGER try BEFORE INSERT ON events EXECUTE FUNCTION try()")
			w := g.open()
			r := sinktest.NewOutputBuilder(w.sink.columns)
			want := 0
			for i := range rows {
				name := "ok"
				if test.bad(i) {
					name = strings.Repeat("x", 21)
					want++
				}
				r.Add(int64(i), name)
			}
			if rejected := g.rejected(w, r.Output(0)); len(rejected) != want {
				t.Fatalf("%d rows rejected, want %d", len(rejected), want)
			}
			var tries int
			_, _ = fmt.Sscan(g.text("SELECT last_value FROM tries")[0], &tries)
			if tries > test.maxTries || tries < 2 {
				t.Errorf("%d tries, want %d at most", tries, test.maxTries)
			}
		})
	}
}

// TestFencedWriterIsNotBlamed: rows that a fenced writer brings are not rejected.
func TestFencedWriterIsNotBlamed(t *testing.T) {
	g := newPlace(t, named(20)...)
	old := g.open()
	g.open()
	r := sinktest.NewOutputBuilder(old.sink.columns)
	r.Add(int64(1), strings.Repeat("x", 21))
	if err := old.Write(t.Context(), r.Output(0)); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("writing returned %v, want ErrFenced", err)
	}
}

func TestLineOfAnError(t *testing.T) {
	for where, want := range map[string]int{
		`COPY events, line 7, column a: "x"`:         6,
		`COPY "t, line 1", line 2, column b`:         1,
		"SQL statement\nCOPY events, line 9":         8,
		"COPY events, line 99":                       -1,
		"COPY events, line 0":                        -1,
		"COPY events, Zeile 7":                       -1,
		"PL/pgSQL function f() line 4 at assignment": -1,
	} {
		if got := blameRow(&pgconn.PgError{Where: where}, 10); got != want {
			t.Errorf("%q blames row %d, want %d", where, got, want)
		}
	}
}
