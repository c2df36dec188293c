//go:build linux && cgo

package statement

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

var update = flag.Bool("update", false, "write testdata/trees.json")

// TestRecordedTrees compares the recorded syntax trees, with which the other tests run, with those
// of DuckDB.
func TestRecordedTrees(t *testing.T) {
	db, err := duckdb.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer duck.Close(&db)
	c, err := duckdb.Connect(db)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var trees bytes.Buffer
	separator := "{\n"
	for _, sql := range recordedSQL() {
		rows, err := c.Run(`SELECT CAST(json_serialize_sql(CAST(? AS VARCHAR)) AS VARCHAR)`, protocol.Param{Value: sql})
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		key, err := json.Marshal(sql)
		if err != nil {
			t.Fatal(err)
		}
		trees.WriteString(separator + string(key) + ": " + rows[0][0].(string))
		separator = ",\n"
	}
	trees.WriteString("\n}\n")
	if *update {
		if err := os.WriteFile(treesFile, trees.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	recorded, err := os.ReadFile(treesFile)
	if err != nil {
		t.Fatal(err)
	}
	got, want := bytes.Split(recorded, []byte("\n")), bytes.Split(trees.Bytes(), []byte("\n"))
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !bytes.Equal(got[i], want[i]) {
			t.Fatalf("%s differs from DuckDB's trees in line %d: run go test -update\ngot  %.300s\nwant %.300s", treesFile, i+1, lineOf(got, i), lineOf(want, i))
		}
	}
}

func lineOf(lines [][]byte, i int) []byte {
	if i < len(lines) {
		return lines[i]
	}
	return nil
}
