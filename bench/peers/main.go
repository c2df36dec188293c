// Command peers moves a million email events from a private Redis list into a private MariaDB with the
// engine, with Benthos, which removes events when it reads them or once they are written, and with a worker
// in plain Go: in turns, and then once more while each is killed
// ten times. It prints events a second, processor time, memory, and how many events each has lost and
// doubled. All have as many batches in flight, and batches of the same size.
package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	pretty "github.com/jedib0t/go-pretty/v6/table"
	"github.com/redis/go-redis/v9"

	"github.com/perigeedb/perigee/bench/process"
	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/internal/plot"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source/generate"
)

const (
	list        = "pepi_queue"
	archive     = "archive" // of all events, which each turn copies
	database    = "mail"
	seed        = 1
	lanes       = 2
	batchEvents = 4000
	kills       = 10
	turnLimit   = 10 * time.Minute
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == "as" {
		exit(runAs(os.Args[2], os.Args[3], os.Args[4]))
	}
	var b bench
	perigee := flag.String("perigee", "../../bin/perigee", "the engine")
	script := flag.String("script", "../../examples/email/email.lua", "the script of the engine")
	flag.IntVar(&b.events, "events", 1_000_000, "events of a turn")
	flag.IntVar(&b.rounds, "rounds", 3, "turns of each without kills")
	drawing := flag.String("plot", "", "file for a plot of the rounds")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err1, err2 error
	b.perigee, err1 = filepath.Abs(*perigee)
	b.script, err2 = filepath.Abs(*script)
	exit(cmp.Or(err1, err2, b.run(ctx, *drawing)))
}

// runAs runs this program as one of the contestants that are written in Go.
func runAs(name, redisAddress, dsn string) error {
	ctx := context.Background()
	switch name {
	case "benthos":
		return runBenthos(ctx, redisAddress, dsn, false)
	case "benthos_keeping":
		return runBenthos(ctx, redisAddress, dsn, true)
	case "worker":
		return runWorker(ctx, redisAddress, dsn)
	}
	return fmt.Errorf("unknown contestant %q", name)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A bench is one run of the program.
type bench struct {
	perigee, script string
	events, rounds  int

	folder  string
	queue   *testserver.RedisServer
	client  *redis.Client
	server  *testserver.MariaDBServer
	db      *sql.DB
	rows    int // that all events make
	results map[string]*result
}

// A contestant is one way of moving events.
type contestant struct {
	name     string
	settings string
	// command returns a command that goes on where one before it was killed. It ends by itself
	// when the list is empty, unless it runs until it is stopped.
	command          func() (*exec.Cmd, error)
	runsUntilStopped bool
}

type result struct {
	rates, times, memory []float64 // events/s, microseconds of processor time of an event, MB
	lost, doubled        int
}

func (b *bench) contestants() []contestant {
	self := func(name string) func() (*exec.Cmd, error) {
		return func() (*exec.Cmd, error) {
			path, err := os.Executable()
			return exec.Command(path, "as", name, b.queue.Address(), b.server.DSN(database)), err
		}
	}
	return []contestant{
		{"perigee", fmt.Sprintf("LRANGE ahead, Lua, %d lanes of %d events, exactly once", lanes, batchEvents), b.engine, true},
		{"benthos", fmt.Sprintf("v4.60.0, LPOP %d, Bloblang in %d threads, %d INSERTs of a batch in flight", batchEvents, lanes, lanes), self("benthos"), false},
		{"benthos_keeping", "the same with LRANGE ahead, and LTRIM once a batch and those before it are acknowledged", self("benthos_keeping"), false},
		{"worker", fmt.Sprintf("Go, LRANGE ahead, encoding/json, %d INSERTs of %d events in flight, then LTRIM", lanes, batchEvents), self("worker"), false},
	}
}

// engine returns the command of the engine.
func (b *bench) engine() (*exec.Cmd, error) {
	path := filepath.Join(b.folder, "engine.yaml")
	err := os.WriteFile(path, fmt.Appendf(nil, `data: %s
http: off
pipelines:
  bench:
    source: {redis: {address: %q, list: %s}}
    script: %s
    sink:
      mysql: {address: %q, user: root, database: %s, table: %s, columns: [
        {name: id, type: int64, required: true}, {name: event_name, type: string, required: true},
        {name: email, type: string, required: true}, {name: domain, type: string, required: true},
        {name: topic, type: string, required: true}, {name: campaign_number, type: int32, required: true},
        {name: time, type: timestamp, required: true}, {name: url, type: string, required: true}]}
    lanes: %d
    batch: {events: %d, bytes: 2MiB}
`, b.data(), b.queue.Address(), list, b.script, b.server.Address(), database, table, lanes, batchEvents), 0o600)
	return exec.Command(b.perigee, "run", path), err
}

func (b *bench) data() string { return filepath.Join(b.folder, "data") }

func (b *bench) run(ctx context.Context, drawing string) (err error) {
	if b.folder, err = os.MkdirTemp("", "perigee-peers-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.folder)
	if err := b.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.client.Close(), b.db.Close(), b.queue.Stop(), b.server.Stop()) }()
	b.results = map[string]*result{}
	all := b.contestants()
	for _, c := range all {
		b.results[c.name] = &result{}
		fmt.Printf("%s: %s\n", c.name, c.settings)
	}
	for round := range b.rounds {
		for i := range all {
			if round%2 == 1 {
				i = len(all) - 1 - i
			}
			if err := b.turn(ctx, &all[i]); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
		}
	}
	for i := range all {
		if err := b.killTurn(ctx, &all[i]); err != nil {
			return fmt.Errorf("%s, killed: %w", all[i].name, err)
		}
	}
	b.print(all)
	if drawing == "" {
		return nil
	}
	return os.WriteFile(drawing, b.plot(all), 0o644)
}

// start starts the servers and fills the archive.
func (b *bench) start(ctx context.Context) (err error) {
	if b.queue, err = testserver.StartRedis(ctx, filepath.Join(b.folder, "redis")); err != nil {
		return err
	}
	b.client = redis.NewClient(&redis.Options{Addr: b.queue.Address()})
	var batch []any
	for i := range b.events {
		doc := generate.Append(nil, seed, uint64(i))
		var e email
		if err := json.Unmarshal(doc, &e); err != nil {
			return err
		}
		if e.Name != "spam" && strings.Contains(e.Email, "@") {
			b.rows++
		}
		if batch = append(batch, doc); len(batch) == 1000 || i == b.events-1 {
			if err := b.client.RPush(ctx, archive, batch...).Err(); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if b.server, err = testserver.StartMariaDB(ctx, filepath.Join(b.folder, "mariadb"), "--innodb-autoinc-lock-mode=2", "--max-allowed-packet=64M"); err != nil {
		return err
	}
	first, err := sql.Open("mysql", b.server.DSN(""))
	if err != nil {
		return err
	}
	defer first.Close()
	if _, err := first.ExecContext(ctx, "CREATE DATABASE "+database); err != nil {
		return err
	}
	b.db, err = sql.Open("mysql", b.server.DSN(database))
	return err
}

// prepare empties the table and fills the list.
func (b *bench) prepare(ctx context.Context) error {
	for _, name := range []string{table, "perigee_ranges", "perigee_owners", "perigee_leases", "perigee_workers"} {
		if _, err := b.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+name); err != nil {
			return err
		}
	}
	if _, err := b.db.ExecContext(ctx, createTable); err != nil {
		return err
	}
	keys, err := b.client.Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if key == archive {
			continue
		}
		if err := b.client.Del(ctx, key).Err(); err != nil {
			return err
		}
	}
	if err := errors.Join(os.RemoveAll(b.data()), b.client.Copy(ctx, archive, list, 0, true).Err()); err != nil {
		return err
	}
	time.Sleep(time.Second) // for what the servers do behind the turn before
	return nil
}

// running is a started contestant.
type running struct {
	command *exec.Cmd
	log     bytes.Buffer
	ended   chan error
}

func (c *contestant) start() (*running, error) {
	command, err := c.command()
	if err != nil {
		return nil, err
	}
	r := &running{command: command, ended: make(chan error, 1)}
	command.Stdout, command.Stderr = &r.log, &r.log
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() { r.ended <- command.Wait() }()
	return r, nil
}

// finish waits until the contestant has moved all events, and kills it if it does not.
func (b *bench) finish(ctx context.Context, c *contestant, r *running) (err error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	defer func() {
		if err != nil {
			_ = r.command.Process.Kill()
		}
	}()
	for {
		select {
		case err := <-r.ended:
			r.ended <- err
			if err != nil || c.runsUntilStopped {
				return fmt.Errorf("it has ended: %v\n%s", err, &r.log)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if !c.runsUntilStopped {
			continue
		}
		if left, err := b.client.LLen(ctx, list).Result(); err != nil || left == 0 {
			return err
		}
	}
}

// stop stops a contestant that does not end by itself.
func (c *contestant) stop(r *running) error {
	if !c.runsUntilStopped {
		return nil
	}
	_ = r.command.Process.Signal(syscall.SIGTERM)
	return <-r.ended
}

// count returns how many rows the table has, and of how many events.
func (b *bench) count(ctx context.Context) (rows, ids int, err error) {
	err = b.db.QueryRowContext(ctx, "SELECT COUNT(*), COUNT(DISTINCT id) FROM "+table).Scan(&rows, &ids)
	return rows, ids, err
}

// turn measures a contestant that nobody disturbs.
func (b *bench) turn(ctx context.Context, c *contestant) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	began := time.Now()
	r, err := c.start()
	if err != nil {
		return err
	}
	peak := process.WatchMemory(r.command.Process.Pid, process.PeakResident)
	err = b.finish(ctx, c, r)
	took := time.Since(began)
	memory := peak()
	if err = errors.Join(err, c.stop(r)); err != nil {
		return err
	}
	rows, ids, err := b.count(ctx)
	if err != nil || rows != b.rows || ids != b.rows {
		return errors.Join(err, fmt.Errorf("%d rows of %d events, want %d", rows, ids, b.rows))
	}
	state, res := r.command.ProcessState, b.results[c.name]
	res.rates = append(res.rates, float64(b.events)/took.Seconds())
	res.times = append(res.times, float64((state.UserTime()+state.SystemTime()).Microseconds())/float64(b.events))
	res.memory = append(res.memory, float64(memory)/1e6)
	fmt.Fprintf(os.Stderr, "%s: %.0f events/s\n", c.name, float64(b.events)/took.Seconds())
	return nil
}

// killTurn kills a contestant ten times on its way, and counts what it has lost and doubled. Each kill
// comes at a random moment within the time of half a part, after one more part of the events has left
// the list.
func (b *bench) killTurn(ctx context.Context, c *contestant) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	const parts = kills + 2
	half := time.Duration(float64(b.events) / parts / rounds.Median(b.results[c.name].rates) / 2 * float64(time.Second))
	killed := 0
	for ; killed < kills; killed++ {
		r, err := c.start()
		if err != nil {
			return err
		}
		for moved := int64(-1); moved < int64(b.events*(killed+1)/parts); {
			left, err := b.client.LLen(ctx, list).Result()
			if err != nil {
				return err
			}
			moved = int64(b.events) - left
			time.Sleep(time.Millisecond)
		}
		time.Sleep(rand.N(half))
		_ = r.command.Process.Kill()
		if err := <-r.ended; err == nil {
			return fmt.Errorf("it had moved all events before %d kills; move more", kills)
		}
	}
	r, err := c.start()
	if err != nil {
		return err
	}
	if err := errors.Join(b.finish(ctx, c, r), c.stop(r)); err != nil {
		return err
	}
	rows, ids, err := b.count(ctx)
	res := b.results[c.name]
	res.lost, res.doubled = b.rows-ids, rows-ids
	return err
}

func (b *bench) print(all []contestant) {
	t := pretty.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(pretty.StyleLight)
	t.SetTitle("%d events, medians of %d rounds; lost and doubled in %d kills", b.events, b.rounds, kills)
	t.AppendHeader(pretty.Row{"", "events/s", "us of its CPU", "MB", "lost", "doubled"})
	for _, c := range all {
		r := b.results[c.name]
		t.AppendRow(pretty.Row{c.name, fmt.Sprintf("%.0f", rounds.Median(r.rates)), fmt.Sprintf("%.2f", rounds.Median(r.times)),
			fmt.Sprintf("%.0f", rounds.Median(r.memory)), r.lost, r.doubled})
	}
	t.Render()
	ours := b.results["perigee"]
	for _, c := range all[1:] {
		var ratios []float64
		for i, rate := range b.results[c.name].rates {
			ratios = append(ratios, ours.rates[i]/rate)
		}
		fmt.Printf("figure run_vs_%s %.2f\n", c.name, rounds.Median(ratios))
	}
	for _, c := range all {
		r := b.results[c.name]
		fmt.Printf("figure %s_lost %d\nfigure %[1]s_duplicated %[3]d\n", c.name, r.lost, r.doubled)
	}
}

// plot draws the events a second of each round.
func (b *bench) plot(all []contestant) []byte {
	p := plot.Plot{Title: "Thousand events a second, Redis list to MariaDB", Across: "round", Format: func(y float64) string { return fmt.Sprintf("%.0f", y) }}
	for i, c := range all {
		l := plot.Line{Name: c.name, Class: i}
		for round, rate := range b.results[c.name].rates {
			l.Points = append(l.Points, plot.Point{X: float64(round + 1), Y: rate / 1000, Least: rate / 1000, Most: rate / 1000})
		}
		p.Lines = append(p.Lines, l)
	}
	return p.File()
}
