//go:build linux && cgo

package fileimport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/eventstoretest"
	"github.com/perigeedb/perigee/eventstore/output"
	"github.com/perigeedb/perigee/internal/leaktest"
)

// TestMain is also the worker that reads files and answers queries.
func TestMain(m *testing.M) {
	eventstore.RunWorker()
	os.Exit(m.Run())
}

// writeParquet writes the result of SQL to a file.
func writeParquet(t *testing.T, sql string) (name string) {
	t.Helper()
	s := eventstoretest.Open(t, eventstore.TableConfig{})
	rows, err := s.Execute(t.Context(), eventstore.Statement{SQL: sql, Format: eventstore.FormatParquet})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	name = filepath.Join(t.TempDir(), "it's [1] file*.parquet")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := output.Write(out, rows); err != nil {
		t.Fatal(err)
	}
	return name
}

func openParquetFile(t *testing.T, name string) *ParquetFile {
	t.Helper()
	f, err := OpenParquet(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// readDocs returns the remaining documents of a file.
func readDocs(t *testing.T, f *ParquetFile) (docs []string, rejected []string) {
	t.Helper()
	for {
		row, err := f.Read(t.Context())
		if err == io.EOF {
			return docs, rejected
		}
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, string(row.Doc))
		if bad := row.Rejected; bad != nil {
			rejected = append(rejected, bad.Column+" "+bad.Reason)
		}
	}
}

// TestParquetTypes maps each type to a column type, and its values to JSON.
func TestParquetTypes(t *testing.T) {
	for _, c := range []struct{ value, column, want string }{
		{"true", "bool", "true"},
		{"(-128)::TINYINT", "int32", "-128"},
		{"65535::USMALLINT", "int32", "65535"},
		{"(-2147483648)::INTEGER", "int32", "-2147483648"},
		{"4294967295::UINTEGER", "int64", "4294967295"},
		{"9223372036854775807::BIGINT", "int64", "9223372036854775807"},
		{"18446744073709551615::UBIGINT", "decimal(20,0)", "18446744073709551615"},
		{"0.1::FLOAT", "float64", "0.10000000149011612"},
		{"0.1::DOUBLE", "float64", "0.1"},
		{"12345678901234567890123456789012.345678::DECIMAL(38,6)", "decimal(38,6)", "12345678901234567890123456789012.345678"},
		{`'a "☾"' || chr(10)`, "string", `"a \"☾\"\n"`},
		{"'AB'::BLOB", "bytes", `"QUI="`},
		{"DATE '2026-11-22'", "timestamp", `"2026-11-22T00:00:00Z"`},
		{"TIMESTAMP '2026-11-22 01:02:03.456789'", "timestamp", `"2026-11-22T01:02:03.456789Z"`},
		{"TIMESTAMPTZ '2026-11-22 01:02:03+02'", "timestamp", `"2026-11-21T23:02:03Z"`},
		{"TIMESTAMP_NS '2026-11-22 01:02:03.456789123'", "timestamp_ns", `"2026-11-22T01:02:03.456789123Z"`},
		{"TIME '01:02:03'", "string", `"01:02:03"`},
		{"uuid '00112233-4455-6677-8899-aabbccddeeff'", "string", `"00112233-4455-6677-8899-aabbccddeeff"`},
		{"[1, NULL]", "json", "[1,null]"},
		{"{'a': 1.50, 'b': ['x']}", "json", `{"a":1.50,"b":["x"]}`},
		{"MAP {'k': 1}", "json", `{"k":1}`},
		{`CAST('{"a":' || chr(10) || '1}' AS JSON)`, "json", `{"a":1}`},
	} {
		t.Run(c.value, func(t *testing.T) {
			f := openParquetFile(t, writeParquet(t, "SELECT "+c.value+` AS "the ""column""."`))
			columns := f.Columns()
			if len(columns) != 1 || columns[0].Name != `the "column".` || columns[0].Type.String()+columns[0].Digits.String() != c.column {
				t.Errorf("columns are %+v, not one of %s", columns, c.column)
			}
			docs, rejected := readDocs(t, f)
			if want := `{"the \"column\".":` + c.want + "}"; len(docs) != 1 || docs[0] != want || len(rejected) > 0 {
				t.Errorf("read %q, rejected %v, want %s", docs, rejected, want)
			}
		})
	}
}

// TestParquetFile reads a file of several row groups in order, starting at various rows.
func TestParquetFile(t *testing.T) {
	const rows = 300_000
	f := openParquetFile(t, writeParquet(t, fmt.Sprintf("SELECT i AS id, CASE WHEN i %% 100000 = 7 THEN NULL ELSE 'text' END AS text FROM range(%d) AS r(i)", rows)))
	if f.Count() != rows {
		t.Errorf("got %d rows, want %d", f.Count(), rows)
	}
	for _, first := range []int64{0, 122_880, 299_990} {
		f.next = 0
		if err := f.Skip(t.Context(), uint64(first)); err != nil {
			t.Fatal(err)
		}
		docs, rejected := readDocs(t, f)
		if len(docs) != rows-int(first) || len(rejected) > 0 {
			t.Fatalf("read %d rows from %d on, rejected %v", len(docs), first, rejected)
		}
		for i, doc := range docs {
			want := fmt.Sprintf(`{"id":%d,"text":"text"}`, int(first)+i)
			if (int(first)+i)%100_000 == 7 {
				want = fmt.Sprintf(`{"id":%d}`, int(first)+i)
			}
			if doc != want {
				t.Fatalf("row %d is %s, not %s", int(first)+i, doc, want)
			}
		}
	}
}

// TestSkipEndsReading checks that skipping rows ends the query that reads them.
func TestSkipEndsReading(t *testing.T) {
	f := openParquetFile(t, writeParquet(t, "SELECT i FROM range(300000) AS r(i)"))
	next := func() {
		_, err := f.Read(t.Context())
		if err := errors.Join(err, f.Skip(t.Context(), 10_000)); err != nil {
			t.Error(err)
		}
	}
	next() // starts the worker
	leaktest.Closed(t, "socket:", func() {
		for range 10 {
			next()
		}
	})
}

// TestParquetRefuses checks that errors name the column with an unsupported type.
func TestParquetRefuses(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT 1 AS a, INTERVAL 1 DAY AS b": "column b has the unsupported type INTERVAL",
	} {
		if _, err := OpenParquet(t.Context(), writeParquet(t, sql)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	f := openParquetFile(t, writeParquet(t, "SELECT 'nan'::DOUBLE AS a, 1 AS b UNION ALL SELECT 1, 2 UNION ALL SELECT '-inf'::DOUBLE, 3"))
	docs, rejected := readDocs(t, f)
	if len(docs) != 3 || docs[1] != `{"a":1,"b":2}` || strings.Join(rejected, "; ") != "a JSON cannot represent NaN; a JSON cannot represent infinity" {
		t.Errorf("read %q, rejected %v", docs, rejected)
	}
	for value, want := range map[string]string{
		"{'x': 1.5::DOUBLE, 'y': 'nan'::DOUBLE}": "NaN", "[1.5::DOUBLE, '-inf'::DOUBLE]": "infinity", "[{'x': 'inf'::FLOAT, 'y': 1::FLOAT}]": "infinity", "{'x': 1.5::DOUBLE, 'y': [1]}": "",
	} {
		_, rejected := readDocs(t, openParquetFile(t, writeParquet(t, "SELECT "+value+" AS a")))
		if got := strings.Join(rejected, "; "); want == "" && got != "" || want != "" && got != "a JSON cannot represent "+want {
			t.Errorf("%s: rejected %q, want %q", value, got, want)
		}
	}
	name := filepath.Join(t.TempDir(), "no.parquet")
	if err := os.WriteFile(name, []byte("PAR1 is not enough for a file PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenParquet(t.Context(), name); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("no Parquet: %v", err)
	}
}

// TestParquetImport imports the export of one table into a new one.
func TestParquetImport(t *testing.T) {
	f := openParquetFile(t, writeParquet(t, `SELECT 1 AS id, CAST('{"more": [1, 2], "b": null}' AS JSON) AS _rest`))
	if columns := f.Columns(); len(columns) != 1 || columns[0].Type != event.Int32 {
		t.Errorf("got columns %+v, want one of type %v", columns, event.Int32)
	}
	if docs, _ := readDocs(t, f); len(docs) != 1 || docs[0] != `{"id":1,"more": [1, 2], "b": null}` {
		t.Errorf("read %q", docs)
	}
}
