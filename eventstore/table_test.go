//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

var userColumns = []event.Column{
	{Name: "id", Path: []string{"id"}, Type: event.Int64},
	{Name: "user", Path: []string{"user", "name"}, Type: event.String},
}

// describedTables describes the tables of an open store.
func describedTables(s *Store) []catalog.Table {
	all, err := s.Tables()
	if err != nil {
		panic(err)
	}
	return all
}

// runningDeletes describes the running deletes of all tables.
func runningDeletes(s *Store) (all []catalog.Delete) {
	for _, t := range describedTables(s) {
		all = append(all, t.Deletes...)
	}
	return all
}

func columnNames(s *Store) string {
	var names []string
	for _, c := range describedTables(s)[0].Columns {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

func TestUnknownFields(t *testing.T) {
	const first, second = `{"id":1,"user":{"name":"ann","age":7},"extra":[1.50]}`, `{"id":2,"user":{"name":"bob"},"extra":null}`
	for _, test := range []struct {
		unknown      catalog.Unknown
		columns, all string
	}{
		{catalog.AddUnknown, "id user user_2 extra", `1,ann,"{""name"":""ann"",""age"":7}",[1.50]` + "\n" + `2,bob,"{""name"":""bob""}",`},
		{catalog.KeepUnknown, "id user user_2 _rest", `1,ann,"{""name"":""ann"",""age"":7}","{""extra"":[1.50]}"` + "\n" + `2,bob,"{""name"":""bob""}",`},
		{catalog.DropUnknown, "id user", "1,ann\n2,bob"},
	} {
		t.Run("mode "+string(test.unknown), func(t *testing.T) {
			folder := t.TempDir()
			s := openStore(t, folder)
			p := take(t, openTable(t, s, TableConfig{Unknown: test.unknown, Columns: userColumns}))
			appendDocs(t, p, 0, first)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openStore(t, folder)
			used, err := s.UseTable("events") // unchanged: the mode is kept in the store
			if err != nil {
				t.Fatal(err)
			}
			appendDocs(t, take(t, used), 1, second)
			seal(t, s)
			if got := columnNames(s); got != test.columns {
				t.Errorf("the columns are %q, want %q", got, test.columns)
			}
			if got := ask(t, s, `SELECT * FROM events ORDER BY id`); got != test.all {
				t.Errorf("got\n%s\nwant\n%s", got, test.all)
			}
		})
	}
}

func TestUnknownFieldsChange(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":1,"a":1}`)
	openTable(t, s, TableConfig{Unknown: catalog.DropUnknown})
	appendDocs(t, p, 1, `{"id":2,"a":2,"b":2}`)
	openTable(t, s, TableConfig{Unknown: catalog.KeepUnknown})
	appendDocs(t, p, 2, `{"id":3,"a":3,"b":3}`)
	openTable(t, s, TableConfig{})
	appendDocs(t, p, 3, `{"id":4,"b":4}`)
	if got := ask(t, s, `SELECT id, a, b, _rest FROM events ORDER BY id`); got != `1,1,,`+"\n"+`2,2,,`+"\n"+`3,3,,"{""b"":3}"`+"\n"+`4,,4,` {
		t.Errorf("got\n%s", got)
	}
}

// TestTableSettings compares the manifest with the declaration, before and after a change.
func TestTableSettings(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	first := TableConfig{Event: "kind", Time: "at", Retention: time.Hour, Sort: []string{"user", "at"}, Bloom: []string{"user"}}
	openTable(t, s, first)
	second := TableConfig{Event: "name", Time: "at", Retention: 48 * time.Hour, Bloom: []string{"trace", "user"}, Unknown: catalog.KeepUnknown}
	openTable(t, s, second)
	version := s.current().Version
	openTable(t, s, second)
	if _, err := s.UseTable("events"); err != nil {
		t.Fatal(err)
	}
	if got := s.current().Version; got != version {
		t.Errorf("the same settings make version %d of %d", got, version)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	m := openStore(t, folder).current().Table("events")
	if m.Event != "name" || m.Time != "at" || time.Duration(m.Retention) != 48*time.Hour || len(m.Sort) != 0 || !slices.Equal(m.Bloom, []string{"trace", "user"}) || m.Unknown != catalog.KeepUnknown {
		t.Errorf("the manifest has %+v", m)
	}
}

func TestUseTable(t *testing.T) {
	s := openStore(t, t.TempDir())
	openTable(t, s, TableConfig{Time: "at"})
	used, err := s.UseTable("events")
	if err != nil {
		t.Fatal(err)
	}
	err = take(t, used).Append(context.Background(), outputOf(0, `{"id":1}`))
	if _, rejected := errors.AsType[*RejectedRows](err); !rejected {
		t.Errorf("an event without its time: %v", err)
	}
	if _, err := s.UseTable("Events"); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a name that differs in case: %v", err)
	}
	// A table's folder has its name, and the SQL catalog reads views called duckdb_….
	for _, name := range []string{"", "../events", "a/b", "a b", "1st", "é", strings.Repeat("x", 64), "duckdb_views", "DuckDB_tables", "duckdb_"} {
		_, used := s.UseTable(name)
		_, declared := s.Table(name, TableConfig{})
		for _, err := range []error{used, declared} {
			if !event.IsPermanent(err) || event.HintOf(err) == "" || !strings.Contains(err.Error(), fmt.Sprintf("invalid table name %q", name)) {
				t.Errorf("the name %q: %v", name, err)
			}
		}
	}
	if _, err := s.UseTable(strings.Repeat("x", 63)); err != nil {
		t.Error(err)
	}
	made, err := s.UseTable("other")
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, take(t, made), 0, `{"id":1}`)
}

// TestCatalogNames creates tables with the permitted names of schemas and tables of the SQL
// catalog. Both the tables and the catalog remain readable.
func TestCatalogNames(t *testing.T) {
	s := openStore(t, t.TempDir())
	names := []string{"columns", "duckdb", "information_schema", "main", "pg_catalog", "pg_class", "pragma_show", "pragma_table_info", "schemata", "sqlite_master", "tables"}
	for _, name := range names {
		table, err := s.UseTable(name)
		if err != nil {
			t.Fatal(err)
		}
		appendDocs(t, take(t, table), 0, `{"id":1}`)
	}
	all := strings.Join(names, "\n")
	for _, sql := range []string{`SHOW TABLES`, `SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' ORDER BY 1`,
		`SELECT table_name FROM information_schema.columns WHERE table_schema = 'main' ORDER BY 1`, `SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1`} {
		if got := ask(t, s, sql); got != all {
			t.Errorf("%s: got %q, want %q", sql, got, all)
		}
	}
	for _, name := range names {
		if got := ask(t, s, "SELECT id FROM "+name); got != "1" {
			t.Errorf("table %s has %q", name, got)
		}
	}
}

func TestTimeUnits(t *testing.T) {
	for unit, value := range map[event.Unit]string{
		event.Seconds: `1767323045.5`, event.Milliseconds: `1767323045500`, event.Microseconds: `1767323045500000`,
		event.Nanoseconds: `1767323045500000000`, event.TextOnly: `"2026-01-02T03:04:05.5Z"`,
	} {
		folder := t.TempDir()
		s := openStore(t, folder)
		p := take(t, openTable(t, s, TableConfig{Time: "time", TimeUnit: unit, Retention: 200 * 365 * 24 * time.Hour}))
		appendDocs(t, p, 0, `{"time":`+value+`}`)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, folder)
		appendDocs(t, take(t, openTable(t, s, TableConfig{Time: "time", TimeUnit: unit})), 1, `{"time":"2026-01-02T03:04:05.5Z"}`, `{"time":`+value+`}`)
		if got := ask(t, s, `SELECT time, count(*) FROM events GROUP BY 1`); got != "2026-01-02 03:04:05.5,3" {
			t.Errorf("%s of %s: got %s", value, unit, got)
		}
	}
	// A changed unit applies to later events.
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	appendDocs(t, p, 0, `{"time":1}`)
	openTable(t, s, TableConfig{Time: "time", TimeUnit: event.Milliseconds})
	appendDocs(t, p, 1, `{"time":1}`)
	if got := ask(t, s, `SELECT time FROM events ORDER BY time DESC`); got != "1970-01-01 00:00:01\n1970-01-01 00:00:00.001" {
		t.Errorf("after the unit has changed: %s", got)
	}
}

func TestDecimals(t *testing.T) {
	s := openStore(t, t.TempDir())
	price := event.Column{Name: "price", Path: []string{"price"}, Type: event.Decimal, Digits: event.Digits{Precision: 18, Scale: 2}}
	p := take(t, openTable(t, s, TableConfig{Columns: []event.Column{price}}))
	appendDocs(t, p, 0, `{"id":1,"price":0.10}`, `{"id":2,"price":9999999999999999.99}`, `{"id":3,"price":-1.5e3}`, `{"id":4}`, `{"id":5,"price":1.100}`)
	if got := describedTables(s)[0].Columns[0].Type; got != "DECIMAL(18,2)" {
		t.Errorf("the column is %s", got)
	}
	for _, when := range []string{"in the log", "in a file"} {
		if got := ask(t, s, `SELECT price FROM events ORDER BY id`); got != "0.10\n9999999999999999.99\n-1500.00\n\n1.10" {
			t.Errorf("%s:\n%s", when, got)
		}
		if got := ask(t, s, `SELECT sum(price) FROM events WHERE price < 1.11`); got != "-1498.80" {
			t.Errorf("%s: the sum is %s", when, got)
		}
		seal(t, s)
	}
	err := p.Append(context.Background(), outputOf(5, `{"id":6,"price":1}`, `{"id":7,"price":0.001}`, `[]`, `{"id":8,"price":1e16}`))
	rejected, ok := errors.AsType[*RejectedRows](err)
	if !ok || len(rejected.Rows) != 3 || rejected.Rows[0].Row != 1 || rejected.Rows[2].Row != 3 || !strings.Contains(rejected.Rows[2].Reason, "column price: 1e16 does not fit decimal(18,2)") {
		t.Errorf("digits that the column does not have: %v", err)
	}
	price.Digits.Scale = 3
	if _, err := s.Table("events", TableConfig{Columns: []event.Column{price}}); err == nil || !strings.Contains(err.Error(), "declared as decimal(18,3) of field price, but the table has it as decimal(18,2)") {
		t.Errorf("other digits: %v", err)
	}
}

func TestBytes(t *testing.T) {
	s := openStore(t, t.TempDir())
	body := event.Column{Name: "body", Path: []string{"body"}, Type: event.Bytes}
	p := take(t, openTable(t, s, TableConfig{Columns: []event.Column{body}}))
	appendDocs(t, p, 0, `{"id":1,"body":"AAECgICA/w=="}`, `{"id":2}`, `{"id":3,"body":""}`, `{"id":4,"body":"aGVsbG8gaGVsbG8gaGVsbG8="}`)
	for _, when := range []string{"in the log", "in a file"} {
		if got := ask(t, s, `SELECT hex(body) FROM events ORDER BY id`); got != "000102808080FF\n\n\n68656C6C6F2068656C6C6F2068656C6C6F" {
			t.Errorf("%s: %s", when, got)
		}
		if got := ask(t, s, `SELECT id FROM events WHERE body = 'hello hello hello'::BLOB OR body IS NULL ORDER BY id`); got != "2\n4" {
			t.Errorf("%s: found %s", when, got)
		}
		seal(t, s)
	}
	err := p.Append(context.Background(), outputOf(4, `{"id":5,"body":"AA=="}`, `{"id":6,"body":"no base64"}`, `{"id":7,"body":7}`))
	rejected, ok := errors.AsType[*RejectedRows](err)
	if !ok || len(rejected.Rows) != 2 || rejected.Rows[0].Row != 1 || !strings.Contains(rejected.Rows[0].Reason, `column body wants bytes in base64, got "no base64"`) || rejected.Rows[1].Row != 2 {
		t.Errorf("values that are no bytes: %v", err)
	}
}

// TestDeclaredTimeColumn declares the time column in ways that contradict the table's time.
func TestDeclaredTimeColumn(t *testing.T) {
	s := openStore(t, t.TempDir())
	for i, test := range []struct {
		column event.Column
		good   bool
	}{
		{event.Column{Name: "at", Path: []string{"x", "at"}, Type: event.Timestamp}, true},
		{event.Column{Name: "AT", Path: []string{"at"}, Type: event.Timestamp}, false},
		{event.Column{Name: "at", Path: []string{"at"}, Type: event.String}, false},
		{event.Column{Name: "", Path: []string{"y"}, Type: event.String}, false},
		{event.Column{Name: "y", Type: event.String}, false},
		{event.Column{Name: "_REST", Path: []string{"y"}, Type: event.JSON}, false},
	} {
		table, err := s.Table(fmt.Sprint("t", i), TableConfig{Time: "at", Columns: []event.Column{test.column}})
		if test.good != (err == nil) || err != nil && (!event.IsPermanent(err) || event.HintOf(err) == "") {
			t.Errorf("column %+v: %v", test.column, err)
		}
		if !test.good {
			continue
		}
		p := take(t, table)
		if _, ok := errors.AsType[*RejectedRows](p.Append(t.Context(), outputOf(0, `{"x":{}}`))); !ok {
			t.Error("an event without its time was taken")
		}
		appendDocs(t, p, 0, `{"x":{"at":1}}`)
	}
}

// TestNanosecondTimes tests a nanosecond time column in the log and in files.
func TestNanosecondTimes(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "ts", TimeUnit: event.Nanoseconds, Columns: []event.Column{
		{Name: "seen", Path: []string{"seen"}, Type: event.TimestampNS},
	}}))
	appendDocs(t, p, 0,
		`{"ts":1767323045123456789,"id":1,"seen":"2026-01-02T03:04:05.000000001Z"}`,
		`{"ts":1767323045123456790,"id":2,"seen":null}`,
		`{"ts":"1969-12-31T23:59:59.999999999Z","id":3}`)
	appendDocs(t, p, 3, `{"ts":1767323045123456999,"id":4}`, `{"ts":1767323045123457000,"id":5}`)
	for _, doc := range []string{`{"ts":"2262-01-01T00:00:00Z"}`, `{"ts":-9300000000000000000}`, `{"ts":1,"seen":9214646400}`} {
		if err := p.Append(context.Background(), outputOf(5, doc)); !strings.Contains(fmt.Sprint(err), "beyond the years 1678 to 2261") {
			t.Errorf("%s: %v", doc, err)
		}
	}
	check := func() {
		t.Helper()
		for sql, want := range map[string]string{
			`SELECT column_name, column_type FROM (DESCRIBE events)`:                                                                 "ts,TIMESTAMP_NS\nseen,TIMESTAMP_NS\nid,BIGINT",
			`SELECT ts, seen FROM events WHERE id = 1`:                                                                               "2026-01-02 03:04:05.123456789,2026-01-02 03:04:05.000000001",
			`SELECT epoch_ns(ts) FROM events WHERE id = 3`:                                                                           "-1",
			`SELECT id FROM events WHERE ts = TIMESTAMP_NS '2026-01-02 03:04:05.123456790'`:                                          "2",
			`SELECT id FROM events WHERE ts > TIMESTAMP_NS '2026-01-02 03:04:05.123456790' ORDER BY id`:                              "4\n5",
			`SELECT id FROM events WHERE ts >= TIMESTAMP_NS '2026-01-02 03:04:05.123456999' ORDER BY id`:                             "4\n5",
			`SELECT id FROM events WHERE ts < TIMESTAMP_NS '2026-01-02 03:04:05.123456790' ORDER BY id`:                              "1\n3",
			`SELECT id FROM events WHERE ts <= TIMESTAMP_NS '2026-01-02 03:04:05.123456789' ORDER BY id`:                             "1\n3",
			`SELECT id FROM events WHERE ts < TIMESTAMP '1970-01-01'`:                                                                "3",
			`SELECT id FROM events WHERE ts >= TIMESTAMP '2026-01-02 03:04:05.123457' ORDER BY id`:                                   "5",
			`SELECT id FROM events ORDER BY ts DESC LIMIT 2`:                                                                         "5\n4",
			`SELECT id FROM events WHERE ts BETWEEN '2026-01-02 03:04:05.123456789' AND '2026-01-02 03:04:05.123456790' ORDER BY id`: "1\n2",
		} {
			if got := ask(t, s, sql); got != want {
				t.Errorf("%s: %q, want %q", sql, got, want)
			}
		}
	}
	checkParams := func() {
		t.Helper()
		at := Param{Name: "t", Value: TimestampNS(1767323045123456790)}
		for sql, want := range map[string]string{
			`SELECT id FROM events WHERE ts = $t`:              "2",
			`SELECT id FROM events WHERE ts < $t ORDER BY id`:  "1\n3",
			`SELECT id FROM events WHERE ts <= $t ORDER BY id`: "1\n2\n3",
			`SELECT id FROM events WHERE ts > $t ORDER BY id`:  "4\n5",
			`SELECT id FROM events WHERE ts >= $t ORDER BY id`: "2\n4\n5",
		} {
			if got := ask(t, s, sql, at); got != want {
				t.Errorf("%s: %q, want %q", sql, got, want)
			}
		}
	}
	check()
	checkParams()
	seal(t, s)
	check()
	checkParams()
	days := []string{}
	for _, f := range filesOf(s) {
		days = append(days, f.Day)
		if f.Day == "2026-01-02" && (f.MinTime != 1767323045123456 || f.MaxTime != 1767323045123457) {
			t.Errorf("file %s has times %d to %d", f.Name, f.MinTime, f.MaxTime)
		}
	}
	slices.Sort(days)
	if !slices.Equal(days, []string{"1969-12-31", "2026-01-02"}) {
		t.Errorf("the files are of %v", days)
	}
}

// TestLatestNanoseconds finds the newest of many rows, starting at the newest file.
func TestLatestNanoseconds(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "ts", TimeUnit: event.Nanoseconds}))
	const batch = 10_000
	for first := 0; first < 60_000; first += batch {
		var docs []string
		for id := first; id < first+batch; id++ {
			docs = append(docs, fmt.Sprintf(`{"ts":%d,"id":%d}`, 1767323045000000000+id*1001, id))
		}
		appendDocs(t, p, uint64(first), docs...)
		if first == 2*batch {
			seal(t, s)
		}
	}
	if got := ask(t, s, `SELECT id FROM events ORDER BY ts DESC LIMIT 3`); got != "59999\n59998\n59997" {
		t.Errorf("the newest rows are %q", got)
	}
	if got := ask(t, s, `SELECT count(*), min(id) FROM events WHERE ts >= make_timestamp_ns(1767323045000000000 + 31234 * 1001)`); got != "28766,31234" {
		t.Errorf("the newest half is %q", got)
	}
}
