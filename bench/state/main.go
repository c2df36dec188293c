// Command state measures what exactly-once state costs a pipeline. Events of a Redis list go through
// Lua into MariaDB: with a script that counts the events of each user in the pipeline's state, with the
// same script without state, and with a worker that counts with pipelined HINCRBY in Redis, which counts
// twice after a crash. All run in turns, and a ratio is the median over the rounds.
package main

import (
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

	_ "github.com/go-sql-driver/mysql" // the driver of MariaDB
	"github.com/redis/go-redis/v9"

	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/internal/testserver"
)

const stateless = `function main(event)
  event.n = 1
  return event
end
`

const counting = `local users = require("nodedb").node("^users")

function main(event)
  event.n = users[event.user]:incr()
  return event
end
`

const table = "CREATE TABLE events (pk BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, id BIGINT NOT NULL, user VARCHAR(64) NOT NULL, " +
	"event_name VARCHAR(16) NOT NULL, time DATETIME(6) NOT NULL, n BIGINT NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"

const columns = "[{name: id, type: int64}, {name: user, type: string}, {name: event_name, type: string}, {name: time, type: timestamp}, {name: n, type: int64}]"

type bench struct {
	program string
	folder  string
	events  int
	redis   *testserver.RedisServer
	client  *redis.Client
	maria   *testserver.MariaDBServer
	db      *sql.DB
	cpu     float64 // of the engine in the last turn, in µs for each event
}

func main() {
	program := flag.String("perigee", "../bin/perigee", "the program")
	events := flag.Int("events", 1_000_000, "events of a turn")
	count := flag.Int("rounds", 3, "rounds")
	many := flag.Bool("10m", false, "also 10 million users")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	must(run(ctx, *program, *events, *count, *many))
}

func run(ctx context.Context, program string, events, count int, many bool) (err error) {
	b := &bench{events: events}
	if b.program, err = filepath.Abs(program); err != nil {
		return err
	}
	if b.folder, err = os.MkdirTemp("", "state-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if b.redis, err = testserver.StartRedis(ctx, filepath.Join(b.folder, "redis")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.redis.Stop()) }()
	b.client = redis.NewClient(&redis.Options{Addr: b.redis.Address()})
	defer b.client.Close()
	if b.maria, err = testserver.StartMariaDB(ctx, filepath.Join(b.folder, "mariadb")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.maria.Stop()) }()
	if b.db, err = sql.Open("mysql", b.maria.DSN("")); err != nil {
		return err
	}
	defer b.db.Close()
	return b.measure(ctx, count, many)
}

// A turn is a run of one contestant.
type turn struct {
	name  string
	lists int
	users int
	state bool
	redis bool // the worker with HINCRBY
}

func (b *bench) measure(ctx context.Context, count int, many bool) error {
	turns := []turn{
		{"stateless, 1 list", 1, 100_000, false, false},
		{"state, 1 list", 1, 100_000, true, false},
		{"stateless, 4 lists", 4, 100_000, false, false},
		{"state, 4 lists", 4, 100_000, true, false},
		{"HINCRBY, 1 list", 1, 100_000, false, true},
	}
	if many {
		turns = append(turns, turn{"state, 1 list, 10M users", 1, 10_000_000, true, false})
	}
	rates := map[string][]float64{}
	var noteBytes float64
	for round := range count {
		for _, t := range turns {
			rate, bytes, err := b.take(ctx, t)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			fmt.Printf("%s round %d of %d: %-26s %8.0f events/s, engine %4.1f µs of processor for each\n", time.Now().Format(time.TimeOnly), round+1, count, t.name, rate, b.cpu)
			rates[t.name] = append(rates[t.name], rate)
			noteBytes = max(noteBytes, bytes)
		}
	}
	ratio := func(figure, of, to string) {
		var all []float64
		for i := range rates[of] {
			all = append(all, rates[of][i]/rates[to][i])
		}
		if len(all) > 0 {
			fmt.Printf("figure %s %.2f\n", figure, rounds.Median(all))
		}
	}
	ratio("state_vs_stateless_1", "state, 1 list", "stateless, 1 list")
	ratio("state_vs_stateless_4", "state, 4 lists", "stateless, 4 lists")
	ratio("state_vs_redis_hincrby", "state, 1 list", "HINCRBY, 1 list")
	ratio("state_10m_users_vs_100k", "state, 1 list, 10M users", "state, 1 list")
	fmt.Printf("figure note_bytes_per_event %.1f\n", noteBytes)
	return nil
}

// take runs a contestant on new events, and returns events per second and, with a state, the bytes of
// its notes by event.
func (b *bench) take(ctx context.Context, t turn) (rate, noteBytes float64, err error) {
	if err := b.fill(ctx, t); err != nil {
		return 0, 0, err
	}
	for _, statement := range []string{"DROP DATABASE IF EXISTS bench", "CREATE DATABASE bench", "USE bench", strings.Replace(table, "events (", "bench.events (", 1)} {
		if _, err := b.db.ExecContext(ctx, statement); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	b.cpu = 0
	if t.redis {
		err = b.countInRedis(ctx)
	} else {
		noteBytes, err = b.runEngine(ctx, t)
	}
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(began)
	var rows, sum int
	if err := b.db.QueryRowContext(ctx, "SELECT COUNT(*), COUNT(DISTINCT user, n) FROM bench.events").Scan(&rows, &sum); err != nil {
		return 0, 0, err
	}
	if rows != b.events || t.state && sum != b.events {
		return 0, 0, fmt.Errorf("%d rows with %d counts landed, want %d", rows, sum, b.events)
	}
	return float64(b.events) / took.Seconds(), noteBytes, nil
}

// fill fills the lists of a turn. The events of a user are all in one list.
func (b *bench) fill(ctx context.Context, t turn) error {
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for first := 0; first < b.events; first += 1000 {
		pipe := b.client.Pipeline()
		for i := first; i < min(first+1000, b.events); i++ {
			user := random.IntN(t.users)
			pipe.RPush(ctx, fmt.Sprintf("events%d", user%t.lists), fmt.Sprintf(
				`{"id":%d,"user":"user-%09d@example.com","event_name":"%s","time":"2026-11-22T10:%02d:%02dZ","campaign":%d,"url":"https://example.com/a/page/%d"}`,
				i, user, []string{"open", "click", "send"}[i%3], i/60%60, i%60, i%100, i%1000))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runEngine runs the engine until the lists are empty.
func (b *bench) runEngine(ctx context.Context, t turn) (noteBytes float64, err error) {
	data, config := filepath.Join(b.folder, "data"), filepath.Join(b.folder, "pipeline.yaml")
	if err := os.RemoveAll(data); err != nil {
		return 0, err
	}
	code, settings := stateless, ""
	if t.state {
		code, settings = counting, "    state: {name: users}\n"
	}
	lists := "list: events0"
	if t.lists > 1 {
		lists = `lists: "events*"`
	}
	script := filepath.Join(b.folder, "script.lua")
	if err := errors.Join(os.WriteFile(script, []byte(code), 0o600), os.WriteFile(config, fmt.Appendf(nil,
		"data: %s\nhttp: off\npipelines:\n  p:\n    source: {redis: {address: %q, %s}}\n    script: %s\n%s    sink: {mysql: {address: %q, user: root, database: bench, table: events, columns: %s}}\n",
		data, b.redis.Address(), lists, script, settings, b.maria.Address(), columns), 0o600)); err != nil {
		return 0, err
	}
	engine := exec.CommandContext(ctx, b.program, "run", config)
	var log strings.Builder
	engine.Stderr = &log
	if err := engine.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- engine.Wait() }()
	for left := int64(1); left > 0; {
		select {
		case err := <-ended:
			return 0, fmt.Errorf("the engine ended: %w\n%s", errors.Join(err, errors.New("before the lists were empty")), &log)
		case <-time.After(20 * time.Millisecond):
		}
		left = 0
		for i := range t.lists {
			n, err := b.client.LLen(ctx, fmt.Sprintf("events%d", i)).Result()
			if err != nil {
				return 0, err
			}
			left += n
		}
		if t.state && noteBytes == 0 && left < int64(b.events)/2 {
			if noteBytes, err = b.noteBytes(ctx, config); err != nil {
				return 0, err
			}
		}
	}
	if err := engine.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	if err := <-ended; err != nil {
		return 0, fmt.Errorf("the engine ended: %w\n%s", err, &log)
	}
	b.cpu = (engine.ProcessState.UserTime() + engine.ProcessState.SystemTime()).Seconds() / float64(b.events) * 1e6
	return noteBytes, nil
}

// noteBytes returns the bytes of the notes that the home keeps, by event. A batch has 1,000 events.
func (b *bench) noteBytes(ctx context.Context, config string) (float64, error) {
	out, err := exec.CommandContext(ctx, b.program, "state", "list", config, "--format", "json").Output()
	if err != nil {
		return 0, err
	}
	var units []struct {
		First uint64 `json:"first_note"`
		Last  uint64 `json:"last_note"`
		Bytes uint64 `json:"note_bytes"`
	}
	if err := json.Unmarshal(out, &units); err != nil {
		return 0, err
	}
	var notes, bytes uint64
	for _, u := range units {
		notes += u.Last - u.First + 1
		bytes += u.Bytes
	}
	return float64(bytes) / float64(notes) / 1000, nil
}

// countInRedis moves the events as a worker without exact state would: it reads a thousand, counts them
// with one pipeline of HINCRBY, inserts the rows with one statement and trims the list.
func (b *bench) countInRedis(ctx context.Context) error {
	type event struct {
		ID   int64  `json:"id"`
		User string `json:"user"`
		Name string `json:"event_name"`
		Time string `json:"time"`
	}
	for {
		docs, err := b.client.LRange(ctx, "events0", 0, 999).Result()
		if err != nil || len(docs) == 0 {
			return err
		}
		events := make([]event, len(docs))
		pipe, counts := b.client.Pipeline(), make([]*redis.IntCmd, len(docs))
		for i, doc := range docs {
			if err := json.Unmarshal([]byte(doc), &events[i]); err != nil {
				return err
			}
			counts[i] = pipe.HIncrBy(ctx, "users", events[i].User, 1)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		var statement strings.Builder
		statement.WriteString("INSERT INTO bench.events (id, user, event_name, time, n) VALUES ")
		for i, e := range events {
			if i > 0 {
				statement.WriteByte(',')
			}
			fmt.Fprintf(&statement, "(%d,'%s','%s','%s',%d)", e.ID, e.User, e.Name, strings.TrimSuffix(e.Time, "Z"), counts[i].Val())
		}
		if _, err := b.db.ExecContext(ctx, statement.String()); err != nil {
			return err
		}
		if err := b.client.LTrim(ctx, "events0", int64(len(docs)), -1).Err(); err != nil {
			return err
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "state:", err)
		os.Exit(1)
	}
}
