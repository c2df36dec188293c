package main

import (
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/bench/stores"
)

// turns returns turns of a second each.
func turns(rows ...uint64) (all []turn) {
	for _, n := range rows {
		all = append(all, turn{Report: stores.Report{Rows: n, Took: time.Second, Ack: stores.Times{Longest: time.Duration(n) * time.Millisecond}}})
	}
	return all
}

func TestFigures(t *testing.T) {
	b := bench{open: map[string][]turn{stores.Perigee: turns(3, 7, 5), stores.Raw: turns(2, 2, 1)}, closed: map[closedKey][]turn{
		{stores.Perigee, smallBatch}: turns(20, 60, 40), {stores.DuckDB, smallBatch}: turns(10, 20, 10),
		{stores.Perigee, largeBatch}: turns(50, 50, 50), {stores.DuckDB, largeBatch}: turns(40, 20, 10),
		{stores.QuestDB, largeBatch}: turns(100, 100, 100),
	}}
	var out strings.Builder
	b.printTables(&out)
	b.printFigures(&out)
	for _, want := range []string{
		"figure ingest_vs_duckdb 2.50\n", // the lesser of 3 and 2.5, each a median over the rounds
		"figure ingest_vs_questdb_default 0.50\n",
		"figure ingest_rows_per_s 50.0\n",
		"figure commit_stall_max_ms 7.0\n",
		"figure ack_longest_vs_raw 3.5\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not contain %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "questdb_sync") {
		t.Error("a store without a turn has a figure")
	}
}
