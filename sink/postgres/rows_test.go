package postgres

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

func (g *place) write(w hand, out *event.Output) {
	g.t.Helper()
	if err := w.Write(g.t.Context(), out); err != nil {
		g.t.Fatal(err)
	}
}

// rejected writes out and returns the rows that are rejected.
func (g *place) rejected(w hand, out *event.Output) []sink.RowError {
	g.t.Helper()
	err := w.Write(g.t.Context(), out)
	rejected, ok := errors.AsType[*sink.RowErrors](err)
	if !ok {
		g.t.Fatalf("writing returned %v, want row errors", err)
	}
	return rejected.Rows
}

func column(name string, t event.Type) sqlsink.Column {
	return sqlsink.Column{Name: name, Type: sqlsink.Type(t)}
}

func every() []sqlsink.Column {
	return []sqlsink.Column{
		column("b", event.Bool), column("i", event.Int32), column("l", event.Int64), column("f", event.Float64),
		column("s", event.String), column("t", event.Timestamp), column("j", event.JSON), column("d", event.Decimal),
	}
}

var everyRow = [][]any{
	{nil, nil, nil, nil, nil, nil, nil, nil},
	{int64(1), int64(math.MaxInt32), int64(math.MaxInt64), 0.1, "☾\t\n\r\\N\\", int64(1700000000123456), `{"a":[1,"it's\n"]}`,
		"12345678901234567890123456789.123456789"},
	{int64(0), int64(math.MinInt32), int64(math.MinInt64), -1.7976931348623157e308, "", int64(-1), `"x"`, "-1e-9"},
	{int64(0), int64(0), int64(0), 5e-324, `'"`, int64(-62135596800000000), "null", "1.50E3"},
	{int64(0), int64(0), int64(0), math.Copysign(0, -1), `\.`, int64(253402300799999999), "[]", "0"},
}

// TestEveryTypeIsExact writes the same in either format: a numeric has no
// binary form here, and without it all others have one.
func TestEveryTypeIsExact(t *testing.T) {
	want := []string{
		"NULL|NULL|NULL|NULL|NULL|NULL|NULL",
		"t|2147483647|9223372036854775807|0.1|☾\t\n\r\\N\\|2023-11-14 22:13:20.123456+00|" + `{"a": [1, "it's\n"]}`,
		`f|-2147483648|-9223372036854775808|-1.7976931348623157e+308||1969-12-31 23:59:59.999999+00|"x"`,
		`f|0|0|5e-324|'"|0001-01-01 00:00:00+00|null`,
		`f|0|0|-0|\.|9999-12-31 23:59:59.999999+00|[]`,
	}
	decimals := []string{"NULL", "12345678901234567890123456789.123456789", "-0.000000001", "1500", "0"}
	for _, binary := range []bool{true, false} {
		columns := every()
		if binary {
			columns = columns[:7]
		}
		g := newPlace(t, columns...)
		w := g.open()
		r := sinktest.NewOutputBuilder(w.sink.columns)
		for _, row := range everyRow {
			r.Add(row[:len(columns)]...)
		}
		g.write(w, r.Output(0))
		for i, got := range g.text("SELECT * FROM events") {
			line := want[i]
			if !binary {
				line += "|" + decimals[i]
			}
			if got != line {
				t.Errorf("binary %v: the table has\n%s\nwant\n%s", binary, got, line)
			}
		}
		if plan := planOf(t, w.sink); plan.format.binary != binary {
			t.Errorf("the format is binary: %v, want %v", plan.format.binary, binary)
		}
	}
}

func planOf(t testing.TB, s *Sink) (p *plan) {
	t.Helper()
	err := s.Connect(t.Context(), func(c sqlsink.Conn) (err error) {
		p, err = s.prepare(t.Context(), c.(*conn))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOtherTypes fills columns that only text fits.
func TestOtherTypes(t *testing.T) {
	g := newPlace(t, column("u", event.String), column("ip", event.String), column("mood", event.String), column("day", event.String),
		column("n", event.Int64), column("small", event.Int64), column("real", event.Float64), column("flag", event.Bool), column("at", event.Timestamp),
		column("cents", event.Decimal), column("even", event.Int32))
	g.text(`CREATE TYPE mood AS ENUM ('fine', 'sad'); CREATE DOMAIN even AS int CHECK (VALUE % 2 = 0);
		CREATE TABLE events (pk bigint GENERATED ALWAYS AS IDENTITY, u uuid, ip inet, mood mood, day date, n numeric, small smallint, "real" real,
			flag text, at text, cents numeric(5,2), even even, note text DEFAULT 'none')`)
	w := g.open()
	r := sinktest.NewOutputBuilder(w.sink.columns)
	r.Add("7D444840-9DC0-11D1-B245-5FFDCE74FAD2", "10.0.0.1", "fine", "2024-02-29", int64(math.MaxInt64), int64(-5), 1.5, int64(1), int64(1), "1.250", int64(4))
	r.Add("bad", "10.0.0.256", "glad", "2023-02-29", int64(0), int64(1<<15), 1e300, int64(1), int64(1), "1.25", int64(3))
	rejected := g.rejected(w, r.Output(0))
	if len(rejected) != 1 || rejected[0].Row != 1 || !strings.Contains(rejected[0].Err.Error(), `column "u": invalid input syntax for type uuid: "bad"`) {
		t.Errorf("rejected %v", rejected)
	}
	one := sinktest.NewOutputBuilder(w.sink.columns)
	one.Add("7D444840-9DC0-11D1-B245-5FFDCE74FAD2", "10.0.0.1", "fine", "2024-02-29", int64(math.MaxInt64), int64(-5), 1.5, int64(1), int64(1), "1.250", int64(4))
	g.write(w, one.Output(0))
	want := "1|7d444840-9dc0-11d1-b245-5ffdce74fad2|10.0.0.1|fine|2024-02-29|9223372036854775807|-5|1.5|true|1970-01-01 00:00:00.000001+00|1.25|4|none"
	// The sequence has counted what was rolled back.
	if got := g.text("SELECT 1, u, ip, mood, day, n, small, real, flag, at, cents, even, note FROM events"); len(got) != 1 || got[0] != want {
		t.Errorf("the table has\n%s\nwant\n%s", got, want)
	}
}

func TestTableIsCreatedAsDeclared(t *testing.T) {
	columns := every()
	columns[2].Required = true
	columns[4].SQL = "VARCHAR(10)"
	g := newPlace(t, columns...)
	g.config.PrimaryKey, g.config.Indexes = []string{"l"}, []string{"i, s", "t"}
	g.open()
	want := []string{
		"b|boolean|f", "i|integer|f", "l|bigint|t", "f|double precision|f", "s|character varying(10)|f",
		"t|timestamp with time zone|f", "j|jsonb|f", "d|numeric|f",
	}
	got := g.text("SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attrelid = 'events'::regclass AND attnum > 0 ORDER BY attnum")
	if !slices.Equal(got, want) {
		t.Errorf("created\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	keys := g.text("SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'events' ORDER BY 1")
	for i, end := range []string{"events_i_s ON", "events_t ON", "USING btree (l)"} {
		if len(keys) != 3 || !strings.Contains(strings.ReplaceAll(keys[i], `"`, ""), strings.Replace(end, " ON", " ON", 1)) {
			t.Errorf("indexes %q, want %q in number %d", keys, end, i)
		}
	}
}

// upserts has a key, an ordinary column, and one more.
func (g *place) upserts(mode sqlsink.Mode) {
	g.config.Mode, g.config.PrimaryKey = mode, []string{"id"}
}

func TestLastWriteOfAKeyWins(t *testing.T) {
	for _, width := range []int{1, 100} { // the rows of a page, and of several
		g := newPlace(t, named(1000)...)
		g.upserts(sqlsink.Upsert)
		w := g.open()
		pad := strings.Repeat("x", 5*width)
		r := sinktest.NewOutputBuilder(w.sink.columns)
		for i := range int64(1000) {
			r.Add(i%7, pad[:1+int(i)%len(pad)])
			r.Add(i%7, "last but one")
			r.Add(100+i, "once")
			r.Add(i%7, "last")
		}
		g.write(w, r.Output(0))
		next := sinktest.NewOutputBuilder(w.sink.columns)
		next.Add(int64(3), "first again")
		next.Add(int64(3), nil)
		g.write(w, next.Output(10_000))
		got := g.text("SELECT name, count(*) FROM events GROUP BY 1 ORDER BY 1")
		if want := []string{"last|6", "once|1000", "NULL|1"}; !slices.Equal(got, want) {
			t.Errorf("the table has %v, want %v", got, want)
		}
	}
}

func TestUpsertReplacesWhatIsNamed(t *testing.T) {
	g := newPlace(t, column("id", event.Int64), column("seen", event.String), column("kept", event.String))
	g.upserts(sqlsink.Upsert)
	g.config.Update = []string{"seen"}
	w := g.open()
	for i, text := range []string{"one", "two"} {
		r := sinktest.NewOutputBuilder(w.sink.columns)
		r.Add(int64(1), text, text)
		g.write(w, r.Output(uint64(i)))
	}
	if got := g.text("SELECT * FROM events"); !slices.Equal(got, []string{"1|two|one"}) {
		t.Errorf("the table has %v", got)
	}
}

// TestNullIsNoKey: rows without a key are all kept.
func TestNullIsNoKey(t *testing.T) {
	g := newPlace(t, column("key", event.String), column("name", event.String))
	g.config.Mode = sqlsink.Upsert
	g.text("CREATE TABLE events (key text UNIQUE, name text)")
	w := g.open()
	r := sinktest.NewOutputBuilder(w.sink.columns)
	for _, row := range [][]any{{nil, "a"}, {"k", "b"}, {nil, "c"}, {"k", "d"}} {
		r.Add(row...)
	}
	g.write(w, r.Output(0))
	if got := g.text("SELECT * FROM events ORDER BY name"); !slices.Equal(got, []string{"NULL|a", "NULL|c", "k|d"}) {
		t.Errorf("the table has %v", got)
	}
}
