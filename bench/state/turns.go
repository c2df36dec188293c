package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/bench/process"
)

// A result is what a turn has measured. CPU is in µs by event.
type result struct {
	rate             float64 // events/s
	program          float64 // CPU of the engine, or of its peer
	source, database float64 // CPU of Redis or Kafka, and of MariaDB
	p50, p99         time.Duration
	noteBytes        float64 // by event
	diskBytes        float64 // that the engine wrote into files, by event
	memory           float64 // peak without mapped files, in MB
	resident         float64 // the same with them
}

func (r *result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8.0f events/s, CPU %4.1f + %3.1f + %3.1f µs", r.rate, r.program, r.source, r.database)
	if r.p50 > 0 {
		fmt.Fprintf(&b, ", commit p50 %.1f p99 %.1f ms", r.p50.Seconds()*1e3, r.p99.Seconds()*1e3)
	}
	return b.String()
}

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

// seeding counts an event of each of the users from event.first to event.last, and returns no row. The
// factor, which has no divisor in common with the number of users, brings their names out of order.
const seeding = `local users = require("nodedb").node("^users")

function main(event)
  for i = event.first, event.last do
    users[string.format("` + userFormat + `", i * 7368787 % event.users)]:incr()
  end
  return nil
end
`

const (
	nameStateless1 = "stateless, 1 list"
	nameState1     = "state, 1 list"
	nameStateless4 = "stateless, 4 lists"
	nameState4     = "state, 4 lists"
	nameHincrby    = "HINCRBY, 1 list"
	nameMany       = "state, many users"
)

const fewUsers = 100_000

// withTable are the contestants that write rows into MariaDB.
func (b *bench) withTable() []contestant {
	one, four := load{b.events, fewUsers, 1}, load{b.events, fewUsers, 4}
	return []contestant{
		{nameStateless1, func(ctx context.Context) (*result, error) { return b.moveRows(ctx, one, false) }},
		{nameState1, func(ctx context.Context) (*result, error) { return b.moveRows(ctx, one, true) }},
		{nameStateless4, func(ctx context.Context) (*result, error) { return b.moveRows(ctx, four, false) }},
		{nameState4, func(ctx context.Context) (*result, error) { return b.moveRows(ctx, four, true) }},
		{nameHincrby, func(ctx context.Context) (*result, error) { return b.countInRedis(ctx, one) }},
		{nameMany, b.moveManyUsers},
	}
}

// moveRows moves events with the engine, which begins with no state.
func (b *bench) moveRows(ctx context.Context, l load, state bool) (*result, error) {
	if err := b.prepare(ctx, l, "bench"); err != nil {
		return nil, err
	}
	e := b.newEngine("bench", b.few, l)
	if err := os.RemoveAll(e.data()); err != nil {
		return nil, err
	}
	e.script = stateless
	if state {
		e.script, e.state = counting, true
	}
	r, err := e.drainLists(ctx)
	if err != nil {
		return nil, err
	}
	return r, b.checkRows(ctx, "bench", l.events, state)
}

// prepare fills the lists of a turn, and makes an empty database.
func (b *bench) prepare(ctx context.Context, l load, database string) error {
	if err := b.few.FlushDB(ctx).Err(); err != nil {
		return err
	}
	if err := b.fill(ctx, b.few, l); err != nil {
		return err
	}
	return b.createDatabase(ctx, database)
}

// moveManyUsers moves events with a state of many users, which all turns share.
func (b *bench) moveManyUsers(ctx context.Context) (*result, error) {
	const database = "many"
	l := load{b.manyEvents, b.manyUsers, 1}
	e := b.newEngine(database, b.many, l)
	e.state = true
	if len(b.results[nameMany]) == 0 {
		if err := b.seedUsers(ctx, e); err != nil {
			return nil, fmt.Errorf("fill the state: %w", err)
		}
	}
	if err := b.fill(ctx, b.many, l); err != nil {
		return nil, err
	}
	if _, err := b.db.ExecContext(ctx, "TRUNCATE TABLE "+database+".events"); err != nil {
		return nil, err
	}
	e.script = counting
	r, err := e.drainLists(ctx)
	if err != nil {
		return nil, err
	}
	return r, b.checkRows(ctx, database, l.events, true)
}

// seedUsers makes a state with all users.
func (b *bench) seedUsers(ctx context.Context, e *engine) error {
	if err := b.createDatabase(ctx, e.database); err != nil {
		return err
	}
	const step = 100
	for first := 0; first < b.manyUsers; first += step * 1000 {
		var docs []any
		for i := first; i < min(first+step*1000, b.manyUsers); i += step {
			docs = append(docs, fmt.Sprintf(`{"first":%d,"last":%d,"users":%d}`, i, min(i+step, b.manyUsers)-1, b.manyUsers))
		}
		if err := b.many.RPush(ctx, listName(0), docs...).Err(); err != nil {
			return err
		}
	}
	began := time.Now()
	e.script = seeding
	_, err := e.drainLists(ctx)
	if err == nil {
		logf("a state of %d users was made in %.0f s", b.manyUsers, time.Since(began).Seconds())
	}
	return err
}

// usage measures the CPU of servers during a turn.
type usage struct {
	pids   []int
	before []time.Duration
}

func startUsage(pids ...int) *usage {
	u := &usage{pids: pids}
	for _, pid := range pids {
		u.before = append(u.before, process.TreeTime(pid))
	}
	return u
}

// perEvent returns the CPU of server i since the start, in µs by event.
func (u *usage) perEvent(i, events int) float64 {
	return perEvent(process.TreeTime(u.pids[i])-u.before[i], events)
}

func perEvent(d time.Duration, events int) float64 {
	return float64(d.Microseconds()) / float64(events)
}

// write writes a file of the benchmark's folder, and returns its path.
func (b *bench) write(name, text string) (string, error) {
	path := filepath.Join(b.folder, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
