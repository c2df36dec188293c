// Command queries loads the same events into the embedded event store, a DuckDB file, Parquet
// files and QuestDB, and asks all of them the same questions in turns, right after the store
// was written and after a restart. It compares what they find. It also measures a query of the
// last minutes over few and many files, and the memory of ingest and heavy queries together.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/bench/stores"
)

func main() {
	stores.Init()
	var b bench
	flag.StringVar(&b.jars, "questdb", "../.build/questdb", "the folder of QuestDB's jars")
	flag.Uint64Var(&b.rows, "rows", 50_000_000, "rows to load")
	flag.IntVar(&b.distinct, "distinct", 1_000_000, "distinct rows")
	flag.IntVar(&b.rounds, "rounds", 7, "rounds of all queries, after one that warms up")
	flag.DurationVar(&b.loadTime, "load", 30*time.Second, "how long to write and query at the same time")
	flag.StringVar(&b.only, "only", "", "only stores whose name contains one of these texts: a|b; Parquet needs DuckDB")
	quick := flag.Bool("quick", false, "small sizes and one round, to see that everything runs")
	flag.Parse()
	if *quick {
		b.rows, b.distinct, b.rounds, b.loadTime = 200_000, 50_000, 1, 3*time.Second
	}
	b.distinct = int(min(uint64(b.distinct), b.rows)) // so that every query finds rows
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "queries: error: %v\n", err)
		os.Exit(1)
	}
}
