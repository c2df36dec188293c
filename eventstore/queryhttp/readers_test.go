//go:build linux && cgo

package queryhttp

import (
	"encoding/csv"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/eventstoretest"
)

// storedTypes is a result with all column types and with nulls, twice in different chunks.
const storedTypes = `SELECT CASE WHEN i % 2 = 0 THEN i END AS whole, i::INTEGER AS small, i % 2 = 0 AS even, i + 0.5::DOUBLE AS half,
	(i || '.25')::DECIMAL(18,2) AS money, 'row "' || i || '", ☾' AS text, TIMESTAMP '2026-01-02 03:04:05.123456' + to_days(i::INTEGER) AS at,
	TIMESTAMP_NS '2026-01-02 03:04:05.123456789' AS nanos, ('{"n": ' || i || '}')::JSON AS document, 'a\x00b'::BLOB AS bytes,
	[i, NULL] AS list, {'a': i, 'b': 'x'} AS struct
FROM range(5000) t(i) ORDER BY i`

// readArrow prints the types, the number of rows, and rows 0 and 4999, as pyarrow reads them.
const readArrow = `
import json, sys, pyarrow as pa, pyarrow.parquet as pq
table = pq.read_table(sys.argv[2]) if sys.argv[1] == "parquet" else pa.ipc.open_stream(sys.argv[2]).read_all()
table.validate(full=True)
rows = []
for i in (0, table.num_rows - 1):
    row = {}
    for name in table.column_names:
        scalar = table.column(name)[i]
        row[name] = str(scalar.value) if name == "nanos" else str(scalar.as_py())
    rows.append(row)
print(json.dumps({"rows": table.num_rows, "types": [str(f.type) for f in table.schema], "first": rows[0], "last": rows[1]}))
`

// readCSV prints the number of rows, and the first and last, as Python's reader reads them.
const readCSV = `
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[2], newline="")))
print(json.dumps({"rows": len(rows), "first": rows[0], "last": rows[-1]}))
`

// TestFormatsInTheirReaders reads each format with another program's reader. make test-sql
// installs pyarrow.
func TestFormatsInTheirReaders(t *testing.T) {
	pyarrow := os.Getenv("PERIGEE_PYARROW")
	if pyarrow == "" {
		t.Skip("PERIGEE_PYARROW does not name a folder with pyarrow: make test-sql")
	}
	s := eventstoretest.Open(t, eventstore.TableConfig{})
	server := httptest.NewServer(Handler(s, eventstore.Limits{}))
	defer server.Close()
	ask := func(format string) string {
		status, body, _ := post(t, server.URL+"?format="+format, "", storedTypes)
		if status != 200 {
			t.Fatalf("%s: %d %s", format, status, body)
		}
		return body
	}
	type result struct {
		Rows        int
		Types       []string
		First, Last map[string]string
	}
	python := func(script, format string) (r result) {
		path := filepath.Join(t.TempDir(), "result")
		if err := os.WriteFile(path, []byte(ask(format)), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command("python3", "-c", script, format, path)
		command.Env = append(os.Environ(), "PYTHONPATH="+pyarrow)
		out, err := command.CombinedOutput()
		if err != nil || json.Unmarshal(out, &r) != nil {
			t.Fatalf("%s: %v\n%s", format, err, out)
		}
		return r
	}
	want := map[string]string{
		"whole": "0", "small": "0", "even": "True", "half": "0.5", "money": "0.25", "text": `row "0", ☾`, "at": "2026-01-02 03:04:05.123456",
		"nanos": "1767323045123456789", "document": `{"n": 0}`, "bytes": `b'a\x00b'`, "list": "[0, None]", "struct": "{'a': 0, 'b': 'x'}",
	}
	types := []string{"int64", "int32", "bool", "double", "decimal128(18, 2)", "string", "timestamp[us]", "timestamp[ns]"}
	for _, format := range []string{"arrow", "parquet"} {
		got := python(readArrow, format)
		if diff := cmp.Diff(want, got.First); diff != "" || got.Rows != 5000 {
			t.Errorf("%s: %d rows, the first (-want +got):\n%s", format, got.Rows, diff)
		}
		if got.Last["whole"] != "None" || got.Last["struct"] != "{'a': 4999, 'b': 'x'}" {
			t.Errorf("%s: last row %v", format, got.Last)
		}
		if !slices.Equal(got.Types[:7], types[:7]) {
			t.Errorf("%s: types %q", format, got.Types)
		}
	}
	if got := python(readCSV, "csv"); got.Rows != 5000 || got.First["text"] != `row "0", ☾` || got.Last["whole"] != "" || got.Last["money"] != "4999.25" {
		t.Errorf("csv: %+v", got)
	}
	if rows, err := csv.NewReader(strings.NewReader(ask("csv"))).ReadAll(); err != nil || len(rows) != 5001 {
		t.Errorf("csv: %d rows, %v", len(rows), err)
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(ask("json")), &all); err != nil || len(all) != 5000 || all[4999]["whole"] != nil || all[4998]["document"].(map[string]any)["n"] != 4998.0 {
		t.Errorf("json: %d rows, %v", len(all), err)
	}
	lines := 0
	for decoder := json.NewDecoder(strings.NewReader(ask("ndjson"))); decoder.More(); lines++ {
		var row map[string]any
		if err := decoder.Decode(&row); err != nil {
			t.Fatal(err)
		}
	}
	if lines != 5000 {
		t.Errorf("ndjson: %d rows", lines)
	}
}
