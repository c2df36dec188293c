package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
)

const (
	seed     = 1
	list     = "pepi_queue"
	stream   = "pepi_stream"
	database = "mail"
	table    = "events"
)

// columns are the columns of the table, without its counter.
var columns = []string{"id", "event_name", "email", "domain", "topic", "campaign_number", "time", "url"}

// A bench is one run of the program.
type bench struct {
	binary, script, only, profile string
	events, slowEvents            uint64
	rounds                        int
	withKafka                     bool

	folder   string
	queue    *queue
	defaults *mariadb // with default settings
	mode2    *mariadb // with innodb_autoinc_lock_mode=2
	postgres *postgres
	kafka    *broker // nil without -kafka
	ready    readyRows
	results  map[string]*result
	order    []string // names of the results in the order of their turns
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.folder, err = os.MkdirTemp("", "perigee-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.folder)
	// PostgreSQL does not run as root and needs access to its folder in this one.
	if err := os.Chmod(b.folder, 0o755); err != nil {
		return err
	}
	if err := b.startServers(ctx); err != nil {
		return err
	}
	defer b.stopServers()
	b.results = map[string]*result{}
	for round := range b.rounds {
		for _, c := range b.contestants() {
			if round > 0 && c.firstRoundOnly || !b.selected(c.name) {
				continue
			}
			if err := b.runTurn(ctx, round, c); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	b.printTable(os.Stdout)
	b.printFigures(os.Stdout)
	return nil
}

// startServers starts the servers and fills the queues.
func (b *bench) startServers(ctx context.Context) (err error) {
	logf("starting Redis, two MariaDB, PostgreSQL; making %d events", b.events)
	if b.queue, err = startQueue(ctx, filepath.Join(b.folder, "redis"), b.events); err != nil {
		return err
	}
	if b.defaults, err = startMariaDB(ctx, filepath.Join(b.folder, "default")); err != nil {
		return err
	}
	cert, key, err := testserver.CreateCertificate(b.folder)
	if err != nil {
		return err
	}
	if b.mode2, err = startMariaDB(ctx, filepath.Join(b.folder, "mode2"), "--innodb-autoinc-lock-mode=2", "--ssl-cert="+cert, "--ssl-key="+key); err != nil {
		return err
	}
	if b.postgres, err = startPostgreSQL(ctx, filepath.Join(b.folder, "postgres")); err != nil {
		return err
	}
	if b.ready, err = writeReadyRows(filepath.Join(b.folder, "rows"), b.events, b.slowEvents); err != nil || !b.withKafka {
		return err
	}
	logf("starting Kafka, filling it with as many")
	b.kafka, err = b.startBroker(ctx)
	return err
}

func (b *bench) stopServers() {
	if b.queue != nil {
		b.queue.close()
	}
	for _, m := range []*mariadb{b.defaults, b.mode2} {
		if m != nil {
			m.close()
		}
	}
	if b.postgres != nil {
		b.postgres.close()
	}
	if b.kafka != nil {
		b.kafka.close()
	}
}

// runTurn runs a contestant once.
func (b *bench) runTurn(ctx context.Context, round int, c contestant) error {
	logf("round %d of %d: %s", round+1, b.rounds, c.name)
	if err := c.to.empty(ctx); err != nil {
		return err
	}
	if err := c.from.fill(ctx, c.events); err != nil {
		return err
	}
	// Background work of the previous turn must not count for this one.
	time.Sleep(quietTime)
	m, err := b.measure(ctx, c)
	if err != nil {
		return err
	}
	if err := c.check(ctx); err != nil {
		return err
	}
	r := b.results[c.name]
	if r == nil {
		r = &result{events: c.events}
		b.results[c.name] = r
		b.order = append(b.order, c.name)
	}
	r.add(m)
	logf("  %.0f events/s", m.rate)
	return nil
}

// selected reports whether a contestant takes part.
func (b *bench) selected(name string) bool {
	return slices.ContainsFunc(strings.Split(b.only, "|"), func(part string) bool { return strings.Contains(name, part) })
}

const quietTime = time.Second

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
