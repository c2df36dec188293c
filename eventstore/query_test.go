//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/output"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files again")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

const everyType = `SELECT * FROM (VALUES
	(1, true, (-128)::TINYINT, 255::UTINYINT, (-32768)::SMALLINT, 65535::USMALLINT, 4294967295::UINTEGER, (-9223372036854775808)::BIGINT, 18446744073709551615::UBIGINT,
	 170141183460469231731687303715884105727::HUGEINT, (-170141183460469231731687303715884105728)::HUGEINT, 340282366920938463463374607431768211455::UHUGEINT,
	 0.1::FLOAT, 0.1::DOUBLE, (-0.05)::DECIMAL(4,2), 12345678901234567890.12345::DECIMAL(30,5), 'a "quoted", ☾ text' || chr(27) || '[31m', 'AB'::BLOB,
	 DATE '1969-12-31', TIME '01:02:03.5', TIMESTAMP '2026-01-02 03:04:05.000006', TIMESTAMPTZ '2026-01-02 03:04:05+02', TIMESTAMP_NS '2026-01-02 03:04:05.123456789',
	 'infinity'::TIMESTAMP, INTERVAL '14 months 3 days 1.5 seconds', '00112233-4455-6677-8899-aabbccddeeff'::UUID, 'b'::ENUM ('a', 'b'),
	 [1, NULL, 3], [[1], []], {'a': 1, 'b c': ['x']}, MAP {'k': 1, 'l': NULL}, [1, 2]::INTEGER[2], '{"a":[1.50]}'::JSON, 'nan'::DOUBLE),
	(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
) t(id, bool, tiny, utiny, small, usmall, uint, big, ubig, huge, low, uhuge, float, double, dec, wide, text, blob, date, time, ts, tstz, tsns, inf, "interval", uuid, enum,
	list, lists, struct, map, "array", json, nan)`

func TestEncodings(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, test := range []struct {
		file   string
		sql    string
		format Format
		limit  int64
	}{
		{"every_type.ndjson", everyType, FormatNDJSON, 0},
		{"every_type.csv", everyType, FormatCSV, 0},
		{"every_type.txt", `SELECT column_name, column_type FROM (DESCRIBE ` + everyType + `)`, FormatTable, 0},
		{"rows.json", `SELECT i AS n, 'row ' || i AS name FROM range(3) t(i)`, FormatJSON, 0},
		{"none.json", `SELECT 1 AS n WHERE false`, FormatJSON, 0},
		{"none.csv", `SELECT 1 AS n WHERE false`, FormatCSV, 0},
		{"none.txt", `SELECT 1 AS n WHERE false`, FormatTable, 0},
		{"rows.txt", `SELECT i AS "Number", CASE i WHEN 1 THEN NULL WHEN 2 THEN chr(27) || '[31mred' || chr(10) ELSE repeat('x', 300) END AS text, i / 3.0 AS ratio FROM range(4) t(i)`, FormatTable, 0},
		{"limit.txt", `SELECT i FROM range(100) t(i)`, FormatTable, 2},
		{"limit.csv", `SELECT i FROM range(100) t(i)`, FormatCSV, 2},
	} {
		t.Run(test.file, func(t *testing.T) {
			rows, err := s.Execute(context.Background(), Statement{SQL: test.sql, Format: test.format, Limits: Limits{Rows: test.limit}})
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			var b strings.Builder
			if err := output.Write(&b, rows); err != nil {
				t.Fatal(err)
			}
			golden(t, test.file, b.String())
			if test.format == FormatJSON && !json.Valid([]byte(b.String())) {
				t.Error("not valid JSON")
			}
			if test.format == FormatNDJSON {
				for line := range strings.Lines(b.String()) {
					if !json.Valid([]byte(line)) {
						t.Errorf("not valid JSON: %s", line)
					}
				}
			}
		})
	}
}

func TestErrorsInSQL(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"email":"x","n":1}`)
	far := strings.Repeat("1 + ", 100)
	for sql, want := range map[string]event.Fault{
		"SELEC 1": {Message: `syntax error at or near "SELEC"`, Line: 1, Column: 1},
		"SELECT *\nFROM events\nWHERE emial = 'x'":  {Message: `Referenced column "emial" not found in FROM clause!`, Hint: `Candidate bindings: "email"`, Line: 3, Column: 7},
		"SELECT * FROM evnts":                       {Message: "Table with name evnts does not exist!", Hint: `Did you mean "events"?`, Line: 1, Column: 15},
		"SELECT " + far + "nowhere FROM events":     {Message: `Referenced column "nowhere" not found in FROM clause!`, Hint: `Candidate bindings: "n"`, Line: 1, Column: 408},
		"SELECT '☾☾' || nowhere FROM events":        {Message: `Referenced column "nowhere" not found in FROM clause!`, Hint: `Candidate bindings: "n"`, Line: 1, Column: 16},
		"SELECT CAST(email AS INTEGER) FROM events": {Message: `Could not convert string 'x' to INT32 when casting from source column email`, Line: 1, Column: 8},
		"SELECT $1":          {Message: "the query has 1 parameters, and 0 values are given"},
		"DROP VIEW events":   {Message: "only reading statements are allowed", Hint: "SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE and EXPLAIN are answered"},
		"SELECT 1; SELECT 2": {Message: "2 statements at once", Hint: "send one statement"},
	} {
		rows, err := s.Query(context.Background(), sql)
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
			rows.Close()
		}
		got, ok := errors.AsType[*event.Fault](err)
		if !ok {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%.60s (-want +got):\n%s", sql, diff)
		}
	}
}

// endless runs for hours and returns rows only at its end.
const endless = `SELECT count(*) FROM range(100000000000) a(i) WHERE hash(i) = 1`

func TestQueriesEndWithTheirContext(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, delay := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(context.Background(), delay)
		rows, err := s.Query(ctx, endless)
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
			rows.Close()
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", delay, err)
		}
	}
	if got := ask(t, s, "SELECT 1"); got != "1" {
		t.Errorf("afterwards SELECT 1 is %s", got)
	}
}

func TestHugeResultIsStreamed(t *testing.T) {
	s := openStore(t, t.TempDir())
	rows, err := s.Query(context.Background(), `SELECT i, repeat('x', 1000) AS text FROM range(1000000000) t(i)`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100_000 {
		if !rows.Next() || rows.Row()[0] != int64(i) {
			t.Fatalf("row %d: %v, %v", i, rows.Row(), rows.Err())
		}
	}
	rows.Close()
	if rows.Next() {
		t.Error("a closed result goes on")
	}
}

func TestQueriesWaitTheirTurn(t *testing.T) {
	s, err := Open(t.TempDir(), Options{Queries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.Query(context.Background(), `SELECT 1`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Query(ctx, `SELECT 1`); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second query got %v", err)
	}
	rows.Close()
	ask(t, s, `SELECT 1`)
}

// TestWritingComesFirst checks that a query which needs too much memory is ended and never
// stops the writer.
func TestWritingComesFirst(t *testing.T) {
	s, err := Open(t.TempDir(), Options{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := take(t, openTable(t, s, TableConfig{}))
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for range 2 {
		group.Go(func() {
			for ctx.Err() == nil {
				rows, err := s.Query(ctx, `SELECT list(i) FROM range(50000000) t(i)`)
				if err == nil {
					rows.Next()
					rows.Close()
				}
			}
		})
	}
	for i := range uint64(40) {
		if err := p.Append(context.Background(), tenColumns(i*2000, 2000)); err != nil {
			t.Errorf("batch %d: %v", i, err)
		}
	}
	cancel()
	group.Wait()
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != "80000,80000" {
		t.Errorf("got %s", got)
	}
}

func TestOneOwner(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	_, err := Open(folder, Options{})
	if !event.IsPermanent(err) || !strings.Contains(err.Error(), fmt.Sprintf("in use by process %d", os.Getpid())) {
		t.Errorf("a second owner got %v", err)
	}
	s.Close()
	openStore(t, folder)
}

func TestNothingAfterClose(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	s.Close()
	if err := p.Append(context.Background(), outputOf(0, `{}`)); !errors.Is(err, ErrClosed) {
		t.Errorf("Append: %v", err)
	}
	if _, err := s.Query(context.Background(), `SELECT 1`); !errors.Is(err, ErrClosed) {
		t.Errorf("Query: %v", err)
	}
	if _, err := s.Table("more", TableConfig{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Table: %v", err)
	}
	goleak.VerifyNone(t, before)
}

// TestEncodeFails writes results to a writer that fails, and in an unknown format.
func TestEncodeFails(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, format := range Formats() {
		run := func() *Rows {
			rows, err := s.Execute(t.Context(), Statement{SQL: `SELECT i, 'a text of some length' AS s FROM range(1000) t(i)`, Format: format})
			if err != nil {
				t.Fatal(err)
			}
			return rows
		}
		var whole bytes.Buffer
		rows := run()
		if err := output.Write(&whole, rows); err != nil {
			t.Fatal(err)
		}
		rows.Close()
		for _, room := range []int{0, 1, whole.Len() / 2, whole.Len() - 1} {
			rows := run()
			if err := output.Write(&failingWriter{left: room}, rows); !errors.Is(err, errNoRoom) {
				t.Errorf("%s with room for %d of %d bytes: %v", format, room, whole.Len(), err)
			}
			rows.Close()
		}
	}
	rows, err := s.Execute(t.Context(), Statement{SQL: `SELECT 1`})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if err := output.Write(new(bytes.Buffer), rows); err == nil || !strings.Contains(err.Error(), `unknown format ""`) {
		t.Errorf("without a format: %v", err)
	}
}

func TestText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 60, time.UTC)
	for _, test := range []struct {
		value      any
		text, json string
	}{
		{nil, "", "null"}, {true, "true", "true"}, {int64(-7), "-7", "-7"}, {uint64(1 << 63), "9223372036854775808", "9223372036854775808"},
		{float32(0.1), "0.1", "0.1"}, {0.1, "0.1", "0.1"}, {1e21, "1e+21", "1e+21"}, {math.Inf(1), "+Inf", "null"}, {math.NaN(), "NaN", "null"}, {float32(math.Inf(-1)), "-Inf", "null"},
		{"a\"<b>\n", "a\"<b>\n", `"a\"<b>\n"`}, {JSON(`{"a": 1}`), `{"a": 1}`, `{"a": 1}`}, {Number("1.50"), "1.50", "1.50"}, {[]byte{0, 255}, "AP8=", `"AP8="`},
		{at, "2026-01-02 03:04:05.00000006", `"2026-01-02T03:04:05.00000006Z"`},
		{[]any{}, "[]", "[]"}, {[]any{int64(1), "x", nil}, `[1,"x",null]`, `[1,"x",null]`},
		{Struct{}, "{}", "{}"}, {Struct{{Name: "a", Value: int64(1)}, {Name: "b", Value: []any{true}}}, `{"a":1,"b":[true]}`, `{"a":1,"b":[true]}`},
	} {
		if got := Text(test.value); got != test.text {
			t.Errorf("%#v as text is %s, want %s", test.value, got, test.text)
		}
		if got := string(protocol.AppendJSON(nil, test.value)); got != test.json {
			t.Errorf("%#v as JSON is %s, want %s", test.value, got, test.json)
		}
	}
}
