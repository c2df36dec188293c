package postgres

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
)

// span makes count rows from position first on; their ids are their positions.
func span(w hand, first, count uint64) *event.Output {
	r := sinktest.NewOutputBuilder(w.sink.columns)
	for i := range count {
		r.Add(int64(first+i), "row")
	}
	return r.Output(first)
}

// once fails the test unless the ids are exactly those below n, each once.
func (g *place) once(n int) {
	g.t.Helper()
	want := fmt.Sprintf("%d|%d|0|%d", n, n, n-1)
	if got := g.text("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM events"); got[0] != want {
		g.t.Errorf("rows, ids, least, greatest: %s, want %s", got[0], want)
	}
}

// TestFrozenInsideTransaction stops a worker in the middle of its rows, whose
// keys are locked by then. The next owner must not wait for it.
func TestFrozenInsideTransaction(t *testing.T) {
	g := newPlace(t, named(20)...)
	g.config.PrimaryKey = []string{"id"}
	frozen := g.open()
	b := claim(t, frozen.sink)
	c, err := frozen.sink.pool.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.hangUp()
	out := span(frozen, 0, 5000)
	data, err := b.plan.format.append(nil, out.Columns, upTo(5000), false)
	if err != nil {
		t.Fatal(err)
	}
	f := c.Frontend()
	begin := fmt.Sprintf("BEGIN;SELECT pg_advisory_xact_lock_shared(%s,%d);", frozen.sink.lockClass(true), b.ID)
	f.SendQuery(&pgproto3.Query{String: begin + b.plan.copy + string(b.AppendRanges(nil, []event.Range{out.Range})) + ";COMMIT"})
	f.Send(&pgproto3.CopyData{Data: data[:len(data)/2]})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	// It has gone through some of its rows once it has locked the table's key.
	g.await("SELECT count(*) > 0 FROM pg_locks WHERE relation = 'events_pkey'::regclass AND mode = 'RowExclusiveLock'", "t")

	fresh := g.open()
	g.write(fresh, span(fresh, 0, 5000)) // which would fail at the time-out of locks
	g.once(5000)

	f.Send(&pgproto3.CopyData{Data: data[len(data)/2:]})
	f.Send(&pgproto3.CopyDone{})
	_ = f.Flush()
	for err = nil; err == nil; {
		var message pgproto3.BackendMessage
		message, err = f.Receive()
		if done, ok := message.(*pgproto3.CommandComplete); ok && string(done.CommandTag) == "COMMIT" {
			t.Error("a frozen worker committed after its partition was taken over")
		}
	}
	g.once(5000)
}

// claim takes partition a of pipeline p over, without a writer.
func claim(t testing.TB, s *Sink) *partition {
	t.Helper()
	p := &partition{Claim: s.store.NewClaim("a"), sink: s}
	p.plan = planOf(t, s)
	if _, err := p.TakeOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestDatabaseRestored restores the database to an older state: a writer that
// runs on notices, and a source that has given up what is gone names it.
func TestDatabaseRestored(t *testing.T) {
	g := newPlace(t, named(20)...)
	list := newList(t, testserver.Redis(t), 30)
	s := g.sink("p")
	defer s.Close()
	w, done, err := s.Open(t.Context(), list.partition)
	if err != nil {
		t.Fatal(err)
	}
	h := hand{w, s, done}
	reader := list.open(t, done)
	deliver := func(first uint64) {
		g.write(h, span(h, first, 10))
		if err := reader.Ack(t.Context(), event.Range{First: first, Count: 10}); err != nil {
			t.Fatal(err)
		}
	}
	deliver(0)
	g.backup()
	deliver(10)
	if err := reader.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.restore()

	for range 2 {
		err = w.Write(t.Context(), span(h, 20, 10))
		permanent, ok := errors.AsType[*event.PermanentError](err)
		if !ok || !strings.Contains(permanent.Error(), "has lost committed events: [10,20)") {
			t.Errorf("a writer that runs on returned %v", err)
		}
	}
	fresh := g.sink("p")
	defer fresh.Close()
	_, done, err = fresh.Open(t.Context(), list.partition)
	if err != nil || done.String() != "[0,10)" {
		t.Fatalf("a new owner is told %v, %v", done, err)
	}
	_, err = list.source.Open(t.Context(), list.partition, done)
	if _, ok := errors.AsType[*event.PermanentError](err); !ok || !strings.Contains(err.Error(), "[10,20)") {
		t.Errorf("the source opens with %v", err)
	}
}

var kept = []string{"events", sqlsink.OwnersTable, sqlsink.RangesTable}

func (g *place) backup() {
	for _, name := range kept {
		g.text(fmt.Sprintf("CREATE TABLE %s_then AS TABLE %[1]s", name))
	}
}

// restore puts the tables back and ends all connections, as a server does that
// is started on an older copy of its data.
func (g *place) restore() {
	g.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perigee'")
	for _, name := range kept {
		g.text(fmt.Sprintf("TRUNCATE %s; INSERT INTO %[1]s OVERRIDING SYSTEM VALUE TABLE %[1]s_then", name))
	}
}

// TestPoolDropsConnectionsThatTheServerEnded: one lost connection does not cost a write
// for every idle one.
func TestPoolDropsConnectionsThatTheServerEnded(t *testing.T) {
	g := newPlace(t, named(20)...)
	w := g.open()
	var conns []*conn
	for range 5 {
		c, err := w.sink.pool.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	pids := make([]string, 0, 5)
	for _, c := range conns {
		pids = append(pids, fmt.Sprint(c.PID()))
		w.sink.pool.put(t.Context(), c)
	}
	g.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid IN (" + strings.Join(pids, ",") + ")")
	if err := w.Write(t.Context(), span(w, 0, 10)); err != nil { // it may tell of the lost connection
		sinktest.ExpectClass(t, err, sinktest.Transient)
	}
	g.write(w, span(w, 0, 10))
	g.once(10)
	if n := len(w.sink.pool.idle); n != 1 {
		t.Errorf("%d connections are idle", n)
	}
}

func TestSessionsAreSetUp(t *testing.T) {
	g := newPlace(t, named(60)...)
	w := g.open()
	c, err := w.sink.pool.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.sink.pool.put(t.Context(), c)
	var names []string
	for name := range session {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		rows, err := c.Query(t.Context(), "SELECT current_setting("+quoteText(name)+")")
		if err != nil {
			t.Fatal(err)
		}
		if got := string(rows[0][0]); !strings.HasPrefix(got, session[name]) {
			t.Errorf("%s is %s, want %s", name, got, session[name])
		}
	}
}

// A list of events in Redis, read as a pipeline does.
type list struct {
	source    source.Source
	partition string
}

func newList(t *testing.T, broker *testserver.RedisServer, events int) *list {
	t.Helper()
	decode := func(into any) error {
		*into.(*redis.Config) = redis.Config{Address: broker.Address(), List: "events"}
		return nil
	}
	s, err := redis.Kind().New(source.Env{Pipeline: "p", Remembered: true, Limits: source.Limits{Events: events, Bytes: 1 << 20}}, decode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	push(t, broker.Address(), events)
	partitions, err := s.Partitions(t.Context())
	if err != nil || len(partitions) != 1 {
		t.Fatal(partitions, err)
	}
	return &list{s, partitions[0]}
}

// open reads all that there is.
func (l *list) open(t *testing.T, done event.Ranges) source.Reader {
	t.Helper()
	r, err := l.source.Open(t.Context(), l.partition, done)
	if err != nil {
		t.Fatal(err)
	}
	var b event.Batch
	if err := r.Read(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return r
}

func push(t *testing.T, address string, events int) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range events {
		_, _ = fmt.Fprintf(conn, "RPUSH events [%d]\r\n", i)
	}
	replies := bufio.NewReader(conn)
	for range events {
		if reply, err := replies.ReadString('\n'); err != nil || reply[0] != ':' {
			t.Fatal(reply, err)
		}
	}
}
