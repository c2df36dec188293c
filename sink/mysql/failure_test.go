package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// span makes count rows from position first on; their ids are their positions.
func span(w writer, first, count uint64) *event.Output {
	r := newRows(w)
	for i := range count {
		r.Add(int64(first+i), "row")
	}
	r.out.Range.First = first
	return r.out
}

// once fails the test unless the ids are exactly those below n, each once.
func (g *target) once(n int) {
	g.t.Helper()
	want := fmt.Sprintf("%d|%d|0|%d", n, n, n-1)
	if got := g.text("SELECT COUNT(*), COUNT(DISTINCT id), MIN(id), MAX(id) FROM events"); got[0] != want {
		g.t.Errorf("rows, ids, least, greatest: %s, want %s", got[0], want)
	}
}

func passing(t *testing.T, err error) {
	t.Helper()
	permanent := event.IsPermanent(err)
	_, rows := errors.AsType[*sink.RowErrors](err)
	if err == nil || permanent || rows || errors.Is(err, sink.ErrFenced) {
		t.Fatalf("returned %v, want an error that passes", err)
	}
}

func TestConnectionLostAtCommit(t *testing.T) {
	type test struct {
		name   string
		fault  sinktest.Fault
		method Method
	}
	for _, test := range []test{
		{"before the server has it", sinktest.DropRequest, Rows}, {"before its reply arrives", sinktest.DropReply, Rows},
		{"before the arrays arrive", sinktest.DropRequest, Bulk}, {"before they are answered", sinktest.DropReply, Bulk},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newTarget(t, named(20)...)
			g.config.Method = test.method
			p := newProxy(t, g.config.Address)
			g.config.Address = p.Addr().String()
			w := g.open()
			p.Set(test.fault)
			// The end of it is lost, and found out at once.
			if err := w.Write(t.Context(), span(w, 0, 100)); err != nil {
				passing(t, err)
			}
			for range 2 {
				if err := w.Write(t.Context(), span(w, 0, 100)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Write(t.Context(), span(w, 100, 100)); err != nil {
				t.Fatal(err)
			}
			g.once(200)
		})
	}
}

// TestCommitArrivesLate lets the server get a commit after the writer has given
// it up and written the events again, cut otherwise.
func TestCommitArrivesLate(t *testing.T) {
	g := newTarget(t, named(20)...)
	g.config.Method = Rows
	p := newProxy(t, g.config.Address)
	g.config.Address = p.Addr().String()
	w := g.open()
	w.hideSessions()
	p.Set(sinktest.Delay)
	passing(t, w.Write(t.Context(), span(w, 100, 100)))
	if err := w.Write(t.Context(), span(w, 0, 300)); err != nil {
		t.Fatal(err)
	}
	close(p.Late)
	<-p.Done
	g.once(300)
	if err := w.Write(t.Context(), span(w, 300, 10)); err != nil {
		t.Errorf("the writer fenced itself: %v", err)
	}
}

// hideSessions makes sure that the next owner cannot end the writer's connections.
func (p *partition) hideSessions() {
	for slot := range p.slots {
		p.slots[slot] = true
	}
}

// freeze stops a worker after its rows and before its range. thaw lets it continue.
func freeze(t *testing.T, w writer) (thaw func() error) {
	s, err := w.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.discard(s) })
	out := span(w, 0, 100)
	b := &batch{columns: out.Columns, formats: newFormats(w.partition.sink.columns, &w.plan)}
	for row := range out.Len() {
		b.rows = append(b.rows, row)
	}
	if err := s.conn.Exec(t.Context(), startTransaction); err != nil {
		t.Fatal(err)
	}
	if err := w.insertRows(t.Context(), s, b, b.rows, w.plan.method); err != nil {
		t.Fatal(err)
	}
	return func() error {
		defer rollBack(t.Context(), s.conn)
		return s.conn.send(t.Context(), append(w.AppendRanges(nil, []event.Range{out.Range}), ";COMMIT"...))
	}
}

// TestFrozenInsideTransaction lets a worker go on when another has written the
// same events.
func TestFrozenInsideTransaction(t *testing.T) {
	g := newTarget(t, named(20)...)
	frozen := g.open()
	frozen.hideSessions()
	thaw := freeze(t, frozen)
	fresh := g.open()
	if err := fresh.Write(t.Context(), span(fresh, 0, 100)); err != nil {
		t.Fatal(err)
	}
	if err := thaw(); classify(err) != sqlsink.Rejected {
		t.Errorf("the commit of a fenced worker returned %v", err)
	}
	if err := frozen.Write(t.Context(), span(frozen, 100, 100)); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a fenced worker is told %v", err)
	}
	g.once(100)
}

// TestFrozenWorkerLosesItsLocks takes over from a worker that holds locks on the
// very rows that its successor writes.
func TestFrozenWorkerLosesItsLocks(t *testing.T) {
	for _, method := range []Method{Rows, Bulk} {
		t.Run(string(method), func(t *testing.T) {
			g := newTarget(t, named(20)...)
			g.config.PrimaryKey, g.config.Method = []string{"id"}, method
			thaw := freeze(t, g.open())
			fresh := g.open()
			began := time.Now()
			if err := fresh.Write(t.Context(), span(fresh, 0, 100)); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited > 5*time.Second {
				t.Errorf("the successor waited %v for locks of a frozen worker", waited)
			}
			if err := thaw(); err == nil {
				t.Error("the frozen worker committed")
			}
			g.once(100)
		})
	}
}

// TestServerIsKilled kills the server while four lanes write.
func TestServerIsKilled(t *testing.T) {
	const kills, lanes, size = 3, 4, 100
	server := testserver.MariaDB(t)
	g := on(t, server)
	g.config.Columns, g.config.Create = named(20), true
	w := g.open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var mu sync.Mutex
	var next uint64
	killing := true
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		next += size
		return next - size, killing
	}
	var group sync.WaitGroup
	for range lanes {
		group.Go(func() {
			for {
				first, more := take()
				for err := w.Write(ctx, span(w, first, size)); err != nil; err = w.Write(ctx, span(w, first, size)) {
					if errors.Is(err, sink.ErrFenced) || ctx.Err() != nil {
						t.Errorf("writing at %d: %v", first, err)
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
				if !more {
					return
				}
			}
		})
	}
	for range kills {
		time.Sleep(time.Duration(20+rand.IntN(80)) * time.Millisecond)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	killing = false
	mu.Unlock()
	group.Wait()
	g.once(int(next))
	s := g.sink("p")
	defer s.Close()
	_, done, err := s.Open(ctx, "a")
	if err != nil || len(done) != 1 || !done.Covers(0, next) {
		t.Errorf("a new owner is told %v, %v; want [0,%d)", done, err, next)
	}
}

// TestSetBackWhileIdle sets the database back to an older state while nothing is
// written.
func TestSetBackWhileIdle(t *testing.T) {
	tables := []string{"events", "perigee_owners", "perigee_ranges"}
	g := newTarget(t, named(20)...)
	w := g.open()
	write := func(first uint64) {
		t.Helper()
		if err := w.Write(t.Context(), span(w, first, 300)); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	for _, name := range tables {
		g.exec(fmt.Sprintf("CREATE TABLE %s_then AS SELECT * FROM %[1]s", name))
	}
	write(300)
	if err := w.Verify(t.Context()); err != nil {
		t.Fatalf("before it was set back: %v", err)
	}
	for _, name := range tables {
		g.exec("DELETE FROM " + name)
		g.exec(fmt.Sprintf("INSERT INTO %s SELECT * FROM %[1]s_then", name))
	}
	for range 2 {
		lostLast(t, w.Verify(t.Context()))
	}
	lostLast(t, w.Write(t.Context(), span(w, 600, 10)))
}

func lostLast(t *testing.T, err error) {
	t.Helper()
	permanent := event.IsPermanent(err)
	if !permanent || !strings.Contains(err.Error(), "has lost committed events: [300,600)") {
		t.Errorf("after the database was set back: %v", err)
	}
}
