package main

import (
	"strings"
	"testing"

	"github.com/perigeedb/perigee/bench/stores"
)

// answers returns times in which our store takes a millisecond and every other factor
// milliseconds, and ten times as long for the named query.
func answers(factor float64, slow string) times {
	t := times{}
	for _, q := range queries(1) {
		for _, name := range contestants {
			ms := factor
			if name == stores.Perigee {
				ms = 1
			} else if q.name == slow {
				ms *= 10
			}
			t[timeKey{q.name, name}] = []float64{ms, ms, ms}
		}
	}
	return t
}

func TestFiguresAreTheWorse(t *testing.T) {
	b := bench{rounds: 3, fresh: answers(2, latestQuery), restart: answers(0.5, rareQuery), files: fileTimes{few: []float64{2}, many: []float64{5}}}
	var out strings.Builder
	b.printTables(&out)
	b.printFigures(&out)
	for _, want := range []string{
		"figure q_geomean_vs_duckdb_file 0.50\n", // the rare event is not one of the ten
		"figure q_worst_vs_duckdb_file 0.50\n",
		"figure q_latest100_vs_glob 0.50\n",
		"figure q_rare_vs_glob 2.00\n",
		"figure q_2000_files_slowdown 2.50\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not contain %q:\n%s", want, out.String())
		}
	}
}
