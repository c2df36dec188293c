package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/state"
)

// countingLua counts the events of each user, and sets timers, which count too. The id of an event
// decides its result: see countedEvent. MariaDB rejects rows with a long note.
const countingLua = `
local nodedb, timers = require "nodedb", require "timer"
local counts = nodedb.node "^counts"

function main(event)
  local n = counts[event.user]:incr()
  if event.after then timers.after(event.after, event.group .. "/" .. event.id) end
  if event.id % 100 == 7 then error("no") end
  return {id = event.id, user = event.user, n = n, note = event.id % 1000 == 13 and "much too long" or "short"}
end

function timer(key, due)
  local group, id = key:match("^(.*)/(%d+)$")
  local n = counts[group]:incr()
  if id % 100 == 11 then error("no") end
  return {id = -id, user = group, n = n, note = "timer"}
end
`

const countingConfig = `
data: %[1]s
http: off
pipelines:
  counts:
    source: {redis: {address: %[2]q, lists: "counted:*"}}
    script: {lua: counting.lua}
    state: {name: users, scope: %[3]s, home: maria%[7]s}
    sinks:
      maria: {mysql: {address: %[4]q, user: root, database: %[5]s, table: counted, create: true, columns: [{name: id, type: int64}, {name: user, type: string}, {name: n, type: int64}, {name: note, type: string, sql: VARCHAR(10)}]}}
      second: %[6]s
    batch: {events: 20}
    lease: 2s
`

const (
	countedLists = 3
	countedUsers = 15
)

// A countedEvent is an event, and what the script and the sinks make of it.
type countedEvent struct {
	id    int
	list  int
	user  string
	group string // the user of its timer
	after float64
	// healed says that nothing fails any more, and that dead letters were retried.
	healed bool
}

// newCountedEvent returns the event of an id. With shared, the users of all lists are the same.
func newCountedEvent(id int, shared bool) countedEvent {
	e := countedEvent{id: id, list: id % countedLists, user: fmt.Sprintf("u%d", id*7%countedUsers/countedLists), group: "timers"}
	if !shared {
		e.user, e.group = fmt.Sprintf("%s-%d", e.user, e.list), fmt.Sprintf("timers-%d", e.list)
	}
	if id%3 == 0 {
		e.after = 0.05 + float64(id*37%95)/100
	}
	return e
}

func (e countedEvent) fails() bool      { return !e.healed && e.id%100 == 7 }
func (e countedEvent) isRejected() bool { return !e.healed && e.id%1000 == 13 }
func (e countedEvent) timer() bool      { return e.after > 0 && !e.fails() && !e.timerFails() }
func (e countedEvent) timerFails() bool { return !e.healed && e.after > 0 && e.id%100 == 11 }

func (e countedEvent) String() string {
	after := ""
	if e.after > 0 {
		after = fmt.Sprintf(`,"after":%g`, e.after)
	}
	return fmt.Sprintf(`{"id":%d,"user":%q,"group":%q%s}`, e.id, e.user, e.group, after)
}

// crashStateFigures are the results of all rounds.
type crashStateFigures struct {
	kills, wrong, lost, duplicated, timersWrong int
}

func (f *crashStateFigures) print() {
	fmt.Printf("figure crash_state_kills %d\nfigure crash_state_wrong %d\nfigure crash_state_lost %d\nfigure crash_state_duplicated %d\nfigure crash_state_timers_wrong %d\n",
		f.kills, f.wrong, f.lost, f.duplicated, f.timersWrong)
}

// roundKills is how many processes one round kills: the next one has another scope, second sink
// and database.
const roundKills = 20

// TestCrashState kills the engine of a pipeline with a state, and its servers, at random times and
// at each point, and sets its databases back: each user's rows are numbered without gap or repetition in both sinks, the state
// is that of these rows, and each timer ran once. So it is when all dead letters were retried: those
// of events count them then, and those of rejected rows have the numbers of these.
func TestCrashState(t *testing.T) {
	if nodedb.Version() == "" {
		t.Skip("state needs a build with cgo")
	}
	t.Parallel()
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("CRASH_STATE_KILLS"), fmt.Sprint(testsize.Count(8, 40))))
	if err != nil {
		t.Fatal(err)
	}
	random := testseed.New(t)
	rounds := max(2, (kills+roundKills-1)/roundKills)
	var figures crashStateFigures
	points := pipeline.StatePoints()
	random.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	for i := range rounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := newCrashRound(t, random, i)
			for range kills*(i+1)/rounds - kills*i/rounds - 2 {
				r.kill(points[figures.kills%len(points)])
				figures.kills++
			}
			r.finish()
			r.check(&figures)
			r.heal()
			for range 2 {
				r.kill(points[figures.kills%len(points)])
				figures.kills++
			}
			r.finish()
			r.check(&figures)
		})
		if t.Failed() {
			break
		}
	}
	figures.print()
}

// A crashRound is a pipeline whose processes are killed.
type crashRound struct {
	t      *testing.T
	random *rand.Rand
	shared bool // scope: pipeline
	folder string
	file   string // the configuration
	maria  *testserver.MariaDBServer
	second *testserver.PostgreSQLServer // nil: the event store
	home   *sql.DB
	pg     string // the data source name of second
	redis  rueidis.Client
	engine *process
	healed bool

	stopPushing context.CancelFunc
	pushing     sync.Mutex   // held while events are pushed
	pushed      atomic.Int64 // events
	pusherEnded chan struct{}
}

func newCrashRound(t *testing.T, random *rand.Rand, number int) *crashRound {
	r := &crashRound{t: t, random: random, shared: number%2 == 1, folder: shortDir(t), maria: testserver.MariaDB(t), pusherEnded: make(chan struct{})}
	database := r.maria.Database(t)
	var err error
	if r.home, err = sql.Open("mysql", r.maria.DSN(database)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.home.Close() })
	scope, second, keep := "partition", "{eventstore: {table: counted}}", "2s"
	if r.shared {
		scope = "pipeline"
	}
	if number%4 < 2 {
		keep = "1m" // it is set back
		r.second = testserver.PostgreSQL(t)
		name := r.second.Database(t)
		r.pg = r.second.DSN(name)
		second = fmt.Sprintf("{postgres: {address: %q, user: postgres, database: %s, table: counted, create: true, "+
			"columns: [{name: id, type: int64}, {name: user, type: string}, {name: n, type: int64}, {name: note, type: string}]}}", r.second.Address(), name)
	}
	queue := testserver.Redis(t)
	if r.redis, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{queue.Address()}, DisableCache: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.redis.Close)
	r.file = filepath.Join(r.folder, "counting.yaml")
	writeFile(t, r.file, fmt.Sprintf(countingConfig, r.data(), queue.Address(), scope, r.maria.Address(), database, second, ", archive: {to: archive, keep: "+keep+"}"))
	writeFile(t, filepath.Join(r.folder, "counting.lua"), countingLua)
	r.start()
	ctx, cancel := context.WithCancel(t.Context())
	r.stopPushing = cancel
	go r.push(ctx)
	t.Cleanup(func() { cancel(); <-r.pusherEnded })
	eventually(t, "MariaDB has rows", func() bool {
		var rows int
		return r.home.QueryRow("SELECT COUNT(*) FROM counted").Scan(&rows) == nil && rows > 0
	})
	return r
}

func (r *crashRound) data() string { return filepath.Join(r.folder, "data") }

func (r *crashRound) start(env ...string) {
	r.engine = runEngine(r.t, r.file, append(env, flushAgeVariable+"=50ms")...)
}

// push pushes events until its context ends, and not many more than are read.
func (r *crashRound) push(ctx context.Context) {
	defer close(r.pusherEnded)
	for ctx.Err() == nil {
		r.pushing.Lock()
		for range 60 {
			waiting, err := r.pushEvent(int(r.pushed.Load()) + 1)
			if err != nil {
				r.t.Errorf("push: %v", err)
				break
			}
			r.pushed.Add(1)
			if waiting > 500 {
				break
			}
		}
		r.pushing.Unlock()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// pushEvent pushes an event, and returns how many its list has.
func (r *crashRound) pushEvent(id int) (waiting int64, err error) {
	e := newCountedEvent(id, r.shared)
	key := fmt.Sprintf("counted:%d", e.list)
	return r.redis.Do(context.Background(), r.redis.B().Rpush().Key(key).Element(e.String()).Build()).AsInt64()
}

// kill kills the engine, at a point or a random time, or a server, and starts it again.
func (r *crashRound) kill(at pipeline.Point) {
	r.t.Helper()
	switch r.random.IntN(10) {
	case 9:
		r.pause()
		r.t.Logf("kill the engine, and delete its copies, after %d events", r.pushed.Load())
		r.stopNow()
		r.deleteCopies()
		r.start()
		return
	case 0:
		r.pause()
		r.restart("MariaDB", r.maria)
		return
	case 1:
		r.pause()
		if r.second != nil {
			r.restart("PostgreSQL", r.second)
			return
		}
	case 2:
		r.pause()
	case 3:
		r.pause()
		if r.second != nil && !r.healed {
			r.setBack()
			return
		}
	default:
		r.killAt(at)
		return
	}
	r.t.Logf("kill the engine after %d events", r.pushed.Load())
	r.stopNow()
	r.start()
}

// killAt starts an engine that kills itself at a point, and then another.
func (r *crashRound) killAt(at pipeline.Point) {
	r.t.Helper()
	r.stopNow()
	passing := 1 + r.random.IntN(30)
	if r.healed {
		passing = 1 + passing%2 // a few batches run
	}
	if slices.Contains(state.Steps(), state.Step(at)) {
		passing = 1 + passing%4 // they do not follow the events
	}
	if at == pipeline.Point(state.InRestore) || at == pipeline.Point(state.BeforeRename) {
		passing = 1
		r.deleteCopies()
	}
	if at == pipeline.BeforeReplay {
		r.start(fmt.Sprintf("%s=%s:%d", killVariable, pipeline.AfterNote, passing))
		r.waitForKill()
		passing = 1
	}
	r.t.Logf("kill the engine %s, time %d, after %d events", at, passing, r.pushed.Load())
	r.start(fmt.Sprintf("%s=%s:%d", killVariable, at, passing))
	r.waitForKill()
	r.start()
}

// deleteCopies deletes the copies of some units, which the engine has not open.
func (r *crashRound) deleteCopies() {
	r.t.Helper()
	folders, err := filepath.Glob(filepath.Join(r.data(), "state", "users", "*"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, folder := range folders {
		if strings.Contains(folder, "~") || r.random.IntN(3) == 0 {
			continue
		}
		if err := os.RemoveAll(folder); err != nil {
			r.t.Fatal(err)
		}
	}
}

// waitForKill waits until the engine has killed itself, if it comes that far.
func (r *crashRound) waitForKill() {
	r.t.Helper()
	select {
	case err := <-r.engine.done:
		r.engine.done <- err
		if status, ok := r.engine.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			r.t.Fatalf("the engine ended with %v", err)
		}
	case <-time.After(2 * time.Second):
		r.stopNow()
	}
}

func (r *crashRound) stopNow() {
	r.t.Helper()
	r.mustRun()
	_ = r.engine.cmd.Process.Kill()
	r.engine.done <- <-r.engine.done
}

// mustRun fails the test if the engine has ended by itself.
func (r *crashRound) mustRun() {
	r.t.Helper()
	select {
	case err := <-r.engine.done:
		r.engine.done <- err
		r.t.Fatalf("the engine ended with %v", err)
	default:
	}
}

func (r *crashRound) pause() { time.Sleep(time.Duration(30+r.random.IntN(500)) * time.Millisecond) }

// restart kills a server, and starts it again after a while.
func (r *crashRound) restart(name string, server interface {
	Kill() error
	Start(context.Context) error
}) {
	r.t.Helper()
	r.t.Logf("kill %s after %d events", name, r.pushed.Load())
	if err := server.Kill(); err != nil {
		r.t.Fatal(err)
	}
	if r.random.IntN(2) == 0 { // the engine meets its notes, or lacks them
		r.pause()
	}
	if r.random.IntN(4) == 0 {
		r.stopNow()
		r.start()
	}
	begin(r.t, server)
}

// finish waits until all events and timers have ended in rows or dead letters, and stops the engine.
func (r *crashRound) finish() {
	r.t.Helper()
	r.stopPushing()
	<-r.pusherEnded
	want, wantSecond, letters := 0, 0, 0
	for _, e := range r.events() {
		if !e.fails() {
			wantSecond++
		}
		if e.fails() || e.isRejected() {
			letters++
		}
		if e.timerFails() {
			letters++
		}
		if !e.fails() && !e.isRejected() {
			want++
		}
		if e.timer() {
			want++
			wantSecond++
		}
	}
	have, since := -1, time.Now()
	for have < want && time.Since(since) < 20*time.Second {
		r.mustRun()
		var now int
		if err := r.home.QueryRow("SELECT COUNT(*) FROM counted").Scan(&now); err == nil && now > have {
			have, since = now, time.Now()
		}
		time.Sleep(20 * time.Millisecond)
	}
	if have < want {
		r.t.Errorf("MariaDB has %d rows and gets no more, want %d", have, want)
	}
	// The second sink gets its rows from notes, which may be when a unit is opened again.
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if rows, err := r.readSecond(); err == nil && len(rows) >= wantSecond { // the engine may still be starting
			break
		}
	}
	for end := time.Now().Add(20 * time.Second); len(r.letters()) != letters && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond) // check reports what is missing
	}
	r.engine.says("partition opened") // a signal kills an engine that has just started
	r.engine.signal(syscall.SIGTERM)
	r.engine.ends(0)
	r.restoreMissing()
}

// restoreMissing restores units whose copies were deleted and that no engine has opened since, and
// then verifies all.
func (r *crashRound) restoreMissing() {
	r.t.Helper()
	for _, u := range r.units() {
		if u.Copy == nil {
			r.restoreUnit(u.Unit)
		}
	}
	says(r.t, 0, "none", "state", "verify", r.file)
}

// A listedUnit is a unit of the state.
type listedUnit struct {
	Unit string
	Copy *struct{} // nil: this machine has none
}

func (r *crashRound) units() (all []listedUnit) {
	r.t.Helper()
	out, err := exec.Command("perigee", "state", "list", r.file, "--format", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil {
		r.t.Fatalf("%v in %s", err, out)
	}
	return all
}

func (r *crashRound) restoreUnit(name string) {
	r.t.Helper()
	r.t.Logf("restore unit %s", name)
	says(r.t, 0, "restored at note", "state", "restore", r.file, "users", "--unit", name, "--yes")
}

func (r *crashRound) events() (all []countedEvent) {
	for id := 1; id <= int(r.pushed.Load()); id++ {
		e := newCountedEvent(id, r.shared)
		e.healed = r.healed
		all = append(all, e)
	}
	return all
}

// heal corrects what makes events fail, and retries all dead letters.
func (r *crashRound) heal() {
	r.t.Helper()
	if _, err := r.home.Exec("ALTER TABLE counted MODIFY note VARCHAR(100)"); err != nil {
		r.t.Fatal(err)
	}
	writeFile(r.t, filepath.Join(r.folder, "counting.lua"), strings.ReplaceAll(countingLua, `error("no")`, "n = n + 0"))
	r.healed = true
	r.t.Log("retry all dead letters")
	says(r.t, 0, "queued", "dlq", "retry", "--all", "--data", r.data())
	r.start()
}

// A countedRow is a row of a sink.
type countedRow struct {
	ID   int    `json:"id"`
	User string `json:"user"`
	N    int    `json:"n"`
}

// homeRows returns the rows of MariaDB.
func (r *crashRound) homeRows() (all []countedRow) {
	r.t.Helper()
	rows, err := r.home.Query("SELECT id, `user`, n FROM counted")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var row countedRow
		if err := rows.Scan(&row.ID, &row.User, &row.N); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *crashRound) secondRows() []countedRow {
	r.t.Helper()
	all, err := r.readSecond()
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *crashRound) readSecond() (all []countedRow, err error) {
	var lines []string
	if r.second != nil {
		lines, err = r.postgresRows()
	} else {
		var out []byte
		out, err = exec.Command("perigee", "query", "--data", r.data(), "--format", "ndjson", `SELECT id, "user", n FROM counted`).Output()
		lines = slices.Collect(strings.Lines(string(out)))
	}
	for _, line := range lines {
		var row countedRow
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			return nil, fmt.Errorf("%w in %s", err, line)
		}
		all = append(all, row)
	}
	return all, err
}

// postgresRows returns the rows of PostgreSQL as JSON.
func (r *crashRound) postgresRows() (lines []string, err error) {
	conn, err := pgconn.Connect(r.t.Context(), r.pg)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.Background())
	results, err := conn.Exec(r.t.Context(), `SELECT json_build_object('id', id, 'user', "user", 'n', n) FROM counted`).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, row := range results[0].Rows {
		lines = append(lines, string(row[0]))
	}
	return lines, nil
}

// check compares both sinks, the dead letters and the state with the events.
func (r *crashRound) check(f *crashStateFigures) {
	r.t.Helper()
	before := *f
	home, second := r.homeRows(), r.secondRows()
	letters := r.letters()
	counts := map[string]int{} // of rows, by user
	for _, row := range second {
		counts[row.User]++
	}
	r.checkSink("the second sink", second, counts, f)
	for _, row := range second { // a row that the home rejected has its number nowhere else
		if row.ID > 0 && !r.healed && newCountedEvent(row.ID, r.shared).isRejected() {
			home = append(home, row)
		}
	}
	r.checkSink("MariaDB", home, counts, f)
	bySecond := map[int]countedRow{}
	for _, row := range second {
		bySecond[row.ID] = row
	}
	for _, row := range home {
		if other, ok := bySecond[row.ID]; ok && other != row {
			f.wrong += r.fault("MariaDB has %v, and the second sink %v", row, other)
		}
	}
	for _, e := range r.events() {
		for id, want := range map[int]bool{e.id: e.fails() || e.isRejected(), -e.id: e.timerFails()} {
			if got := letters[id]; got != map[bool]int{true: 1}[want] {
				f.wrong += r.fault("event %d has %d dead letters", id, got)
			}
		}
	}
	for user, n := range r.state() {
		if n != counts[user] {
			f.wrong += r.fault("the state has %d events of %s, and the second sink %d", n, user, counts[user])
		}
		delete(counts, user)
	}
	if len(counts) > 0 {
		f.wrong += r.fault("the state lacks %v", counts)
	}
	r.t.Logf("%d events, %d rows in MariaDB, %d in the second sink, %d dead letters", r.pushed.Load(), len(home), len(second), len(letters))
	if *f != before {
		r.t.Errorf("%d wrong, %d lost, %d duplicated, %d timers wrong",
			f.wrong-before.wrong, f.lost-before.lost, f.duplicated-before.duplicated, f.timersWrong-before.timersWrong)
	}
}

// fault logs a fault and returns 1.
func (r *crashRound) fault(format string, args ...any) int {
	r.t.Helper()
	r.t.Errorf(format, args...)
	return 1
}

// checkSink compares the rows of a sink with the events.
func (r *crashRound) checkSink(name string, rows []countedRow, counts map[string]int, f *crashStateFigures) {
	r.t.Helper()
	times, numbers := map[int]int{}, map[string][]int{}
	for _, row := range rows {
		times[row.ID]++
		numbers[row.User] = append(numbers[row.User], row.N)
	}
	for _, e := range r.events() {
		switch got, want := times[e.id], !e.fails(); {
		case got == 0 && want:
			f.lost += r.fault("%s lacks event %d", name, e.id)
		case got > 1:
			f.duplicated += r.fault("%s has event %d %d times", name, e.id, got)
		case got == 1 && !want:
			f.wrong += r.fault("%s has event %d, which failed", name, e.id)
		}
		if got, want := times[-e.id], e.timer(); (got == 1) != want || got > 1 {
			f.timersWrong += r.fault("%s has %d rows of the timer of event %d", name, got, e.id)
		}
	}
	for user, n := range numbers {
		slices.Sort(n)
		for i, got := range n {
			if got != i+1 {
				f.wrong += r.fault("%s has number %d as the %d. of %s", name, got, i+1, user)
				break
			}
		}
		if len(n) != counts[user] {
			f.wrong += r.fault("%s has %d rows of %s, want %d", name, len(n), user, counts[user])
		}
	}
}

// letters returns how many dead letters each event has, and each timer by its negative id.
func (r *crashRound) letters() map[int]int {
	r.t.Helper()
	out, err := exec.Command("perigee", "dlq", "list", "--data", r.data(), "--format", "ndjson").Output()
	if err != nil {
		r.t.Fatal(err)
	}
	letters := map[int]int{}
	for line := range strings.Lines(string(out)) {
		var letter struct{ Original json.RawMessage }
		if err := json.Unmarshal([]byte(line), &letter); err != nil {
			r.t.Fatalf("%v in %s", err, line)
		}
		var text string
		if json.Unmarshal(letter.Original, &text) != nil {
			text = string(letter.Original)
		}
		var original struct {
			ID  int
			Key string
		}
		if err := json.Unmarshal([]byte(text), &original); err != nil {
			r.t.Fatalf("%v in %s", err, line)
		}
		if _, id, found := strings.Cut(original.Key, "/"); found {
			n, _ := strconv.Atoi(id)
			original.ID = -n
		}
		letters[original.ID]++
	}
	return letters
}

// state returns the counts in all units.
func (r *crashRound) state() map[string]int {
	r.t.Helper()
	counts := map[string]int{}
	folders, err := filepath.Glob(filepath.Join(r.data(), "state", "users", "*"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, folder := range folders {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() || strings.Contains(filepath.Base(folder), "~") {
			continue
		}
		maps.Copy(counts, r.unitCounts(folder))
	}
	return counts
}

func (r *crashRound) unitCounts(folder string) map[string]int {
	r.t.Helper()
	unit, err := nodedb.OpenUnit(folder, nodedb.UnitOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer unit.Close()
	counts := map[string]int{}
	err = unit.View(r.t.Context(), func(tx *nodedb.Tx) error {
		for node, err := range tx.Walk(r.t.Context(), nodedb.Name("^counts"), nodedb.Range{}) {
			if err != nil {
				return err
			}
			n, _ := node.Value.Int()
			counts[node.Path.Subscripts()[0].String()] = int(n)
		}
		for node, err := range tx.Walk(r.t.Context(), nodedb.Name("^%timers"), nodedb.Range{}) {
			if err != nil {
				return err
			}
			r.t.Errorf("the state still has the timer %v", node.Path)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return counts
}

// A countingBed is the servers of workers that count, each with a data folder of its own.
type countingBed struct {
	t        *testing.T
	maria    *testserver.MariaDBServer
	database string
	db       *sql.DB
	queue    *testserver.RedisServer
	redis    rueidis.Client
	pushed   int
}

func newCountingBed(t *testing.T) *countingBed {
	b := &countingBed{t: t, maria: maria.Server(t), queue: testserver.Redis(t)}
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

// worker returns the configuration of a worker in a folder of its own.
func (b *countingBed) worker(scope string) (file, folder string) { return b.archivingWorker(scope, "") }

// archivingWorker is worker with an archive, unless that is empty.
func (b *countingBed) archivingWorker(scope, archive string) (file, folder string) {
	if archive != "" {
		archive = ", archive: {to: " + archive + "}"
	}
	folder = shortDir(b.t)
	file = filepath.Join(folder, "counting.yaml")
	text := fmt.Sprintf(countingConfig, filepath.Join(folder, "data"), b.queue.Address(), scope, b.maria.Address(), b.database, "{redis: {address: \""+b.queue.Address()+"\", list: out}}", archive)
	writeFile(b.t, file, strings.Replace(text, "lease: 2s", "lease: 1s", 1))
	writeFile(b.t, filepath.Join(folder, "counting.lua"), countingLua)
	return file, folder
}

// push pushes an event that becomes a row into each of these lists.
func (b *countingBed) push(lists ...int) {
	b.t.Helper()
	for _, list := range lists {
		b.pushed++
		event := fmt.Sprintf(`{"id":%d,"user":"u%d"}`, b.pushed*1000, list)
		if err := b.redis.Do(b.t.Context(), b.redis.B().Rpush().Key(fmt.Sprintf("counted:%d", list)).Element(event).Build()).Error(); err != nil {
			b.t.Fatal(err)
		}
	}
}

// has waits until MariaDB has as many rows of a list, numbered without gap.
func (b *countingBed) has(list, want int) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("there are %d rows of list %d", want, list), func() bool {
		rows, numbers := b.count(list)
		return rows == want && numbers == want
	})
}

func (b *countingBed) count(list int) (rows, numbers int) {
	_ = b.db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT n) FROM counted WHERE `user` = ? AND n > 0", fmt.Sprintf("u%d", list)).Scan(&rows, &numbers)
	return rows, numbers
}

// trimmed waits until MariaDB has removed notes of so many units.
func (b *countingBed) trimmed(units int) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("notes of %d units are trimmed", units), func() bool {
		var n int
		err := b.db.QueryRow("SELECT COUNT(*) FROM (SELECT unit FROM perigee_notes GROUP BY unit HAVING MIN(number) > 1) AS trimmed").Scan(&n)
		return err == nil && n == units
	})
}

// TestStateWorkers lets a second worker take over from one that was killed. It has no copies, so
// it refuses the units, and goes on with others; the first worker gets its units back.
func TestStateWorkers(t *testing.T) {
	if nodedb.Version() == "" {
		t.Skip("state needs a build with cgo")
	}
	t.Parallel()
	b := newCountingBed(t)
	file, _ := b.worker("partition")
	first := runEngine(t, file, flushAgeVariable+"=50ms")
	for i := range 3 {
		b.push(1, 2, 3)
		for _, list := range []int{1, 2, 3} {
			b.has(list, i+1)
		}
	}
	b.trimmed(3)
	other, _ := b.worker("partition")
	second := runEngine(t, other)
	b.push(4)
	b.has(4, 1) // by either of them
	b.push(1, 2, 3)
	for _, list := range []int{1, 2, 3} {
		b.has(list, 4)
	}
	_ = first.cmd.Process.Kill()
	const refusal = "a unit of the state cannot be opened; its events wait"
	eventually(t, "the second worker refuses the units", func() bool { return strings.Count(second.log.String(), refusal) >= 3 })
	b.push(1, 2, 3, 5)
	b.has(5, 1)
	time.Sleep(2 * time.Second) // in which it may not try again and again
	if n := strings.Count(second.log.String(), refusal); n > 4 {
		t.Errorf("the second worker has refused units %d times", n)
	}
	for _, list := range []int{1, 2, 3} {
		if rows, _ := b.count(list); rows != 4 {
			t.Errorf("there are %d rows of list %d, want 4", rows, list)
		}
	}
	first = runEngine(t, file)
	for _, list := range []int{1, 2, 3} {
		b.has(list, 5)
	}
	for _, p := range []*process{first, second} {
		p.signal(syscall.SIGTERM)
		p.ends(0)
	}
}

// TestDeletedCopy deletes the copy of the only unit: the engine ends, and names who has another.
func TestDeletedCopy(t *testing.T) {
	if nodedb.Version() == "" {
		t.Skip("state needs a build with cgo")
	}
	t.Parallel()
	b := newCountingBed(t)
	file, folder := b.worker("pipeline")
	p := runEngine(t, file, flushAgeVariable+"=50ms")
	for i := range 3 {
		b.push(1, 2)
		b.has(1, i+1)
		b.has(2, i+1)
	}
	b.trimmed(1)
	p.signal(syscall.SIGTERM)
	p.ends(0)
	copies := filepath.Join(folder, "data", "state")
	if err := os.Rename(copies, copies+".away"); err != nil {
		t.Fatal(err)
	}
	b.push(1)
	for range 2 {
		p = runEngine(t, file)
		p.ends(1)
		p.says("unit all of state users has no copy in " + filepath.Join(copies, "users", "all"))
		p.says("hint: its last owner, ", " has a copy")
	}
	if rows, _ := b.count(1); rows != 3 {
		t.Errorf("there are %d rows of list 1, want 3", rows)
	}
	if err := os.Rename(copies+".away", copies); err != nil {
		t.Fatal(err)
	}
	p = runEngine(t, file)
	b.has(1, 4)
	p.signal(syscall.SIGTERM)
	p.ends(0)
}
