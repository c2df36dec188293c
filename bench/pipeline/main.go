// Command pipeline moves a million email events of about 360 bytes from a
// private Redis into a table of a private MariaDB or PostgreSQL: with the
// engine, a Lua script on every event, exactly once; and in the ways that one
// finds elsewhere. In each round everybody takes a turn, and a ratio is the
// median over the rounds, so that a machine whose speed drifts is equally unkind
// to all.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "as" {
		exit(contest(os.Args[2], os.Args[3:]))
	}
	var b bench
	quick := false
	flag.StringVar(&b.binary, "perigee", "../bin/perigee", "the engine")
	flag.StringVar(&b.script, "script", "../examples/email/email.lua", "the script of the engine")
	flag.Uint64Var(&b.events, "events", 1_000_000, "events that are moved, each time")
	flag.Uint64Var(&b.slow, "slow", 200_000, "events that the Perl flow moves")
	flag.IntVar(&b.rounds, "rounds", 3, "turns of everybody; Perl and Python have one")
	flag.StringVar(&b.only, "only", "", "only contestants whose name has one of these in it: a|b")
	flag.StringVar(&b.profile, "profile", "", "a shell command to run beside the engine, which finds its number in $PID")
	flag.BoolVar(&b.withKafka, "kafka", false, "from a Kafka as well: takes Java, and its jars where PERIGEE_KAFKA_JARS says")
	flag.BoolVar(&quick, "quick", false, "100,000 events, one round")
	flag.Parse()
	if quick {
		b.events, b.slow, b.rounds = 100_000, 20_000, 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(b.run(ctx))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "pipeline: error: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}
