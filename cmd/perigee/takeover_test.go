package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/nodedb"
)

const takeoverLua = `
local counts = require "nodedb".node "^counts"
function main(event)
  return {id = event.id, user = event.user, n = counts[event.user]:incr()}
end
`

const takeoverConfig = `
data: %[1]s
http: off
pipelines:
  counts:
    source: {redis: {address: %[2]q, lists: "takeover:*"}}
    script: {lua: takeover.lua}
    state: {name: users, scope: pipeline, home: maria, standby: 1, archive: {to: %[5]q}}
    sinks:
      maria: {mysql: {address: %[3]q, user: root, database: %[4]s, table: counted, create: true, columns: [{name: id, type: int64}, {name: user, type: int64}, {name: n, type: int64}]}}
      second: {redis: {address: %[2]q, list: out}}
    batch: {events: 5000}
    lease: 2s
`

const takeoverLease = 2 * time.Second

// takeoverFigures are the results of all take-overs.
type takeoverFigures struct {
	lost, duplicated, wrong int
	ready                   []time.Duration // from the end of a lease to the next commit
}

func (f *takeoverFigures) print(t *testing.T) {
	var sum, longest time.Duration
	for _, d := range f.ready {
		sum, longest = sum+d, max(longest, d)
	}
	fmt.Printf("figure takeovers %d\nfigure takeover_lost %d\nfigure takeover_duplicated %d\nfigure takeover_wrong %d\nfigure takeover_ready_seconds_mean %.2f\nfigure takeover_ready_seconds_max %.2f\n",
		len(f.ready), f.lost, f.duplicated, f.wrong, sum.Seconds()/float64(max(len(f.ready), 1)), longest.Seconds())
	t.Logf("ready after %v", f.ready)
}

// TestTakeover has a follower take over a unit whose owner is killed, frozen until later, or gone
// with its disk, while events flow. Each event has one row in both sinks, the rows of a user are
// numbered without gap, and owner and follower remember just these.
func TestTakeover(t *testing.T) {
	skipWithoutState(t)
	t.Parallel()
	b := newTakeoverBed(t)
	b.workers = []*takeoverWorker{b.newWorker(), b.newWorker()}
	b.fill()
	faults := []func(*takeoverWorker){b.killOwner, b.freezeOwner, b.removeOwner}
	takeovers := takeoverNumber(t, "TAKEOVERS", testsize.Count(len(faults), 6))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); b.push(ctx) }()
	for i := range takeovers {
		faults[i%len(faults)](b.waitForFollower())
		if t.Failed() {
			break
		}
	}
	b.waitForFollower()
	stop()
	<-ended
	b.finish()
	b.check()
	b.figures.print(t)
}

func takeoverNumber(t *testing.T, name string, usual int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(usual)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A takeoverBed is two workers that share a unit, and their servers.
type takeoverBed struct {
	t        *testing.T
	random   *rand.Rand
	users    int
	pushed   atomic.Int64 // events
	maria    *testserver.MariaDBServer
	database string
	archive  string // a folder that both workers reach
	db       *sql.DB
	queue    *testserver.RedisServer
	redis    rueidis.Client
	workers  []*takeoverWorker
	figures  takeoverFigures
}

// A takeoverWorker is one of the workers.
type takeoverWorker struct {
	folder, file string
	engine       *process
}

func (w *takeoverWorker) data() string { return filepath.Join(w.folder, "data") }

func newTakeoverBed(t *testing.T) *takeoverBed {
	b := &takeoverBed{
		t: t, random: testseed.New(t), maria: maria.Server(t), queue: testserver.Redis(t), archive: shortDir(t),
		users: takeoverNumber(t, "TAKEOVER_USERS", testsize.Count(2000, 20000)),
	}
	b.database = b.maria.Database(t)
	var err error
	if b.db, err = sql.Open("mysql", b.maria.DSN(b.database)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.db.Close() })
	if b.redis, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{b.queue.Address()}, DisableCache: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.redis.Close)
	return b
}

// newWorker starts a worker in a folder of its own.
func (b *takeoverBed) newWorker() *takeoverWorker {
	w := &takeoverWorker{folder: shortDir(b.t)}
	w.file = filepath.Join(w.folder, "takeover.yaml")
	writeFile(b.t, w.file, fmt.Sprintf(takeoverConfig, w.data(), b.queue.Address(), b.maria.Address(), b.database, b.archive))
	writeFile(b.t, filepath.Join(w.folder, "takeover.lua"), takeoverLua)
	b.start(w)
	return w
}

func (b *takeoverBed) start(w *takeoverWorker) { w.engine = runEngine(b.t, w.file) }

// userOf returns the user of an event: each has one of the first events.
func (b *takeoverBed) userOf(id int) int {
	if id <= b.users {
		return id
	}
	return 1 + int(uint64(id)*2654435761%uint64(b.users))
}

// pushSome pushes the next events, and returns how many wait.
func (b *takeoverBed) pushSome(n int) (waiting int64) {
	events := make([]string, n)
	for i := range events {
		id := int(b.pushed.Load()) + 1 + i
		events[i] = fmt.Sprintf(`{"id":%d,"user":%d}`, id, b.userOf(id))
	}
	waiting, err := b.redis.Do(context.Background(), b.redis.B().Rpush().Key("takeover:1").Element(events...).Build()).AsInt64()
	if err != nil {
		b.t.Errorf("push: %v", err)
		return 0
	}
	b.pushed.Add(int64(n))
	return waiting
}

// fill pushes an event of each user, and waits until they are counted.
func (b *takeoverBed) fill() {
	b.t.Helper()
	for left := b.users; left > 0 && !b.t.Failed(); {
		n := min(left, 1000)
		if b.pushSome(n) > 100_000 {
			time.Sleep(50 * time.Millisecond)
		}
		left -= n
	}
	b.waitForQueue()
}

// push pushes events until its context ends.
func (b *takeoverBed) push(ctx context.Context) {
	for ctx.Err() == nil && !b.t.Failed() {
		if b.pushSome(20) > 20_000 {
			sleepFor(ctx, time.Second)
		}
		sleepFor(ctx, 20*time.Millisecond)
	}
}

func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// within waits until something has happened.
func (b *takeoverBed) within(d time.Duration, what string, happened func() bool) {
	b.t.Helper()
	for end := time.Now().Add(d); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func (b *takeoverBed) waitForQueue() {
	b.t.Helper()
	b.within(2*time.Minute+time.Duration(b.users)*100*time.Microsecond, "all events are counted", func() bool {
		n, err := b.redis.Do(b.t.Context(), b.redis.B().Llen().Key("takeover:1").Build()).AsInt64()
		return err == nil && n == 0
	})
}

// unit describes the unit as a worker sees it; nil if it does not answer.
func (b *takeoverBed) unit(w *takeoverWorker) *admin.StateUnit {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "perigee", "state", "list", w.file, "--format", "json").Output()
	var units []admin.StateUnit
	if err != nil || json.Unmarshal(out, &units) != nil || len(units) != 1 || units[0].Copy == nil {
		return nil
	}
	return &units[0]
}

// waitForFollower waits until one worker owns the unit and the other follows it, and returns the
// owner.
func (b *takeoverBed) waitForFollower() (owner *takeoverWorker) {
	b.t.Helper()
	b.within(time.Minute, "one worker owns the unit, and the other follows", func() bool {
		owner = nil
		follows := false
		for _, w := range b.workers {
			switch u := b.unit(w); {
			case u == nil:
			case u.Copy.Open:
				owner = w
			case u.Copy.Following && u.Copy.Refused == "" && u.Copy.Lag == 0 && u.Copy.Last+1000 > u.Last:
				follows = true
			}
		}
		return owner != nil && follows
	})
	return owner
}

// killOwner kills the owner, and starts it again after the take-over.
func (b *takeoverBed) killOwner(owner *takeoverWorker) {
	b.t.Helper()
	b.kill(owner)
	b.waitForTakeover("killed")
	b.start(owner)
}

// freezeOwner stops the owner, and continues it after the take-over: it has to notice that it is
// not the owner any more.
func (b *takeoverBed) freezeOwner(owner *takeoverWorker) {
	b.t.Helper()
	owner.engine.signal(syscall.SIGSTOP)
	b.waitForTakeover("frozen")
	owner.engine.signal(syscall.SIGCONT)
}

// removeOwner kills the owner and removes its folder. The worker gets its next copy from the archive,
// while the other one goes on.
func (b *takeoverBed) removeOwner(owner *takeoverWorker) {
	b.t.Helper()
	b.kill(owner)
	if err := os.RemoveAll(owner.data()); err != nil {
		b.t.Fatal(err)
	}
	b.waitForTakeover("gone with its disk")
	b.start(owner)
}

func (b *takeoverBed) kill(w *takeoverWorker) {
	_ = w.engine.cmd.Process.Kill()
	w.engine.done <- <-w.engine.done
}

// waitForTakeover waits until the next commit, of another owner, and notes how long that took after
// the end of the lease.
func (b *takeoverBed) waitForTakeover(fault string) {
	b.t.Helper()
	time.Sleep(200 * time.Millisecond) // the server may still commit what the owner has sent
	last, leaseLeft := b.lastNote(), time.Duration(0)
	var micros int64
	err := b.db.QueryRow("SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), until) FROM perigee_leases WHERE `partition` = 'all'").Scan(&micros)
	if err != nil {
		b.t.Fatal(err)
	}
	leaseLeft = time.Duration(micros) * time.Microsecond
	leaseEnds := time.Now().Add(leaseLeft)
	if leaseLeft > takeoverLease {
		b.t.Errorf("the lease lasts for another %v, want at most %v", leaseLeft, takeoverLease)
	}
	b.within(30*time.Second, "the follower has taken over from an owner that is "+fault, func() bool { return b.lastNote() > last })
	ready := time.Since(leaseEnds)
	b.t.Logf("the owner is %s: the next commit came %v after its lease ended", fault, ready.Round(time.Millisecond))
	b.figures.ready = append(b.figures.ready, ready)
}

func (b *takeoverBed) lastNote() (last uint64) {
	b.t.Helper()
	if err := b.db.QueryRow("SELECT last FROM perigee_units WHERE name = 'users/all'").Scan(&last); err != nil {
		b.t.Fatal(err)
	}
	return last
}

// finish waits until all events are counted and both copies are whole, and stops the workers.
func (b *takeoverBed) finish() {
	b.t.Helper()
	b.waitForQueue()
	last := b.lastNote()
	b.within(30*time.Second, "both workers have all notes", func() bool {
		for _, w := range b.workers {
			if u := b.unit(w); u == nil || u.Copy.Last != last {
				return false
			}
		}
		return true
	})
	for _, w := range b.workers {
		w.engine.signal(syscall.SIGTERM)
		w.engine.ends(0)
	}
}

// check compares sinks and copies with the events.
func (b *takeoverBed) check() {
	b.t.Helper()
	want := make([]int, b.users+1) // events by user
	for id := 1; id <= int(b.pushed.Load()); id++ {
		want[b.userOf(id)]++
	}
	rows, err := b.db.Query("SELECT id, `user`, n FROM counted")
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	home := b.newRowCheck("MariaDB")
	for rows.Next() {
		var r countedUser
		if err := rows.Scan(&r.ID, &r.User, &r.N); err != nil {
			b.t.Fatal(err)
		}
		home.add(r)
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	home.end(want)
	second := b.newRowCheck("the second sink")
	for from := int64(0); ; from += 10_000 {
		docs, err := b.redis.Do(b.t.Context(), b.redis.B().Lrange().Key("out").Start(from).Stop(from+9_999).Build()).AsStrSlice()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, doc := range docs {
			var r countedUser
			if err := json.Unmarshal([]byte(doc), &r); err != nil {
				b.t.Fatalf("%v in %s", err, doc)
			}
			second.add(r)
		}
		if len(docs) == 0 {
			break
		}
	}
	second.end(want)
	for i, w := range b.workers {
		counts := b.copyOf(w)
		for user := 1; user <= b.users; user++ {
			if counts[user] != want[user] {
				b.figures.wrong++
				b.t.Errorf("worker %d remembers %d events of user %d, want %d", i, counts[user], user, want[user])
			}
		}
	}
	b.t.Logf("%d events of %d users", b.pushed.Load(), b.users)
}

// A countedUser is a row: the n-th event of a user.
type countedUser struct {
	ID   int `json:"id"`
	User int `json:"user"`
	N    int `json:"n"`
}

// A rowCheck compares the rows of one sink with the events.
type rowCheck struct {
	b     *takeoverBed
	sink  string
	times []uint8 // rows by event
	sums  []int   // of the numbers, by user
	most  []int   // the largest number, by user
}

func (b *takeoverBed) newRowCheck(sink string) *rowCheck {
	return &rowCheck{b, sink, make([]uint8, b.pushed.Load()+1), make([]int, b.users+1), make([]int, b.users+1)}
}

func (c *rowCheck) add(r countedUser) {
	if r.ID < 1 || r.ID >= len(c.times) || c.b.userOf(r.ID) != r.User {
		c.b.figures.wrong++
		c.b.t.Errorf("%s has the row %+v, which no event made", c.sink, r)
		return
	}
	c.times[r.ID]++
	c.sums[r.User] += r.N
	c.most[r.User] = max(c.most[r.User], r.N)
}

// end compares what was added. With one row for each event, numbers with the right sum and maximum
// are hardly others than 1 to the number of events.
func (c *rowCheck) end(want []int) {
	faults := 0
	fault := func(figure *int, format string, args ...any) {
		*figure++
		if faults++; faults < 20 {
			c.b.t.Errorf("%s "+format, append([]any{c.sink}, args...)...)
		}
	}
	for id := 1; id < len(c.times); id++ {
		switch {
		case c.times[id] == 0:
			fault(&c.b.figures.lost, "lacks event %d", id)
		case c.times[id] > 1:
			fault(&c.b.figures.duplicated, "has event %d %d times", id, c.times[id])
		}
	}
	for user := 1; user < len(want); user++ {
		if n := want[user]; c.most[user] != n || c.sums[user] != n*(n+1)/2 {
			fault(&c.b.figures.wrong, "has numbers up to %d with the sum %d of user %d, want %d and %d", c.most[user], c.sums[user], user, n, n*(n+1)/2)
		}
	}
}

// copyOf returns the counts in the copy of a worker that has ended, by user.
func (b *takeoverBed) copyOf(w *takeoverWorker) []int {
	b.t.Helper()
	unit, err := nodedb.OpenUnit(filepath.Join(w.data(), "state", "users", "all"), nodedb.UnitOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer unit.Close()
	counts := make([]int, b.users+1)
	for from, more := 1, true; more; from += 50_000 { // a view may not last
		more = false
		err = unit.View(b.t.Context(), func(tx *nodedb.Tx) error {
			for child, err := range tx.Children(b.t.Context(), nodedb.Name("^counts"), nodedb.Range{From: from, To: from + 49_999}) {
				if err != nil {
					return err
				}
				user, _ := child.Subscript.Int()
				n, _ := child.Value.Int()
				counts[user], more = int(n), true
			}
			return nil
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	return counts
}
