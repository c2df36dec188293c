//go:build linux && cgo

package eventstore

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/output"
)

// A plainDuck is DuckDB with plain tables.
type plainDuck struct {
	t *testing.T
	// query returns the rows of SQL with columns that are all VARCHAR, and no rows for other
	// columns.
	query func(sql string) (rows [][]*string, err error)
	close func()
}

// plainMacros are independent implementations of the query macros.
const plainMacros = `SET TimeZone = 'UTC';
SET disabled_optimizers = 'common_subexpressions'; -- takes the zeros of a list of VALUES for one
CREATE MACRO time_buckets(w, a, b) AS TABLE SELECT range AS bucket FROM range(time_bucket(w, a), b, w);
CREATE MACRO rate(n, width) AS n / epoch(width);
CREATE MACRO latest(v, ts) AS arg_max(v, ts);
CREATE MACRO earliest(v, ts) AS arg_min(v, ts);
CREATE MACRO p50(x) AS quantile_cont(x, 0.5);
CREATE MACRO p95(x) AS quantile_cont(x, 0.95);
CREATE MACRO session_start(ts, k, gap) AS CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= gap THEN 0 ELSE 1 END;`

// openPlain opens the DuckDB that the store has, or the one in the folder of Python modules that
// PERIGEE_ORACLE_DUCKDB names.
func openPlain(t *testing.T) *plainDuck {
	t.Helper()
	p := &plainDuck{t: t}
	if modules := os.Getenv("PERIGEE_ORACLE_DUCKDB"); modules != "" {
		p.open(startPythonDuck(t, modules))
	} else {
		p.open(startLinkedDuck(t))
	}
	return p
}

func (p *plainDuck) open(query func(string) ([][]*string, error), close func()) {
	p.t.Helper()
	p.query, p.close = query, close
	p.exec(plainMacros)
}

// startLinkedDuck opens DuckDB in this process.
func startLinkedDuck(t *testing.T) (query func(string) ([][]*string, error), close func()) {
	t.Helper()
	var db duck.Database
	var conn duck.Connection
	if duck.Open(":memory:", &db) == duck.StateError || duck.Connect(db, &conn) == duck.StateError {
		t.Fatal("DuckDB does not open")
	}
	return func(sql string) ([][]*string, error) { return queryLinked(conn, sql) }, func() {
		duck.Disconnect(&conn)
		duck.Close(&db)
	}
}

// pythonDuck answers statements, one in each line as JSON.
const pythonDuck = `
import duckdb, json, sys
db = duckdb.connect()
for line in sys.stdin:
    try:
        result = db.execute(json.loads(line))
        text = lambda v: v if isinstance(v, str) else None
        rows = [[text(v) for v in row] for row in result.fetchall()] if result.description else []
        print(json.dumps({"rows": rows}), flush=True)
    except Exception as e:
        print(json.dumps({"error": str(e)}), flush=True)
`

// startPythonDuck starts Python with the DuckDB in a folder of modules.
func startPythonDuck(t *testing.T, modules string) (query func(string) ([][]*string, error), close func()) {
	t.Helper()
	python := exec.Command("python3", "-c", pythonDuck)
	python.Env = append(os.Environ(), "PYTHONPATH="+modules)
	python.Stderr = os.Stderr
	in, err := python.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := python.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := python.Start(); err != nil {
		t.Fatal(err)
	}
	answers := json.NewDecoder(out)
	query = func(sql string) ([][]*string, error) {
		var answer struct {
			Rows  [][]*string
			Error string
		}
		if err := json.NewEncoder(in).Encode(sql); err != nil {
			return nil, err
		}
		if err := answers.Decode(&answer); err != nil {
			t.Fatalf("%.300s: Python ended: %v", sql, err)
		}
		if answer.Error != "" {
			return nil, errors.New(answer.Error)
		}
		return answer.Rows, nil
	}
	return query, func() {
		in.Close()
		if err := python.Wait(); err != nil {
			t.Errorf("Python: %v", err)
		}
	}
}

func (p *plainDuck) exec(sql string) {
	p.t.Helper()
	if _, err := p.query(sql); err != nil {
		p.t.Fatalf("%.300s: %v", sql, err)
	}
}

// column returns the type of a column, or "".
func (p *plainDuck) column(table, name string) string {
	p.t.Helper()
	rows, err := p.query("SELECT data_type FROM duckdb_columns() WHERE table_name = " + quoteSQL(table) + " AND column_name = " + quoteSQL(name))
	if err != nil {
		p.t.Fatal(err)
	}
	if len(rows) == 0 {
		return ""
	}
	return *rows[0][0]
}

func queryLinked(conn duck.Connection, sql string) (rows [][]*string, err error) {
	var res duck.Result
	defer duck.DestroyResult(&res)
	if duck.Query(conn, sql, &res) == duck.StateError {
		return nil, fmt.Errorf("%s", duck.ResultError(&res))
	}
	columns := int(duck.ColumnCount(&res))
	for {
		chunk := duck.FetchChunk(res)
		if chunk.Ptr == nil {
			return rows, nil
		}
		n := int(duck.DataChunkGetSize(chunk))
		first := len(rows)
		for range n {
			rows = append(rows, make([]*string, columns))
		}
		for c := range columns {
			vector := duck.DataChunkGetVector(chunk, duck.IdxT(c))
			kind := duck.VectorGetColumnType(vector)
			isText := duck.GetTypeId(kind) == duck.TypeVarchar
			duck.DestroyLogicalType(&kind)
			if !isText {
				continue
			}
			valid := duck.VectorGetValidity(vector)
			values := unsafe.Slice((*duck.StringT)(duck.VectorGetData(vector)), n)
			for i := range n {
				if valid == nil || duck.ValidityRowIsValid(valid, duck.IdxT(i)) {
					text := strings.Clone(duck.StringTData(&values[i]))
					rows[first+i][c] = &text
				}
			}
		}
		duck.DestroyDataChunk(&chunk)
	}
}

// asText returns the rows of a query, with each value cast to VARCHAR.
func (p *plainDuck) asText(sql string) ([][]*string, error) {
	return p.query("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (" + sql + ")")
}

// An answer is the rows that the store returns in a format, as Go values: nil, bool, int64,
// float64, string, []byte, time.Time, Number and JSON.
type answer struct {
	types []string
	rows  [][]any
	// Distinctions that the format loses.
	emptyIsNull, infiniteIsNull bool
	count                       int // number of rows, for a format without values
}

// answerOf queries the store.
func (o *oracle) answerOf(sql string, format Format) (a answer, err error) {
	rows, err := o.store.Execute(o.t.Context(), Statement{SQL: sql, Format: format})
	if err != nil {
		return a, err
	}
	defer rows.Close()
	for _, c := range rows.Columns() {
		a.types = append(a.types, c.Type)
	}
	if format == "" {
		for rows.Next() {
			a.rows = append(a.rows, rows.Row())
		}
		a.count = len(a.rows)
		return a, rows.Err()
	}
	var b bytes.Buffer
	if err := output.Write(&b, rows); err != nil {
		return a, err
	}
	switch format {
	case FormatTable:
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		_, err = fmt.Sscanf(lines[len(lines)-1], "(%d row", &a.count)
		return a, err
	case FormatCSV:
		err = a.readCSV(b.Bytes())
	case FormatJSON, FormatNDJSON:
		err = a.readJSON(b.Bytes(), format == FormatNDJSON)
	case FormatArrow:
		err = a.readArrow(&b)
	case FormatParquet:
		err = o.readParquet(&a, b.Bytes())
	}
	a.count = len(a.rows)
	return a, err
}

func (a *answer) readCSV(text []byte) error {
	a.emptyIsNull = true
	if len(a.types) == 1 {
		text = bytes.ReplaceAll(text, []byte("\n\n"), []byte("\n\"\"\n")) // the CSV reader skips empty lines
		text = bytes.ReplaceAll(text, []byte("\n\n"), []byte("\n\"\"\n"))
	}
	records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return err
	}
	for _, record := range records[1:] {
		row := make([]any, len(record))
		for i, field := range record {
			if row[i], err = parseText(a.types[i], field); err != nil {
				return err
			}
		}
		a.rows = append(a.rows, row)
	}
	return nil
}

// parseText parses a value of CSV.
func parseText(kind, text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	switch kind {
	case "BOOLEAN":
		return strconv.ParseBool(text)
	case "INTEGER", "BIGINT":
		return strconv.ParseInt(text, 10, 64)
	case "DOUBLE":
		return strconv.ParseFloat(text, 64)
	case "BLOB":
		return base64.StdEncoding.DecodeString(text)
	case "JSON":
		return JSON(text), nil
	}
	return text, nil
}

func (a *answer) readJSON(text []byte, lines bool) error {
	a.infiniteIsNull = true
	var objects []map[string]json.RawMessage
	if lines {
		text = append(append([]byte("["), bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte(","))...), ']')
	}
	if err := json.Unmarshal(text, &objects); err != nil {
		return err
	}
	for _, object := range objects {
		row := make([]any, len(a.types))
		for i, kind := range a.types {
			raw := object[fmt.Sprintf("c%d", i+1)]
			var err error
			if kind == "JSON" && string(raw) != "null" {
				row[i] = JSON(raw)
				continue
			}
			var value any
			decoder := json.NewDecoder(bytes.NewReader(raw))
			decoder.UseNumber()
			if err := decoder.Decode(&value); err != nil {
				return fmt.Errorf("%s: %w", raw, err)
			}
			switch value := value.(type) {
			case json.Number:
				row[i] = Number(value)
				if kind == "DOUBLE" || kind == "INTEGER" || kind == "BIGINT" {
					row[i], err = parseText(kind, string(value))
				}
			case string:
				row[i] = value
				switch {
				case kind == "BLOB":
					row[i], err = base64.StdEncoding.DecodeString(value)
				case strings.HasPrefix(kind, "TIMESTAMP"):
					row[i], err = time.Parse(time.RFC3339Nano, value)
				}
			default:
				row[i] = value
			}
			if err != nil {
				return err
			}
		}
		a.rows = append(a.rows, row)
	}
	return nil
}

func (a *answer) readArrow(b *bytes.Buffer) error {
	reader, err := ipc.NewReader(b)
	if err != nil {
		return err
	}
	defer reader.Release()
	for reader.Next() {
		batch := reader.RecordBatch()
		for i := range int(batch.NumRows()) {
			var row []any
			for c := range a.types {
				row = append(row, arrowValue(batch.Column(c), a.types[c], i))
			}
			a.rows = append(a.rows, row)
		}
	}
	return reader.Err()
}

func arrowValue(column arrow.Array, kind string, i int) any {
	if column.IsNull(i) {
		return nil
	}
	switch column := column.(type) {
	case array.ExtensionArray:
		return arrowValue(column.Storage(), kind, i)
	case *array.Boolean:
		return column.Value(i)
	case *array.Int32:
		return int64(column.Value(i))
	case *array.Int64:
		return column.Value(i)
	case *array.Float64:
		return column.Value(i)
	case *array.Binary:
		return slices.Clone(column.Value(i))
	case *array.String:
		if kind == "JSON" {
			return JSON(column.Value(i))
		}
		return column.Value(i)
	case *array.Decimal128:
		return Number(column.Value(i).ToString(column.DataType().(*arrow.Decimal128Type).Scale))
	case *array.Timestamp:
		n := int64(column.Value(i))
		if column.DataType().(*arrow.TimestampType).Unit == arrow.Nanosecond {
			return time.Unix(0, n).UTC()
		}
		return time.UnixMicro(n).UTC()
	case *array.MonthDayNanoInterval: // a difference of times
		one := column.Value(i)
		at := time.Duration(max(one.Nanoseconds, -one.Nanoseconds))
		var parts []string
		if one.Days != 0 {
			parts = append(parts, fmt.Sprintf("%d day%s", one.Days, map[bool]string{true: "s"}[one.Days != 1]))
		}
		if at != 0 || one.Days == 0 {
			parts = append(parts, fmt.Sprintf("%02d", int(at.Hours()))+strings.TrimSuffix(time.Time{}.Add(at).Format(":04:05.999999"), "."))
		}
		return strings.Join(parts, " ")
	case *array.Date32:
		return column.Value(i).ToTime().Format(time.DateOnly)
	}
	return column.ValueStr(i)
}

// readParquet reads the file with DuckDB.
func (o *oracle) readParquet(a *answer, file []byte) error {
	path := filepath.Join(o.t.TempDir(), "answer.parquet")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return err
	}
	from := "FROM read_parquet(" + quoteSQL(path) + ")"
	types, err := o.plain.query("SELECT column_type FROM (DESCRIBE " + from + ")")
	if err != nil {
		return err
	}
	for _, kind := range types {
		a.types = append(a.types, *kind[0])
	}
	rows, err := o.plain.asText(from)
	for _, texts := range rows {
		row := make([]any, len(texts))
		for i, text := range texts {
			if text != nil {
				row[i] = plainText(*text)
			}
		}
		a.rows = append(a.rows, row)
	}
	return err
}

// plainText is a value that DuckDB cast to VARCHAR.
type plainText string

// same reports whether a value of the store equals DuckDB's. loose treats the two zeros as
// equal, since a group may show either.
func (a *answer) same(kind string, got any, want *string, loose bool) bool {
	if want == nil {
		return got == nil
	}
	switch got := got.(type) {
	case nil:
		_, err := strconv.ParseFloat(*want, 64)
		infinite := kind == "DOUBLE" && err == nil && slices.Contains([]string{"nan", "inf", "-inf", "-nan"}, *want)
		return a.emptyIsNull && *want == "" || a.infiniteIsNull && infinite
	case plainText:
		if kind == "DOUBLE" {
			f, err := strconv.ParseFloat(string(got), 64)
			if n, isWhole := new(big.Int).SetString(*want, 10); isWhole { // Parquet has no HUGEINT
				whole, _ := new(big.Float).SetInt(n).Float64()
				return err == nil && math.Abs(f-whole) <= math.Abs(whole)*1e-15
			}
			return err == nil && a.same(kind, f, want, loose)
		}
		return string(got) == *want || kind == "INTERVAL" && strings.HasPrefix(*want, string(got)) // Parquet has milliseconds
	case float64:
		f, err := strconv.ParseFloat(*want, 64)
		return err == nil && (math.IsNaN(f) && math.IsNaN(got) || f == got && (loose || math.Signbit(f) == math.Signbit(got)))
	case []byte:
		return blobText(got) == *want
	case time.Time:
		return got.Format("2006-01-02 15:04:05.999999999") == strings.TrimSuffix(*want, "+00")
	}
	return fmt.Sprint(got) == strings.TrimSuffix(*want, map[bool]string{true: "+00"}[kind == "TIMESTAMP WITH TIME ZONE"])
}

// differ describes the first difference, or returns "".
func (a *answer) differ(want [][]*string, loose bool) string {
	if a.count != len(want) {
		return fmt.Sprintf("%d rows, want %d", a.count, len(want))
	}
	for i, row := range a.rows {
		for c, got := range row {
			if !a.same(a.types[c], got, want[i][c], loose) {
				text := "NULL"
				if want[i][c] != nil {
					text = *want[i][c]
				}
				return fmt.Sprintf("row %d, column %d (%s): got %#v, want %.200q", i+1, c+1, a.types[c], got, text)
			}
		}
	}
	return ""
}
