package mysql

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// rows builds outputs by hand.
type rows struct {
	*sinktest.OutputBuilder
	out *event.Output
}

func newRows(w writer) *rows {
	r := sinktest.NewOutputBuilder(w.partition.sink.columns)
	return &rows{r, r.Output(0)}
}

func (r *rows) write(t *testing.T, w writer) {
	t.Helper()
	if err := w.Write(t.Context(), r.out); err != nil {
		t.Fatal(err)
	}
}

func every() []Column {
	return []Column{
		{Name: "b", Type: Type(event.Bool)},
		{Name: "i", Type: Type(event.Int32)},
		{Name: "l", Type: Type(event.Int64)},
		{Name: "f", Type: Type(event.Float64)},
		{Name: "d", Type: Type(event.Decimal)},
		{Name: "s", Type: Type(event.String), SQL: "VARCHAR(10)"},
		{Name: "t", Type: Type(event.Timestamp)},
		{Name: "j", Type: Type(event.JSON)},
	}
}

func TestEveryTypeIsExact(t *testing.T) {
	g := newTarget(t, every()...)
	w := g.open()
	r := newRows(w)
	r.Add(nil, nil, nil, nil, nil, nil, nil, nil)
	r.Add(int64(1), int64(math.MaxInt32), int64(math.MaxInt64), 0.1, "12345678901234567890123456789.123456789", "☾", int64(1700000000123456), `{"a":[1,"it's"]}`)
	r.Add(int64(0), int64(math.MinInt32), int64(math.MinInt64), -1.7976931348623157e308, "-1e-9", "", int64(-1), `"x"`)
	r.Add(int64(0), int64(0), int64(0), 5e-324, "1.5E3", "'\\", int64(-62135596800000000), "null")
	r.write(t, w)
	want := []string{
		"NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL",
		`1|2147483647|9223372036854775807|0.1|12345678901234567890123456789.123456789|☾|2023-11-14 22:13:20.123456|{"a":[1,"it's"]}`,
		`0|-2147483648|-9223372036854775808|-1.7976931348623157e+308|-0.000000001||1969-12-31 23:59:59.999999|"x"`,
		`0|0|0|5e-324|1500.000000000|'\|0001-01-01 00:00:00.000000|null`,
	}
	if got := g.text("SELECT * FROM events"); !slices.Equal(got, want) {
		t.Errorf("the table has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTableIsCreatedAsDeclared(t *testing.T) {
	columns := every()
	columns[2].Required = true
	g := newTarget(t, columns...)
	g.config.PrimaryKey, g.config.Indexes = []string{"l"}, []string{"i, s", "t"}
	g.open()
	want := []string{
		"b|tinyint(1)|YES|", "i|int(11)|YES|MUL", "l|bigint(20)|NO|PRI", "f|double|YES|", "d|decimal(38,9)|YES|",
		"s|varchar(10)|YES|", "t|datetime(6)|YES|MUL", "j|longtext|YES|",
	}
	got := g.text("SELECT column_name, column_type, is_nullable, column_key FROM information_schema.columns " +
		"WHERE table_schema = DATABASE() AND table_name = 'events' ORDER BY ordinal_position")
	if !slices.Equal(got, want) {
		t.Errorf("created\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
