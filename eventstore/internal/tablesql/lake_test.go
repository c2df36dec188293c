//go:build linux && cgo

package tablesql

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
	"github.com/perigeedb/perigee/internal/testseed"
)

func connect(t *testing.T) *duckdb.Conn {
	db, err := duckdb.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := duckdb.Connect(db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		duck.Close(&db)
	})
	return c
}

// lakeTable returns a table with a column v, which the lake has as the given column.
func lakeTable(c manifest.Column, in manifest.LakeColumn, rest bool) *manifest.Table {
	c.ID, c.Name, in.ID = 2, "v", 2
	return &manifest.Table{
		Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{c}, Rest: rest}},
		Lake:    &manifest.Lake{Columns: []manifest.LakeColumn{in, {ID: manifest.RestID, Name: "_rest", Type: "string", JSON: true}}},
	}
}

// fit returns the value of v in the lake, as text or nil, and its _rest, for each of some rows in
// SQL.
func fit(t *testing.T, c *duckdb.Conn, table *manifest.Table, rows string) (fitted, rest []any) {
	t.Helper()
	hidden := HiddenColumns(table)
	if len(hidden) < 2 || !manifest.IsFitted(hidden[len(hidden)-1].ID) {
		t.Fatalf("got hidden columns %+v, want two or more, the last of them fitted", hidden)
	}
	value, last := hidden[len(hidden)-2], hidden[len(hidden)-1]
	if value.ID != table.Lake.Columns[0].FittedID() || last.ID != table.Lake.Columns[1].FittedID() || value.Of != "v" {
		t.Fatalf("got hidden columns %+v, want those of v and _rest at the end", hidden)
	}
	found, err := c.Run(fmt.Sprintf("SELECT CAST(%s AS VARCHAR), CAST(%s AS VARCHAR), typeof(%[1]s) FROM (%[3]s)", value.SQL, last.SQL, rows))
	if err != nil {
		t.Fatalf("%s: %v", value.SQL, err)
	}
	for _, row := range found {
		if row[2] != lakeSQLType(&table.Lake.Columns[0]) {
			t.Fatalf("got type %v, want %s", row[2], lakeSQLType(&table.Lake.Columns[0]))
		}
		fitted, rest = append(fitted, row[0]), append(rest, row[1])
	}
	return fitted, rest
}

// TestFitted has all pairs of types that a column can have in a table and in its lake, and some
// more: a column becomes wider, or a column of times.
func TestFitted(t *testing.T) {
	c := connect(t)
	long, double, text, boolean, source := manifest.LakeColumn{Type: "long"}, manifest.LakeColumn{Type: "double"}, manifest.LakeColumn{Type: "string"}, manifest.LakeColumn{Type: "boolean"}, manifest.LakeColumn{Type: "string", JSON: true}
	column := func(kind event.Type, unit event.Unit) manifest.Column { return manifest.Column{Type: kind, Unit: unit} }
	floats, documents, texts := column(event.Float64, 0), column(event.JSON, 0), column(event.String, 0)
	const misfit = "misfit"
	for _, test := range []struct {
		have   manifest.Column
		lake   manifest.LakeColumn
		values map[string]string // from SQL to text, or misfit
	}{
		{floats, long, map[string]string{"2.0": "2", "-3e0": "-3", "0.0": "0", "'-0.0'": misfit, "2.5": misfit, "1e300": misfit, "'NaN'": misfit, "'inf'": misfit, "'-inf'": misfit, "9223372036854775807": misfit, "'-9223372036854775808'": misfit, "9007199254740993": "9007199254740992"}},
		{floats, manifest.LakeColumn{Type: "int"}, map[string]string{"2.0": "2", "2147483648.0": misfit, "0.5": misfit}},
		{documents, long, map[string]string{"'2'": "2", "'2.0'": "2", "'-7'": "-7", "'0'": "0", "'-0'": misfit, "'-0.0'": misfit, "'2.5'": misfit, "'1e2'": misfit, "'9223372036854775807'": "9223372036854775807", "'9223372036854775808'": misfit, `'"2"'`: misfit, "'true'": misfit, "'[2]'": misfit, `'{"a":2}'`: misfit, `'""'`: misfit}},
		{documents, double, map[string]string{"'2'": "2.0", "'-0.0'": "-0.0", "'0.1'": "0.1", "'1.50'": "1.5", "'1e2'": "100.0", "'1e300'": "1e+300", "'1e999'": misfit, "'9007199254740991'": "9007199254740991.0", "'9007199254740993'": misfit, "'123456789012345000000'": misfit, "'0.12345678901234567890'": misfit, "'0.1234567890123456'": "0.1234567890123456", "'1e-400'": misfit, `'"1.5"'`: misfit, "'false'": misfit}},
		{documents, boolean, map[string]string{"'true'": "true", "'false'": "false", `'"true"'`: misfit, "'1'": misfit}},
		{documents, text, map[string]string{`'"a"'`: "a", `'""'`: "", `'"é\n\"\u0041"'`: "é\n\"A", "'1'": misfit, "'true'": misfit, `'["a"]'`: misfit, `'{"a":"b"}'`: misfit}},
		{texts, long, map[string]string{"'2'": "2", "'-2'": "-2", "'02'": misfit, "'+2'": misfit, "' 2'": misfit, "'2.0'": misfit, "'1e2'": misfit, "''": misfit, "'99999999999999999999'": misfit}},
		{texts, double, map[string]string{"'2.5'": "2.5", "'2'": misfit, "'2.50'": misfit, "'x'": misfit}},
		{texts, boolean, map[string]string{"'true'": "true", "'t'": misfit, "'TRUE'": misfit, "'1'": misfit}},
		{column(event.Int64, 0), double, map[string]string{"2": "2.0", "9007199254740992": "9007199254740992.0", "9007199254740993": misfit, "-9007199254740993": misfit}},
		{column(event.Int64, 0), manifest.LakeColumn{Type: "int"}, map[string]string{"2": "2", "2147483648": misfit}},
		{column(event.Int32, 0), long, map[string]string{"-2": "-2"}},
		{column(event.Timestamp, event.Seconds), long, map[string]string{"'2026-11-29 00:00:01'": "1795910401", "'2026-11-29 00:00:01.5'": misfit, "'1969-12-31 23:59:59'": "-1", "'1969-12-31 23:59:59.5'": misfit}},
		{column(event.Timestamp, event.Nanoseconds), long, map[string]string{"'1970-01-01 00:00:00.000001'": "1000", "'9999-01-01 00:00:00'": misfit}},
		{column(event.TimestampNS, event.Milliseconds), long, map[string]string{"'1970-01-01 00:00:00.001'": "1", "'1970-01-01 00:00:00.001000001'": misfit}},
		{column(event.TimestampNS, event.Nanoseconds), long, map[string]string{"'1969-12-31 23:59:59.999999999'": "-1"}},
		{column(event.Timestamp, event.TextOnly), long, map[string]string{"'2026-11-29 00:00:01'": misfit}},
		{column(event.Timestamp, event.Seconds), double, map[string]string{"'1970-01-01 00:00:02'": "2.0", "'1970-01-01 00:00:02.5'": misfit}},
		{column(event.Timestamp, 0), text, map[string]string{"'2026-11-29 00:00:01.5'": "2026-11-29T00:00:01.500000Z"}},
		{column(event.Timestamp, event.Milliseconds), text, map[string]string{"'1970-01-01 00:00:01'": "1000"}},
		{column(event.TimestampNS, 0), text, map[string]string{"'2026-11-29 00:00:01.000000005'": "2026-11-29T00:00:01.000000005Z"}},
		{column(event.Timestamp, 0), source, map[string]string{"'2026-11-29 00:00:01'": `"2026-11-29T00:00:01.000000Z"`}},
		{column(event.TimestampNS, 0), manifest.LakeColumn{Type: "timestamptz"}, map[string]string{"'2026-11-29 00:00:01.000005'": "2026-11-29 00:00:01.000005", "'2026-11-29 00:00:01.000005001'": misfit}},
		{column(event.Bytes, 0), long, map[string]string{`'\xFF'`: misfit}}, // no store has this
		{column(event.Bool, 0), manifest.LakeColumn{Type: "decimal(9,2)"}, map[string]string{"true": misfit}},
	} {
		for _, hasRest := range []bool{false, true} {
			table := lakeTable(test.have, test.lake, hasRest)
			for value, want := range test.values {
				row := fmt.Sprintf(`SELECT CAST(%s AS %s) AS v, CAST('{"w":1}' AS JSON) AS _rest`, value, test.have.SQLType())
				fitted, rest := fit(t, c, table, row)
				what := fmt.Sprintf("%s %s in %s", test.have.SQLType(), value, test.lake.Type)
				fields := map[string]json.RawMessage{}
				if text, ok := rest[0].(string); ok {
					if err := json.Unmarshal([]byte(text), &fields); err != nil {
						t.Errorf("%s: _rest %s: %v", what, text, err)
					}
				}
				isMisfit := want == misfit
				if isMisfit && fitted[0] != nil || !isMisfit && fitted[0] != want {
					t.Errorf("%s: %v, want %s", what, fitted[0], want)
				}
				if _, found := fields["v"]; found != isMisfit || (string(fields["w"]) == "1") != hasRest || len(fields) > 2 {
					t.Errorf("%s: _rest %v", what, rest[0])
				}
			}
			if fitted, rest := fit(t, c, table, fmt.Sprintf(`SELECT CAST(NULL AS %s) AS v, CAST(NULL AS JSON) AS _rest`, test.have.SQLType())); fitted[0] != nil || rest[0] != nil {
				t.Errorf("null: %v, %v", fitted[0], rest[0])
			}
		}
	}
	// A time that had nanoseconds keeps both columns.
	table := lakeTable(column(event.Timestamp, 0), manifest.LakeColumn{Type: "long"}, false)
	table.Lake.Columns = append(table.Lake.Columns, manifest.LakeColumn{ID: manifest.MicrosID(2), Name: "t", Type: "timestamptz"})
	hidden := HiddenColumns(table)
	if len(hidden) != 3 || hidden[0].ID != table.Lake.Columns[0].FittedID() || hidden[0].Of != "" || hidden[1].Of != "v" {
		t.Fatalf("got hidden columns %+v, want 3, the second of them of v", hidden)
	}
	found, err := c.Run("SELECT CAST(" + hidden[0].SQL + " AS VARCHAR), CAST(" + hidden[1].SQL + " AS VARCHAR), " + hidden[2].SQL + " FROM (SELECT TIMESTAMP '1970-01-01 00:00:00.000001' AS v)")
	if err != nil || found[0][0] != "1000" || found[0][1] != "1970-01-01 00:00:00.000001" || found[0][2] != nil {
		t.Errorf("got %v and error %v, want 1000, the time, and no _rest", found, err)
	}
	// _rest has a field with the name already.
	fitted, rest := fit(t, c, lakeTable(floats, long, true), `SELECT 0.5 AS v, CAST('{"v":1}' AS JSON) AS _rest`)
	if fitted[0] != nil || rest[0] != `{"v_":0.5,"v":1}` {
		t.Errorf("got v %v and _rest %v, want no v, and both values in _rest", fitted[0], rest[0])
	}
}

// randomJSON returns a JSON text.
func randomJSON(r *rand.Rand) string {
	digits := func(n int) string {
		var b strings.Builder
		for range 1 + r.IntN(n) {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
		return b.String()
	}
	switch r.IntN(8) {
	case 0:
		text, _ := json.Marshal(string([]rune{rune(r.IntN(0xd7ff)), 'x', rune(r.IntN(128))}))
		return string(text)
	case 1:
		return []string{"true", "false", "[]", "{}", `"true"`, `"1"`, `[1,null]`, `{"a":"b"}`}[r.IntN(8)]
	case 2:
		return strconv.FormatFloat(math.Float64frombits(r.Uint64()&^(1<<62)), 'g', -1, 64)
	case 3:
		return strconv.FormatInt(int64(r.Uint64())>>r.IntN(64), 10)
	}
	number := strings.TrimLeft(digits(20), "0")
	if number == "" {
		number = "0"
	}
	if r.IntN(2) == 0 {
		number = "-" + number
	}
	if r.IntN(2) == 0 {
		number += "." + []string{"0", "00", digits(20)}[r.IntN(3)]
	}
	if r.IntN(3) == 0 {
		number += "e" + []string{"", "+", "-"}[r.IntN(3)] + digits(3)
	}
	return number
}

var plainInteger = regexp.MustCompile(`^(0|-?[1-9]\d*)(\.0+)?$`)

// TestFittedRandom compares what fits of random JSON texts with exact arithmetic. A value
// that does not fit must be in _rest unchanged.
func TestFittedRandom(t *testing.T) {
	r := testseed.New(t)
	c := connect(t)
	var all []string
	for range 5000 {
		one := randomJSON(r)
		if !json.Valid([]byte(one)) {
			t.Fatalf("invalid %s", one)
		}
		all = append(all, one)
	}
	var rows strings.Builder
	rows.WriteString("SELECT CAST(x AS JSON) AS v, CAST(NULL AS JSON) AS _rest FROM (VALUES ")
	for i, one := range all {
		if i > 0 {
			rows.WriteString(", ")
		}
		rows.WriteString("(" + sqltext.Literal(one) + ")")
	}
	rows.WriteString(") x(x)")
	for _, kind := range []string{"boolean", "int", "long", "double", "string"} {
		fitted, rest := fit(t, c, lakeTable(manifest.Column{Type: event.JSON}, manifest.LakeColumn{Type: kind}, true), rows.String())
		count := 0
		for i, one := range all {
			got, fits := fitted[i].(string)
			if want := fmt.Sprintf(`{"v":%s}`, one); fits && rest[i] != nil || !fits && rest[i] != want {
				t.Errorf("%s in %s: %v, and _rest %v", one, kind, fitted[i], rest[i])
			}
			if fits {
				count++
			}
			want, must := wantFitted(one, kind)
			switch {
			case fits && kind == "double":
				f, err := strconv.ParseFloat(got, 64)
				wanted, _ := strconv.ParseFloat(want, 64)
				if err != nil || f != wanted || math.Signbit(f) != math.Signbit(wanted) || want == "" {
					t.Errorf("%s is %s as a double", one, got)
				}
			case fits && got != want, !fits && must:
				t.Errorf("%s in %s: %v, want %q", one, kind, fitted[i], want)
			}
		}
		if count < 20 {
			t.Errorf("only %d values fit %s", count, kind)
		}
	}
}

// wantFitted returns the value of a JSON text that is the same in another type, or "", and
// whether it must be found.
func wantFitted(source, kind string) (value string, must bool) {
	number, isNumber := new(big.Rat).SetString(source)
	if strings.HasPrefix(source, `"`) || len(source) > 0 && strings.ContainsAny(source[:1], "tf[{") {
		isNumber = false
	}
	switch kind {
	case "boolean":
		return source, source == "true" || source == "false"
	case "string":
		err := json.Unmarshal([]byte(source), &value)
		return value, err == nil
	case "int", "long":
		bits := map[string]int{"int": 32, "long": 64}[kind]
		whole, _, _ := strings.Cut(source, ".")
		if _, err := strconv.ParseInt(whole, 10, bits); err != nil || !plainInteger.MatchString(source) {
			return "", false
		}
		return whole, true
	}
	f, err := strconv.ParseFloat(source, 64)
	if !isNumber || err != nil {
		return "", false
	}
	shortest := strconv.FormatFloat(f, 'g', -1, 64)
	if back, _ := new(big.Rat).SetString(shortest); back.Cmp(number) != 0 { // the double has lost digits
		return "", false
	}
	isInteger := !strings.ContainsAny(source, ".eE")
	if isInteger && math.Abs(f) >= 1<<53 {
		return "", false
	}
	digits, _, _ := strings.Cut(strings.NewReplacer(".", "", "-", "", "E", "e").Replace(source), "e")
	return shortest, len(strings.Trim(digits, "0")) <= 15 && (f == 0 || math.Abs(f) >= 2.3e-308)
}
