// Command pipeline moves a million email events of about 360 bytes from a private Redis
// into a table of a private MariaDB or PostgreSQL: with the engine, which runs a Lua script
// on every event and delivers exactly once, and with the common alternatives. Each round
// runs every contestant once, and a ratio is the median over the rounds, so that a drifting
// speed of the machine affects all alike.
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
		exit(runContestant(os.Args[2], os.Args[3:]))
	}
	var b bench
	quick := false
	flag.StringVar(&b.binary, "perigee", "../bin/perigee", "the engine")
	flag.StringVar(&b.script, "script", "../examples/email/email.lua", "the script of the engine")
	flag.Uint64Var(&b.events, "events", 1_000_000, "events to move in each turn")
	flag.Uint64Var(&b.slowEvents, "slow", 200_000, "events that the Perl flow moves, which is slow")
	flag.IntVar(&b.rounds, "rounds", 3, "turns of every contestant; Perl and Python have one")
	flag.StringVar(&b.only, "only", "", "only contestants whose name contains one of these texts: a|b")
	flag.StringVar(&b.profile, "profile", "", "a shell command to run beside the engine, with the engine's process id in $PID")
	flag.BoolVar(&b.withKafka, "kafka", false, "also read from Kafka; needs Java and PERIGEE_KAFKA_JARS, the folder of Kafka's jars")
	flag.BoolVar(&quick, "quick", false, "100,000 events, one round")
	flag.Parse()
	if quick {
		b.events, b.slowEvents, b.rounds = 100_000, 20_000, 1
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
