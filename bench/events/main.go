// Command events writes the same events into the embedded event store, into a DuckDB file
// through its appender, and into QuestDB with and without synced commits, and compares them
// with a loop that only writes and syncs the bytes. Every store runs in a process of its own,
// and every round runs all of them, each on an empty folder. It also measures acknowledgements
// at a fixed rate, a pipeline from JSON through Lua into the store, the restart after kill -9,
// and what an idle engine costs. Ratios are medians over the rounds.
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
	flag.StringVar(&b.binary, "perigee", "../bin/perigee", "the engine")
	flag.StringVar(&b.jars, "questdb", "../.build/questdb", "the folder of QuestDB's jars")
	flag.IntVar(&b.rows, "rows", 1_000_000, "distinct rows")
	flag.IntVar(&b.rounds, "rounds", 3, "rounds")
	flag.DurationVar(&b.time, "time", time.Minute, "how long each store is written to at full speed, for each size of commits")
	flag.DurationVar(&b.openTime, "open", 30*time.Second, "how long each store is written to at the fixed rate")
	flag.IntVar(&b.writers, "writers", 2, "goroutines that write to a store at full speed, except the loop that only writes")
	flag.IntVar(&b.rate, "rate", 100_000, "the fixed rate, in rows/s")
	flag.Uint64Var(&b.events, "events", 2_000_000, "events of each run of the pipeline")
	flag.StringVar(&b.only, "only", "", "only stores whose name contains one of these texts: a|b")
	quick := flag.Bool("quick", false, "small sizes and one round, to see that everything runs")
	flag.Parse()
	if *quick {
		b.rows, b.rounds, b.time, b.openTime, b.events = 50_000, 1, 2*time.Second, 2*time.Second, 100_000
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "events: error: %v\n", err)
		os.Exit(1)
	}
}
