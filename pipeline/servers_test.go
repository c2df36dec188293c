package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/e2e"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/mysql"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
)

// Each event's end follows from its id. Names of 10 bytes do not fit the column.
const sorting = `
function main(event)
  if event.id % 10 == 1 then return nil end
  if event.id % 100 == 2 then error("no") end
  return {id = event.id, name = event.id % 1000 == 3 and "0123456789" or "short"}
end`

func expectedEnd(id int) (row, letter bool) {
	switch {
	case id%10 == 1:
		return false, false
	case id%100 == 2, id%1000 == 3:
		return false, true
	}
	return true, false
}

// TestServers stops a pipeline from Redis to MariaDB at random moments and restarts it.
// Every event ends once, where it belongs.
func TestServers(t *testing.T) {
	const events = 20_000
	queue, maria := testserver.Redis(t), testserver.MariaDB(t)
	database := maria.Database(t)
	producer, err := e2e.NewPusher(queue.Address(), "emails", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.PushUpTo(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	letters, err := deadletter.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer letters.Close()

	end := &serverPair{queue.Address(), mysql.Config{
		Address: maria.Address(), User: "root", Database: database, Table: "events", Create: true,
		Columns: []mysql.Column{
			{Name: "id", Type: mysql.Type(event.Int64), Required: true},
			{Name: "name", Type: mysql.Type(event.String), SQL: "VARCHAR(5)"},
		},
	}, letters}
	random := testseed.New(t)
	stopped := 0
	for {
		// Later stops come later, so that a slow machine gets to the end too.
		after := time.Duration(15+random.IntN(30)+6*stopped) * time.Millisecond
		err := end.run(t, after)
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || stopped == 200 {
			t.Fatalf("after %d stops: %v", stopped, err)
		}
		stopped++
	}
	t.Logf("stopped %d times", stopped)
	if waiting, err := producer.Waiting(t.Context()); waiting != 0 || err != nil {
		t.Errorf("%d events are left in the list, %v", waiting, err)
	}
	db, err := sql.Open("mysql", maria.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	checkEnds(t, events, db, letters)
}

// A serverPair makes one pipeline after the other between the same two servers, like a
// process that restarts.
type serverPair struct {
	redis   string
	mysql   mysql.Config
	letters *deadletter.Store
}

func (s *serverPair) run(t *testing.T, after time.Duration) error {
	log, limits := slog.New(slog.DiscardHandler), source.Limits{Events: 100, Bytes: 1 << 20}
	src, err := redis.New(source.Env{Pipeline: "test", Log: log, Limits: limits},
		redis.Config{Address: s.redis, List: "emails", UntilEmpty: true})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	to, err := mysql.New(sink.Env{Pipeline: "test", Log: log}, s.mysql)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	lua, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "sort.lua", Text: []byte(sorting)},
		script.Options{Sinks: []script.Sink{{Name: "table", Columns: to.Traits().Columns, ColumnsOnly: to.Traits().ColumnsOnly}}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer lua.Close()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	return New(Config{
		Name: "test", Source: src, Script: lua, Sinks: []Sink{{Name: "mysql", Sink: to}},
		DeadLetters: s.letters, Limits: limits, Log: log,
	}).Run(ctx)
}

func checkEnds(t *testing.T, events int, db *sql.DB, letters *deadletter.Store) {
	rows, dead := make([]int, events+1), make([]int, events+1)
	found, err := db.Query("SELECT id FROM events")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var id int
		if err := found.Scan(&id); err != nil {
			t.Fatal(err)
		}
		rows[id]++
	}
	for l, err := range letters.List(deadletter.Filter{}) {
		var id int
		if _, scanned := fmt.Sscanf(string(l.Original), `{"id":%d,`, &id); err != nil || scanned != nil {
			t.Fatal(l, err, scanned)
		}
		dead[id]++
	}
	wrong := 0
	for id := 1; id <= events; id++ {
		row, letter := expectedEnd(id)
		if (rows[id] != 1) == row || rows[id] > 1 || (dead[id] != 1) == letter || dead[id] > 1 {
			if wrong++; wrong <= 10 {
				t.Errorf("event %d is there as %d rows and %d dead letters", id, rows[id], dead[id])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d events are wrong", wrong, events)
	}
}

// TestWorkersShareServers lets two workers share lists by leases in a real server. One
// is suspended for longer than its leases last, and resumes.
func TestWorkersShareServers(t *testing.T) {
	const lists, each = 4, 1500
	maria := testserver.MariaDB(t)
	database := maria.Database(t)
	config := mysql.Config{
		Address: maria.Address(), User: "root", Database: database, Table: "events", Create: true,
		Columns: []mysql.Column{{Name: "id", Type: mysql.Type(event.Int64), Required: true}},
	}
	q := newMemorySource()
	q.onRead = func(ctx context.Context) error { sleep(ctx, 10*time.Millisecond); return ctx.Err() }
	for i := range lists {
		list := newMemoryPartition(fmt.Sprint("list ", i), each)
		for n := range list.docs {
			list.docs[n] = fmt.Sprintf(`{"id":%d}`, i*each+n)
		}
		q.add(list)
	}
	var views []*workerView
	var working sync.WaitGroup
	for i := range 2 {
		log := slog.New(slog.DiscardHandler)
		to, err := mysql.New(sink.Env{Pipeline: "test", Log: log}, config)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		lua, err := gopherlua.Language().Load(t.Context(),
			script.Code{Name: "pass.lua", Text: []byte("function main(e) return e end")},
			script.Options{Sinks: []script.Sink{{Name: "table", Columns: to.Traits().Columns, ColumnsOnly: to.Traits().ColumnsOnly}}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		defer lua.Close()
		v := newWorkerView(to)
		views = append(views, v)
		r := newHarness(t, q, lua, v)
		r.config.Worker, r.config.Lease = fmt.Sprint("worker ", i), time.Second
		r.Pipeline = New(r.config)
		working.Go(func() {
			if err := r.Run(t.Context()); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	for end := time.Now().Add(time.Minute); views[0].opens.Load() == 0 && time.Now().Before(end); { // a busy machine
		time.Sleep(time.Millisecond)
	}
	views[0].freeze()
	time.Sleep(2 * time.Second)
	views[0].unfreeze()
	working.Wait()

	db, err := sql.Open("mysql", maria.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows, ids int
	if err := db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT id) FROM events").Scan(&rows, &ids); err != nil {
		t.Fatal(err)
	}
	if rows != lists*each || ids != rows {
		t.Errorf("%d rows of %d events, want %d", rows, ids, lists*each)
	}
	if views[0].opens.Load() == 0 || views[1].opens.Load() == 0 {
		t.Errorf("the workers opened %d and %d lists", views[0].opens.Load(), views[1].opens.Load())
	}
}

// TestDatabaseSetBackWhileIdle resets the database to an older state while a pipeline
// waits for events: the pipeline stops and says so, although no event arrives.
func TestDatabaseSetBackWhileIdle(t *testing.T) {
	maria := testserver.MariaDB(t)
	database := maria.Database(t)
	db, err := sql.Open("mysql", maria.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	to, err := mysql.New(sink.Env{Pipeline: "test", Log: slog.New(slog.DiscardHandler)}, mysql.Config{
		Address: maria.Address(), User: "root", Database: database, Table: "events", Create: true,
		Columns: []mysql.Column{{Name: "id", Type: mysql.Type(event.Int64), Required: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	list := newMemoryPartition("list", 100)
	for n := range list.docs {
		list.docs[n] = fmt.Sprintf(`{"id":%d}`, n)
	}
	q := newIdleSource(list)
	lua, err := gopherlua.Language().Load(t.Context(),
		script.Code{Name: "pass.lua", Text: []byte("function main(e) return e end")},
		script.Options{Sinks: []script.Sink{{Name: "table", Columns: to.Traits().Columns, ColumnsOnly: to.Traits().ColumnsOnly}}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer lua.Close()
	r := newHarness(t, q, lua, to)
	r.config.Lease = time.Second
	r.Pipeline = New(r.config)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context()) }()
	for rows, end := 0, time.Now().Add(time.Minute); rows < len(list.docs); time.Sleep(10 * time.Millisecond) {
		if err := db.QueryRow("SELECT COUNT(*) FROM events").Scan(&rows); time.Now().After(end) {
			t.Fatalf("after a minute, %d rows of %d are there, error %v", rows, len(list.docs), err)
		}
	}
	if _, err := db.Exec("DELETE FROM perigee_ranges"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if _, ok := errors.AsType[*event.PermanentError](err); !ok {
			t.Errorf("the pipeline ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the pipeline goes on as if nothing had been lost")
	}
}
