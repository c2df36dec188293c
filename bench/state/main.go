// Command state measures what exactly-once state costs a pipeline. Events of a Redis list go through
// Lua into MariaDB: with a script that counts the events of each user in the pipeline's state, with the
// same script without state, and with a worker that counts with pipelined HINCRBY in Redis, which counts
// twice after a crash. With 10 million users it also measures disk and memory. At last it counts a Kafka
// topic, and Kafka Streams does. All run in turns, and a ratio is the median over the rounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type bench struct {
	program    string // the engine
	folder     string
	events     int
	manyUsers  int
	manyEvents int // of a turn with so many users
	rounds     int
	only       string
	jars       string // of Kafka Streams
	*servers
	results map[string][]*result // by the contestant's name
}

func main() {
	b := &bench{results: map[string][]*result{}}
	flag.StringVar(&b.program, "perigee", "../bin/perigee", "the engine")
	flag.StringVar(&b.jars, "streams", "../.build/kafka-streams", "the folder of the jars of Kafka Streams")
	flag.IntVar(&b.events, "events", 1_000_000, "events of a turn; twice as many from Kafka")
	flag.IntVar(&b.rounds, "rounds", 3, "rounds")
	flag.IntVar(&b.manyUsers, "users", 10_000_000, "users of the turn with many")
	flag.IntVar(&b.manyEvents, "many-events", 3_000_000, "events of the turn with many users")
	flag.StringVar(&b.only, "only", "", "only contestants whose name contains one of these texts: a|b")
	quick := flag.Bool("quick", false, "small sizes and one round, to see that everything runs")
	flag.Parse()
	if *quick {
		b.events, b.rounds, b.manyUsers, b.manyEvents = 50_000, 1, 200_000, 100_000
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "state: error: %v\n", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.program, err = filepath.Abs(b.program); err != nil {
		return err
	}
	if _, err := exec.LookPath(b.program); err != nil {
		return fmt.Errorf("no engine: run make build: %w", err)
	}
	if b.folder, err = os.MkdirTemp("", "state-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if b.servers, err = startServers(ctx, b.folder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.servers.stop()) }()
	if err := b.runRounds(ctx, b.withTable()); err != nil {
		return err
	}
	if err := b.runKafka(ctx); err != nil {
		return err
	}
	b.print(os.Stdout)
	return nil
}

// A contestant is one way of counting.
type contestant struct {
	name string
	run  func(ctx context.Context) (*result, error)
}

func (b *bench) runRounds(ctx context.Context, all []contestant) error {
	for round := range b.rounds {
		for i := range all {
			if round%2 == 1 {
				i = len(all) - 1 - i
			}
			c := all[i]
			if !b.selected(c.name) {
				continue
			}
			began := time.Now()
			r, err := c.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			logf("round %d of %d: %-24s %s (turn of %.0f s)", round+1, b.rounds, c.name, r, time.Since(began).Seconds())
			b.results[c.name] = append(b.results[c.name], r)
		}
	}
	return nil
}

func (b *bench) selected(name string) bool {
	for text := range strings.SplitSeq(b.only, "|") {
		if strings.Contains(name, text) {
			return true
		}
	}
	return false
}

func logf(format string, args ...any) {
	fmt.Printf("%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
