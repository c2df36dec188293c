package mysql

import (
	"fmt"
	"testing"

	"github.com/perigeedb/perigee/event"
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

// TestCommitArrivesLate lets the server get a commit after the writer has given
// it up and written the events again, cut otherwise.
func TestCommitArrivesLate(t *testing.T) {
	g := newTarget(t, named(20)...)
	g.config.Method = Rows
	p := newProxy(t, g.config.Address)
	g.config.Address = p.Addr().String()
	w := g.open()
	w.hideSessions()
	p.SetFault(sinktest.Delay)
	sinktest.ExpectClass(t, w.Write(t.Context(), span(w, 100, 100)), sinktest.Transient)
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
	sinktest.ExpectClass(t, frozen.Write(t.Context(), span(frozen, 100, 100)), sinktest.Fenced)
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
			if err := fresh.Write(t.Context(), span(fresh, 0, 100)); err != nil { // such as a time-out of locks
				t.Fatal(err)
			}
			if err := thaw(); err == nil || classify(err) != sqlsink.Unknown {
				t.Errorf("the commit of a worker whose connection was ended returned %v", err)
			}
			g.once(100)
		})
	}
}
