// Command demo-redis moves a million email events from a private Redis into a private
// MariaDB, in turns: with the engine, which runs Lua on every event and delivers exactly
// once; and with a published flow, which uses no Lua and can lose events. Both process
// every event alike and fill the same table. The ratio is the median of the pairs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/perigeedb/perigee/bench/article"
	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/internal/audit"
	"github.com/perigeedb/perigee/internal/e2e"
)

func main() {
	var d demo
	flag.StringVar(&d.binary, "perigee", "../bin/perigee", "the engine")
	flag.StringVar(&d.config, "config", "../examples/email/redis-mysql.yaml", "the pipeline")
	flag.Uint64Var(&d.events, "events", 1_000_000, "events that are moved, each time")
	flag.IntVar(&d.pairs, "pairs", 3, "times that the two take turns")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := d.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "demo-redis: error: %v\n", err)
		os.Exit(1)
	}
}

const seed = 1

type demo struct {
	binary, config string
	events         uint64
	pairs          int

	folder  string
	servers *e2e.Servers
	pusher  *e2e.Pusher
	peak    int64 // peak of an engine's resident memory, in bytes
}

func (d *demo) run(ctx context.Context) (err error) {
	if d.folder, err = os.MkdirTemp("", "perigee-demo-redis-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.folder)
	fmt.Println("starting a private Redis and a private MariaDB")
	if d.servers, err = e2e.StartServers(ctx, d.folder, nil, nil); err != nil {
		return err
	}
	defer d.servers.Close()
	if d.pusher, err = e2e.NewPusher(d.servers.Redis.Address(), e2e.List, seed); err != nil {
		return err
	}
	defer d.pusher.Close()

	var report audit.Report
	var ours, ratios []float64
	for pair := range d.pairs {
		rate, found, err := d.runEngine(ctx)
		if err != nil {
			return err
		}
		theirs, err := d.runArticle(ctx)
		if err != nil {
			return err
		}
		if pair == 0 || found.Err() != nil {
			report = found
		}
		ours, ratios = append(ours, rate), append(ratios, rate/theirs)
		fmt.Printf("pair %d: engine %.0f events/s, the article's flow %.0f events/s, ratio %.2f\n", pair+1, rate, theirs, rate/theirs)
	}
	fmt.Printf("demo: %v, %.0f events/s\n", report, rounds.Median(ours))
	fmt.Printf("figure demo_lost %d\nfigure demo_duplicated %d\nfigure demo_events_per_s %.0f\n", report.Lost, report.Duplicated, rounds.Median(ours))
	fmt.Printf("figure run_vs_article_flow %.2f\nfigure run_rss_mb %d\n", rounds.Median(ratios), d.peak>>20)
	return report.Err()
}

// runEngine fills the list, runs the engine until the list is empty, and audits the table.
func (d *demo) runEngine(ctx context.Context) (rate float64, report audit.Report, err error) {
	if err := d.reset(ctx); err != nil {
		return 0, report, err
	}
	began := time.Now()
	engine, err := e2e.StartProcess(d.binary, d.config, filepath.Join(d.folder, "engine.log"), d.servers.Env()...)
	if err != nil {
		return 0, report, err
	}
	defer engine.Kill()
	if err := d.waitEmpty(ctx, engine); err != nil {
		return 0, report, errors.Join(err, d.logError())
	}
	took := time.Since(began)
	if err := engine.Shutdown(ctx); err != nil {
		return 0, report, errors.Join(fmt.Errorf("the engine did not drain: %w", err), d.logError())
	}
	d.peak = max(d.peak, engine.PeakBytes())
	report, err = e2e.Audit(ctx, d.servers.DB, e2e.Table, []string{d.servers.Data}, seed, d.events)
	return float64(d.events) / took.Seconds(), report, err
}

func (d *demo) waitEmpty(ctx context.Context, engine *e2e.Process) error {
	for {
		waiting, err := d.pusher.Waiting(ctx)
		if err != nil || waiting == 0 {
			return err
		}
		select {
		case <-engine.Done():
			return fmt.Errorf("the engine ended with %d events waiting", waiting)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// runArticle runs the published flow on the table that the engine created.
func (d *demo) runArticle(ctx context.Context) (rate float64, err error) {
	if err := d.reset(ctx); err != nil {
		return 0, err
	}
	client := redis.NewClient(&redis.Options{Addr: d.servers.Redis.Address()})
	defer client.Close()
	began := time.Now()
	moved, err := article.Drain(ctx, client, e2e.List, d.servers.DB, article.Table{Name: e2e.Table, Columns: article.AllColumns})
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if uint64(moved) != d.events {
		return 0, fmt.Errorf("the article's flow moved %d of %d events", moved, d.events)
	}
	return float64(moved) / took.Seconds(), nil
}

// reset deletes what earlier turns left and fills the list again.
func (d *demo) reset(ctx context.Context) error {
	if err := d.pusher.FlushAll(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(d.servers.Data); err != nil {
		return err
	}
	for _, table := range []string{e2e.Table, "perigee_ranges", "perigee_owners"} {
		if _, err := d.servers.DB.ExecContext(ctx, "TRUNCATE TABLE "+table); err != nil && !isMissingTable(err) {
			return fmt.Errorf("empty table %s: %w", table, err)
		}
	}
	return d.pusher.PushUpTo(ctx, d.events)
}

// logError returns the engine's log as an error, for when it failed.
func (d *demo) logError() error {
	log, err := os.ReadFile(filepath.Join(d.folder, "engine.log"))
	if err != nil {
		return err
	}
	return fmt.Errorf("its log:\n%s", log)
}
