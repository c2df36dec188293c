// Command crash kills the engine, Redis and MariaDB again and again while events
// flow from one to the other through a Lua script, and then looks for every
// event: each must be in the table, dropped by the script or a dead letter,
// exactly once. It prints what it did and the seed that repeats it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	var p plan
	flag.StringVar(&p.binary, "perigee", "bin/perigee", "the binary to kill")
	flag.StringVar(&p.examples, "examples", "examples/email", "folder of the email example")
	flag.Uint64Var(&p.events, "events", 200_000, "events that flow")
	flag.IntVar(&p.kills, "kills", 50, "times that the engine is killed")
	flag.IntVar(&p.serverKills, "server-kills", 6, "times that Redis, and MariaDB, are killed")
	flag.IntVar(&p.freezes, "freezes", 5, "times that the engine is frozen, another takes over, and it wakes up")
	flag.IntVar(&p.stalls, "stalls", 10, "times that Redis or MariaDB hangs while the engine is killed")
	flag.Uint64Var(&p.seed, "seed", uint64(time.Now().UnixNano()), "repeats a run's random choices")
	flag.BoolVar(&p.keep, "keep", false, "keep the folder with the servers' data and the engine's log")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, p); err != nil {
		fmt.Fprintf(os.Stderr, "crash: error: %v\n", err)
		os.Exit(1)
	}
}

// plan is what a run is asked to do.
type plan struct {
	binary, examples   string
	events, seed       uint64
	kills, serverKills int
	freezes, stalls    int
	keep               bool
}

func run(ctx context.Context, p plan) (err error) {
	folder, err := os.MkdirTemp("", "perigee-crash-")
	if err != nil {
		return err
	}
	defer func() {
		if p.keep || err != nil {
			fmt.Fprintf(os.Stderr, "crash: servers' data and the engine's log are in %s\n", folder)
			return
		}
		os.RemoveAll(folder)
	}()
	fmt.Printf("crash: seed %d\n", p.seed)

	s, err := startStage(ctx, p, folder)
	if err != nil {
		return err
	}
	defer s.close()
	done, err := s.torment(ctx, rand.New(rand.NewPCG(p.seed, 0)))
	if err != nil {
		return err
	}
	report, err := s.verify(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("crash: engine killed %d times (%d while events waited), Redis %d, MariaDB %d\n", done.engine, done.busy, done.redis, done.mariadb)
	fmt.Printf("crash: engine frozen and overtaken %d times, a server hanging at its death %d times\n", done.frozen, done.stalled)
	fmt.Printf("crash: %s\n", report)
	fmt.Printf("figure crash_kills %d\nfigure crash_lost %d\nfigure crash_duplicated %d\n", done.engine, report.Lost, report.Duplicated)
	if report.Err() != nil {
		return fmt.Errorf("seed %d: %w", p.seed, report.Err())
	}
	if done.engine < p.kills {
		return errors.New("the events ran out before the kills: ask for more events")
	}
	return nil
}

func (p plan) log(folder string) string { return filepath.Join(folder, "engine.log") }
