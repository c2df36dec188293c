// Package sqltest is the suite for all SQL sinks: it tests the promises of package sqlsink
// against real servers. Package sinktest tests the promises of every sink.
package sqltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// A Table is a place for the table events of one test, which sinks create with the
// columns id, a required int64, and name, a VARCHAR(20). The functions run statements
// where the table and those for positions are.
type Table struct {
	Address string // of the server; a test may put a proxy before it
	Mode    sqlsink.Mode
	Keyed   bool // id is the primary key
	State   bool // the pipeline has a state
	Sink    func(t *testing.T, table *Table, pipeline string) sink.Sink
	Query   func(statement string) []string // rows, their cells separated by |; a null is NULL
}

// A Server is one that a test may kill.
type Server interface {
	Kill() error
	Start(ctx context.Context) error
}

// A Kind is what the suite has to know about a kind of database.
type Kind struct {
	// Table makes an empty place on a server that the tests share.
	Table func(t *testing.T) *Table

	// OwnServer makes an empty place on a server of the test's own. reconnect lets
	// Query work again after the server was started again.
	OwnServer func(t *testing.T) (table *Table, server Server, reconnect func())

	// Claim takes partition a of pipeline p over for s, without a writer.
	Claim func(t *testing.T, s sink.Sink) positions.Store

	// Proxy makes a proxy before a server. CutsCommit says that its faults hit the
	// commit itself, so that the server commits if and only if it gets the packet.
	Proxy      func(t *testing.T, address string) *sinktest.Proxy
	CutsCommit bool

	HoursAgo string // "committed", three hours earlier
}

// Run runs the suite.
func Run(t *testing.T, kind Kind) {
	tests := []struct {
		name string
		run  func(*trial)
	}{
		{"ConnectionLostAtCommit", connectionLostAtCommit},
		{"ServerIsKilled", serverIsKilled},
		{"ServerIsKilledDuringNotes", serverIsKilledDuringNotes},
		{"AbsentServer", absentServer},
		{"RangesAreCompacted", rangesAreCompacted},
		{"FencedWriterCompactsNothing", fencedWriterCompactsNothing},
		{"CompactionIsSentOnce", compactionIsSentOnce},
		{"LastRowOfAKeyWins", lastRowOfAKeyWins},
		{"FirstRowOfAKeyStays", firstRowOfAKeyStays},
		{"KeysExcuseNoFault", keysExcuseNoFault},
		{"ManyCreateTheTables", manyCreateTheTables},
		{"NamesOfPartitions", namesOfPartitions},
		{"TablesAreListed", tablesAreListed},
		{"TablesOfUnits", tablesOfUnits},
		{"ManyCreateTheTablesOfUnits", manyCreateTheTablesOfUnits},
		{"DamagedNotes", damagedNotes},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(&trial{T: t, kind: kind}) })
	}
}

type trial struct {
	*testing.T
	kind  Kind
	table *Table
}

func (t *trial) newTable() *trial {
	t.Helper()
	t.table = t.kind.Table(t.T)
	return t
}

func (t *trial) sink() sink.Sink {
	t.Helper()
	s := t.table.Sink(t.T, t.table, "p")
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// open opens partition a of pipeline p.
func (t *trial) open() (sink.Writer, event.Ranges) {
	t.Helper()
	w, committed, err := t.sink().Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, committed
}

func (t *trial) openWriter() sink.Writer {
	t.Helper()
	w, _ := t.open()
	return w
}

func (t *trial) write(w sink.Writer, out *event.Output) {
	t.Helper()
	if err := w.Write(t.Context(), out); err != nil {
		t.Fatal(err)
	}
}

// proxied makes later sinks connect through a proxy.
func (t *trial) proxied() *sinktest.Proxy {
	p := t.kind.Proxy(t.T, t.table.Address)
	t.table.Address = p.Addr().String()
	return p
}

func columns() []event.Column {
	return []event.Column{{Name: "id", Path: []string{"id"}, Type: event.Int64, Required: true}, {Name: "name", Path: []string{"name"}, Type: event.String}}
}

// span makes count rows from position first on; their ids are their positions.
func span(first, count uint64) *event.Output {
	r := sinktest.NewOutputBuilder(columns())
	for i := range count {
		r.Add(int64(first+i), "row")
	}
	return r.Output(first)
}

// checkOnce fails the test unless the ids are exactly those below n, each once.
func (t *trial) checkOnce(n int) {
	t.Helper()
	want := fmt.Sprintf("%d|%d|0|%d", n, n, n-1)
	if got := t.table.Query("SELECT COUNT(*), COUNT(DISTINCT id), MIN(id), MAX(id) FROM events"); got[0] != want {
		t.Errorf("rows, ids, least, greatest: %s, want %s", got[0], want)
	}
}

func connectionLostAtCommit(t *trial) {
	for name, fault := range map[string]sinktest.Fault{
		"before the server has it": sinktest.DropRequest, "before its reply arrives": sinktest.DropReply,
	} {
		t.Run(name, func(inner *testing.T) {
			t := (&trial{T: inner, kind: t.kind}).newTable()
			p := t.proxied()
			w := t.openWriter()
			p.SetFault(fault)
			// The writer learns at once what was lost.
			err := w.Write(t.Context(), span(0, 100))
			if committed := fault == sinktest.DropReply; t.kind.CutsCommit && (err == nil) != committed {
				t.Fatalf("writing returned %v, and it was committed: %v", err, committed)
			}
			if err != nil {
				sinktest.ExpectClass(t.T, err, sinktest.Transient)
			}
			for range 2 {
				t.write(w, span(0, 100))
			}
			t.write(w, span(100, 100))
			t.checkOnce(200)
		})
	}
}

// serverIsKilled kills the server while four lanes write.
func serverIsKilled(t *trial) {
	const kills, lanes, size = 3, 4, 100
	table, server, reconnect := t.kind.OwnServer(t.T)
	t.table = table
	w := t.openWriter()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	var mu sync.Mutex
	var next uint64
	killing := true
	claim := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		next += size
		return next - size, killing
	}
	var group sync.WaitGroup
	for range lanes {
		group.Go(func() {
			for {
				first, more := claim()
				for err := w.Write(ctx, span(first, size)); err != nil; err = w.Write(ctx, span(first, size)) {
					if class := sinktest.ClassOf(err); class != sinktest.Transient && class != sinktest.Conflict || ctx.Err() != nil {
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
	random := testseed.New(t)
	for range kills {
		time.Sleep(time.Duration(20+random.IntN(80)) * time.Millisecond)
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
	reconnect()
	t.checkOnce(int(next))
	if _, committed := t.open(); len(committed) != 1 || !committed.Covers(0, next) {
		t.Errorf("a new owner is told %v; want [0,%d)", committed, next)
	}
}

// serverIsKilledDuringNotes kills the server while notes are written. Each is committed once, with its
// range and rows.
func serverIsKilledDuringNotes(t *trial) {
	const kills, size = 3, 50
	table, server, reconnect := t.kind.OwnServer(t.T)
	t.table = table
	s := t.sink()
	unit, err := s.Traits().Units.OpenUnit(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	opened, _, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	w := opened.(sink.NoteWriter)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	killed, last := make(chan struct{}), uint64(0)
	var group sync.WaitGroup
	group.Go(func() {
		for more := true; more; {
			select {
			case <-killed:
				more = false
			default:
			}
			note := &sink.Note{Number: last + 1, Sum: last, Data: make([]byte, 10_000)}
			err := w.WriteNote(ctx, span(last*size, size), unit, note)
			for ; err != nil; err = w.WriteNote(ctx, span(last*size, size), unit, note) {
				if class := sinktest.ClassOf(err); class != sinktest.Transient && class != sinktest.Conflict || ctx.Err() != nil {
					t.Errorf("writing note %d: %v", note.Number, err)
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			last++
		}
	})
	random := testseed.New(t)
	for range kills {
		time.Sleep(time.Duration(20+random.IntN(80)) * time.Millisecond)
		if err := errors.Join(server.Kill(), server.Start(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	close(killed)
	group.Wait()
	reconnect()
	t.checkOnce(int(last * size))
	notes := uint64(0)
	if err := unit.Notes(ctx, 0, func(*sink.Note) error { notes++; return nil }); err != nil || notes != last {
		t.Errorf("%d notes are there (%v), and %d were written", notes, err, last)
	}
	if _, committed := t.open(); !committed.Covers(0, last*size) || committed.Has(last*size) {
		t.Errorf("a new owner is told %v; want [0,%d)", committed, last*size)
	}
}

func absentServer(t *trial) {
	t.newTable()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.table.Address = listener.Addr().String()
	listener.Close()
	s := t.sink()
	_, _, err = s.Open(t.Context(), "a")
	for _, err := range []error{err, s.Traits().Check(t.Context())} {
		if sinktest.ExpectClass(t.T, err, sinktest.Transient); !strings.Contains(err.Error(), t.table.Address) {
			t.Errorf("%v does not name the server", err)
		}
	}
}

// ranges returns what perigee_ranges has, a row as first|events|bytes of prints.
func (t *trial) ranges() []string {
	return t.table.Query("SELECT first, events, LENGTH(prints) FROM perigee_ranges ORDER BY owner, first")
}

// commit commits ranges of size events each, with fingerprints if fingerprinted is set.
func (t *trial) commit(w sink.Writer, from, to, size uint64, fingerprinted bool) {
	t.Helper()
	for first := from; first < to; first += size {
		out := &event.Output{Range: event.Range{First: first, Count: size}, Columns: sinktest.NewOutputBuilder(columns()).Output(0).Columns}
		for p := first; fingerprinted && p < out.Range.End(); p++ {
			out.Range.Fingerprints = append(out.Range.Fingerprints, uint32(p)*7)
		}
		t.write(w, out)
		clear(out.Range.Fingerprints)
	}
}

func rangesAreCompacted(t *trial) {
	const every, large = 256, 256 // as package positions has them
	t.newTable()
	w := t.openWriter()
	t.commit(w, 0, every, 1, false)
	if got := t.ranges(); !slices.Equal(got, []string{"0|256|NULL"}) {
		t.Fatalf("after %d commits without fingerprints: %v", every, got)
	}
	end := uint64(every * large)
	t.commit(w, every, end, large, true)
	if got := t.ranges(); len(got) != every {
		t.Fatalf("after as many with fresh fingerprints: %d rows", len(got))
	}
	t.table.Query(fmt.Sprintf("UPDATE perigee_ranges SET committed = %s WHERE first < 3 * %d", t.kind.HoursAgo, large))
	w = t.openWriter()
	t.commit(w, end, end+every, 1, true)
	want := []string{"0|768|NULL", "768|256|1024"}
	got := t.ranges()
	if len(got) != 1+every-3+1 || !slices.Equal(got[:2], want) || got[len(got)-1] != fmt.Sprintf("%d|256|1024", end) {
		t.Fatalf("when some had aged and others were small: %d rows, %v", len(got), got)
	}
	_, committed := t.open()
	if !committed.Covers(0, end+every) {
		t.Fatalf("a new owner is told %v", committed)
	}
	for i, fingerprint := range committed[1].Fingerprints {
		if want := (committed[1].First + uint64(i)) * 7; fingerprint != uint32(want) {
			t.Fatalf("position %d came back with %d, want %d", committed[1].First+uint64(i), fingerprint, want)
		}
	}
}

// fencedWriterCompactsNothing lets an old owner compact what its successor has
// compacted otherwise: it must not delete what it does not know.
func fencedWriterCompactsNothing(t *trial) {
	t.newTable()
	t.commit(t.openWriter(), 0, 40, 10, true)
	old, fresh := t.kind.Claim(t.T, t.sink()), t.kind.Claim(t.T, t.sink())
	if err := fresh.Compact(t.Context(), event.Range{First: 0, Count: 20}); err != nil {
		t.Fatal(err)
	}
	before := t.ranges()
	if err := old.Compact(t.Context(), event.Range{First: 10, Count: 30}); err == nil || old.OutcomeUnknown(err) {
		t.Errorf("a fenced writer's compaction returned %v", err)
	}
	if after := t.ranges(); !slices.Equal(before, after) || len(after) != 3 {
		t.Errorf("perigee_ranges was %v and is %v", before, after)
	}
}

// compactionIsSentOnce loses the connection of a compaction: the server may get it later, when
// others follow, so that it is not repeated.
func compactionIsSentOnce(t *trial) {
	t.newTable()
	t.commit(t.openWriter(), 0, 40, 10, false)
	p := t.proxied()
	claim := t.kind.Claim(t.T, t.sink())
	before, asked := t.ranges(), p.Commits()
	p.SetFault(sinktest.DropRequest)
	err := claim.Compact(t.Context(), event.Range{First: 0, Count: 40})
	if sinktest.ExpectClass(t.T, err, sinktest.Transient); !claim.OutcomeUnknown(err) {
		t.Errorf("the outcome of a lost compaction is known: %v", err)
	}
	if n := p.Commits() - asked; n != 1 || p.Waiting() {
		t.Errorf("the compaction was sent %d times; the fault waits: %v", n, p.Waiting())
	}
	if after := t.ranges(); !slices.Equal(before, after) || len(after) != 4 {
		t.Errorf("perigee_ranges was %v and is %v", before, after)
	}
}

// keyed is a place whose rows have a key, with rows 0 to 599 that are called old.
func (t *trial) keyed(mode sqlsink.Mode) sink.Writer {
	t.newTable()
	t.table.Mode, t.table.Keyed = mode, true
	w := t.openWriter()
	t.write(w, named(0, 600, "old"))
	return w
}

// named makes count rows with ids from 0 to 599, several times if need be.
func named(first uint64, count int, name string) *event.Output {
	r := sinktest.NewOutputBuilder(columns())
	for i := range count {
		r.Add(int64(i%600), name)
	}
	return r.Output(first)
}

// lastRowOfAKeyWins upserts the same keys in several batches, and several times in
// each.
func lastRowOfAKeyWins(t *trial) {
	w := t.keyed(sqlsink.Upsert)
	if order := t.sink().Traits().Order; order != sink.StrictOrder {
		t.Errorf("the order is %v", order)
	}
	for round := range uint64(10) {
		r := sinktest.NewOutputBuilder(columns())
		for i := range int64(1500) {
			name := fmt.Sprint(round)
			if i < 900 {
				name = "too early"
			}
			r.Add(i%600, name)
		}
		t.write(w, r.Output(600+1500*round))
		t.write(w, r.Output(600+1500*round)) // is committed
	}
	if got := t.table.Query("SELECT name, COUNT(*) FROM events GROUP BY name"); !slices.Equal(got, []string{"9|600"}) {
		t.Errorf("the table has %v", got)
	}
	next := sinktest.NewOutputBuilder(columns())
	next.Add(int64(3), "first")
	next.Add(int64(3), nil)
	t.write(w, next.Output(100_000))
	if got := t.table.Query("SELECT COUNT(*) FROM events WHERE name IS NULL"); got[0] != "1" {
		t.Errorf("%s names were replaced by null", got[0])
	}
}

func firstRowOfAKeyStays(t *trial) {
	w := t.keyed(sqlsink.Ignore)
	t.write(w, named(600, 1500, "new"))
	r := sinktest.NewOutputBuilder(columns())
	r.Add(int64(600), "first")
	r.Add(int64(600), "second")
	t.write(w, r.Output(10_000))
	got := t.table.Query("SELECT name, COUNT(*) FROM events GROUP BY name ORDER BY name")
	if !slices.Equal(got, []string{"first|1", "old|600"}) {
		t.Errorf("the table has %v", got)
	}
}

// keysExcuseNoFault: a row whose key exists is rejected for any other fault.
func keysExcuseNoFault(t *trial) {
	for _, mode := range []sqlsink.Mode{sqlsink.Upsert, sqlsink.Ignore} {
		w := t.keyed(mode)
		r := sinktest.NewOutputBuilder(columns())
		for i := range int64(100) {
			r.Add(i, "new")
		}
		r.Add(int64(7), strings.Repeat("too long", 4))
		err := w.Write(t.Context(), r.Output(600))
		rejected, ok := errors.AsType[*sink.RowErrors](err)
		if !ok || len(rejected.Rows) != 1 || rejected.Rows[0].Row != 100 || rejected.Rows[0].Stage != sink.StageColumn {
			t.Errorf("%s: writing returned %v", mode, err)
		}
		if got := t.table.Query("SELECT DISTINCT name FROM events"); !slices.Equal(got, []string{"old"}) {
			t.Errorf("%s: the table has %v", mode, got)
		}
	}
}

// manyCreateTheTables lets several workers find no tables at the same time. Those that
// conflict retry soon, and not for ever.
func manyCreateTheTables(t *trial) {
	t.newTable()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for i := range 6 {
		s := t.sink()
		group.Go(func() {
			for {
				w, _, err := s.Open(ctx, fmt.Sprint(i))
				if errors.Is(err, sink.ErrConflict) && ctx.Err() == nil {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				_ = w.Close()
				return
			}
		})
	}
	group.Wait()
}

// tablesAreListed asks which tables a sink creates, before it does and after.
func tablesAreListed(t *trial) {
	t.newTable()
	list := func(want string) {
		t.Helper()
		tables, err := t.sink().Traits().Tables(t.Context())
		if got := fmt.Sprint(tables); err != nil || got != want {
			t.Errorf("lists %s (%v), want %s", got, err, want)
		}
	}
	const missing = "[{events false} {perigee_owners false} {perigee_ranges false} {perigee_leases false} {perigee_workers false}]"
	list(missing)
	list(missing) // listing creates none
	t.openWriter()
	list(strings.ReplaceAll(missing, "false", "true"))
	t.table.Query("DROP TABLE perigee_leases")
	list("[{events true} {perigee_owners true} {perigee_ranges true} {perigee_leases false} {perigee_workers true}]")
}

// tablesOfUnits: only a pipeline with a state lists and checks them, and only a unit creates them.
func tablesOfUnits(t *trial) {
	t.newTable()
	t.table.State = true
	expect := func(want string) {
		t.Helper()
		traits := t.sink().Traits()
		tables, err := traits.Tables(t.Context())
		if got := fmt.Sprint(tables[5:]); err != nil || got != want {
			t.Errorf("lists %s (%v), want %s", got, err, want)
		}
		if err := traits.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
		if units, err := traits.Units.Units(t.Context()); err != nil || len(units) != 0 {
			t.Errorf("there are units %v, %v", units, err)
		}
	}
	expect("[{perigee_units false} {perigee_notes false}]")
	t.write(t.openWriter(), span(0, 10))
	expect("[{perigee_units false} {perigee_notes false}]")
	units := t.table.Sink(t.T, t.table, "other")
	defer units.Close()
	if _, err := units.Traits().Units.OpenUnit(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	expect("[{perigee_units true} {perigee_notes true}]")
	t.table.State = false
	tables, err := t.sink().Traits().Tables(t.Context())
	if err != nil || len(tables) != 5 {
		t.Errorf("without a state: lists %v, %v", tables, err)
	}
}

func manyCreateTheTablesOfUnits(t *trial) {
	t.newTable()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for range 6 {
		s := t.sink()
		group.Go(func() {
			for {
				unit, err := s.Traits().Units.OpenUnit(ctx, "u")
				if (errors.Is(err, sink.ErrConflict) || errors.Is(err, sink.ErrFenced)) && ctx.Err() == nil {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				_ = unit.Close()
				return
			}
		})
	}
	group.Wait()
	if got := t.table.Query("SELECT COUNT(*), MIN(epoch) >= 1 FROM perigee_units"); !slices.Contains([]string{"1|1", "1|t"}, got[0]) {
		t.Errorf("the units and their epochs: %s", got[0])
	}
}

// damagedNotes changes parts of notes behind the sink's back.
func damagedNotes(t *trial) {
	for name, damage := range map[string]string{
		"the first part is missing":  "DELETE FROM perigee_notes WHERE number = 2 AND part = 0",
		"the last part is missing":   "DELETE FROM perigee_notes WHERE number = 2 AND part = 1",
		"a part of another history":  "UPDATE perigee_notes SET sum = 5 WHERE number = 2 AND part = 1",
		"the number of parts differ": "UPDATE perigee_notes SET parts = 3 WHERE number = 2 AND part = 1",
		"a part is shorter":          "UPDATE perigee_notes SET data = '' WHERE number = 2 AND part = 1",
		"the unit is gone":           "DELETE FROM perigee_units",
	} {
		t.Run(name, func(inner *testing.T) {
			t := (&trial{T: inner, kind: t.kind}).newTable()
			s := t.sink()
			unit, err := s.Traits().Units.OpenUnit(t.Context(), "u")
			if err != nil {
				t.Fatal(err)
			}
			opened, _, err := s.Open(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = opened.Close() })
			w := opened.(sink.NoteWriter)
			for number := uint64(1); number <= 3; number++ {
				note := &sink.Note{Number: number, Sum: number}
				if number == 2 { // it takes two parts
					note.Data = make([]byte, sqlsink.NotePart+1)
				}
				if err := w.WriteNote(t.Context(), span(number*10, 10), unit, note); err != nil {
					t.Fatal(err)
				}
			}
			t.table.Query(damage)
			if name == "the unit is gone" {
				err = w.WriteNote(t.Context(), span(40, 10), unit, &sink.Note{Number: 4})
				if sinktest.ExpectClass(t.T, err, sinktest.Fenced); t.table.Query("SELECT COUNT(*) FROM events")[0] != "30" {
					t.Error("rows of a refused note were committed")
				}
				return
			}
			visited := 0
			err = unit.Notes(t.Context(), 0, func(*sink.Note) error { visited++; return nil })
			if sinktest.ExpectClass(t.T, err, sinktest.Permanent); visited != 1 || !strings.Contains(err.Error(), "note 2") {
				t.Errorf("%d notes were visited, and then: %v", visited, err)
			}
		})
	}
}

func namesOfPartitions(t *trial) {
	t.newTable()
	s := t.sink()
	names := []string{"it's", `\'`, "\xff.ndjson", "\xfe.ndjson", "a\x00b", "☾", "A", "a", "a "}
	for _, partition := range names {
		w, _, err := s.Open(t.Context(), partition)
		if err != nil {
			t.Fatalf("%q: %v", partition, err)
		}
		t.write(w, span(0, 1))
		again, committed, err := s.Open(t.Context(), partition)
		if err != nil || !committed.Covers(0, 1) {
			t.Fatalf("%q comes back with %v, %v", partition, committed, err)
		}
		_, _ = w.Close(), again.Close()
	}
	if got := t.table.Query("SELECT COUNT(*) FROM events"); got[0] != fmt.Sprint(len(names)) {
		t.Errorf("%s rows of %d partitions", got, len(names))
	}
	var long strings.Builder // which does not compress
	for i := range 2000 {
		fmt.Fprintf(&long, "%x", i*i)
	}
	_, _, err := s.Open(t.Context(), long.String())
	if !event.IsPermanent(err) || !strings.Contains(event.HintOf(err), "shorten") {
		t.Errorf("opening a partition with a long name returned %v", err)
	}
}

// Snapshot copies the tables of a place by the statement restore, which copies the rows
// of a table, the second %s, into the first; what it returns sets the tables back. schema is the
// expression for where the tables are.
func Snapshot(query func(statement string) []string, schema, restore string) func() {
	tables := []string{"events", sqlsink.OwnersTable, sqlsink.RangesTable}
	for _, name := range []string{sqlsink.UnitsTable, sqlsink.NotesTable} {
		if len(query(fmt.Sprintf("SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = '%s'", schema, name))) > 0 {
			tables = append(tables, name)
		}
	}
	for _, name := range tables {
		query(fmt.Sprintf("CREATE TABLE %s_then AS SELECT * FROM %[1]s", name))
	}
	return func() {
		for _, name := range tables {
			query("DELETE FROM " + name)
			query(fmt.Sprintf(restore, name, name+"_then"))
		}
	}
}
