//go:build cgo && luajit && lmdb

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/changelog"
	"github.com/perigeedb/perigee/source"
)

// modelLua counts the events of each user and the timers of each group. Some events fail after
// they have changed the state, and some never end.
const modelLua = `
local nodedb, timers = require "nodedb", require "timer"
local counts = nodedb.node "^counts"

function main(e)
  local n = counts[e.user]:incr()
  if e.after then timers.after(e.after, e.group .. "/" .. e.id) end
  if e.fail then error "no" end
  while e.spin do end
  return {id = e.id, user = e.user, n = n, bad = e.bad, v = e.v}
end

function timer(key, due)
  local group, id = key:match "^(.*)/(%d+)$"
  local n = counts[group]:incr()
  if id % 10 == 3 then error "no" end
  return {id = -id, user = group, n = n}
end
`

// healedLua is modelLua without what fails.
var healedLua = strings.NewReplacer(`if e.fail then error "no" end`, "", "while e.spin do end", "", `if id % 10 == 3 then error "no" end`, "").Replace(modelLua)

// A modelEvent is an event for modelLua.
type modelEvent struct {
	ID    int     `json:"id"`
	User  string  `json:"user"`
	Group string  `json:"group"` // the user of its timer
	After float64 `json:"after,omitempty"`
	Fail  bool    `json:"fail,omitempty"`
	Spin  bool    `json:"spin,omitempty"`
	Bad   string  `json:"bad,omitempty"` // its row is rejected
	V     string  `json:"v,omitempty"`   // the computed column of its row fails
}

// hasRow reports whether the row of an event that counts reaches the table at once.
func (e *modelEvent) hasRow() bool { return e.Bad == "" && e.V == "" }

func (e *modelEvent) counts() bool { return !e.Fail && !e.Spin }

// A modelRow is a row of modelLua.
type modelRow struct {
	ID   int
	User string
	N    int
}

// A stateModel is a pipeline with a state between doubles that fail, and what a plain program makes
// of its events.
type stateModel struct {
	t       *testing.T
	random  *lockedRand
	shared  bool // one unit for both partitions
	events  []*modelEvent
	source  *memorySource
	home    *faultyHome
	table   *memorySink
	letters *deadletter.Store
	state   *state.Config
}

// lockedRand is safe for concurrent use.
type lockedRand struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (l *lockedRand) IntN(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}

// TestStateModel lets random events run through a pipeline with a state, whose sinks fail, fence
// it and reject rows, whose computed column and script fail, whose script hits limits, whose archive fails, and which is stopped and
// started again, at times without its copies. Then all dead letters are retried. Rows and state are those of a plain program.
func TestStateModel(t *testing.T) {
	random := &lockedRand{r: testseed.New(t)}
	for i := range testsize.Count(2, 30) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			m := newStateModel(t, random, i%2 == 1)
			rows := m.runUntil(modelLua, false)
			m.check(rows, false)
			if _, err := m.letters.Retry(deadletter.Filter{}); err != nil {
				t.Fatal(err)
			}
			m.table.mu.Lock()
			m.table.lenient = true
			m.table.mu.Unlock()
			retried := m.runUntil(healedLua, true)
			m.check(retried, true)
			for id, row := range rows {
				if retried[id] != row {
					t.Errorf("the row %v became %v", row, retried[id])
				}
			}
		})
	}
}

func newStateModel(t *testing.T, random *lockedRand, shared bool) *stateModel {
	t.Helper()
	m := &stateModel{t: t, random: random, shared: shared, table: newMemorySink()}
	m.source = newMemorySource(&memoryPartition{name: "a"}, &memoryPartition{name: "b"})
	m.source.batch = func() int { return 1 + random.IntN(10) }
	for id := 1; id <= 400; id++ {
		partition := m.source.partitions[random.IntN(2)]
		e := &modelEvent{ID: id, User: fmt.Sprint("u", random.IntN(5)), Group: "timers"}
		if !shared {
			e.User, e.Group = e.User+partition.name, e.Group+partition.name
		}
		switch random.IntN(60) {
		case 0, 1, 2:
			e.Fail = true
		case 3:
			e.Spin = true
		case 4, 5:
			e.Bad = "bad"
		case 6, 7:
			e.V = "no number"
		}
		if random.IntN(3) == 0 {
			e.After = float64(1+random.IntN(200)) / 1000
		}
		doc, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		partition.docs = append(partition.docs, string(doc))
		m.events = append(m.events, e)
	}
	store, err := changelog.Open(t.TempDir())
	if err == nil {
		t.Cleanup(func() { store.Close() })
		m.letters, err = deadletter.Open(t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.letters.Close() })
	m.home = &faultyHome{Sink: store.Sink("test", nil), random: random}
	m.state = &state.Config{
		Name: "users", Shared: shared, Home: faultyUnits{m.home.Traits().Units, random}, HomeName: "changelog", Folder: filepath.Join(t.TempDir(), "users"),
		FlushAge: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Archive: m.newArchive(), Keep: 300 * time.Millisecond, ArchiveAge: 10 * time.Millisecond, SnapshotBytes: 2000,
	}
	m.table.beforeCommit = m.failAtTimes
	m.table.afterCommit = m.failAtTimes
	return m
}

// newArchive returns a folder that cannot be written at times.
func (m *stateModel) newArchive() archive.Place {
	m.t.Helper()
	place, err := archive.Locate(m.t.TempDir(), "", s3client.Settings{}, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return faultyPlace{place, m.random}
}

type faultyPlace struct {
	archive.Place
	random *lockedRand
}

func (p faultyPlace) Put(ctx context.Context, name string, data []byte) error {
	if p.random.IntN(10) == 0 {
		return errors.New("away")
	}
	return p.Place.Put(ctx, name, data)
}

// loseCopies goes on without the copies of some units, as on another machine.
func (m *stateModel) loseCopies() {
	m.t.Helper()
	names, err := m.state.Copies()
	if err != nil {
		m.t.Fatal(err)
	}
	folder := filepath.Join(m.t.TempDir(), "users")
	for _, name := range names {
		if m.random.IntN(2) == 0 {
			continue
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			m.t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(m.state.Folder, url.PathEscape(name)), filepath.Join(folder, url.PathEscape(name))); err != nil {
			m.t.Fatal(err)
		}
	}
	m.state.Folder = folder
}

func (m *stateModel) failAtTimes(context.Context) error {
	switch m.random.IntN(100) {
	case 0, 1, 2:
		return errors.New("away")
	case 3:
		m.table.takeOver(m.source.partitions[m.random.IntN(2)].name)
	}
	return nil
}

// runUntil runs one pipeline after the other until the table has all rows, and returns them by id.
func (m *stateModel) runUntil(code string, healed bool) map[int]modelRow {
	m.t.Helper()
	run := storedRowsRun{c: `if row.v then error "no" end return 0`}
	if healed {
		run.c = "return 0"
	}
	loaded := run.load(m.t, code, []script.Sink{{Name: "table"}}, script.Limits{EventTime: 20 * time.Millisecond, Output: 300})
	want, letters := len(m.expected(healed)), m.failures()
	if healed {
		letters = 0
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		done := m.runOnce(loaded, time.Duration(20+m.random.IntN(600))*time.Millisecond, want, letters)
		if rows := m.rows(); done || time.Now().After(deadline) {
			return rows
		}
		if m.random.IntN(3) == 0 {
			m.loseCopies()
		}
	}
}

// runOnce runs a pipeline for some time, or until there are so many rows and dead letters, and then
// stops it.
func (m *stateModel) runOnce(loaded script.Script, after time.Duration, rows, letters int) (done bool) {
	m.t.Helper()
	p := New(Config{
		Name: "test", Source: growingSource{m.source}, Script: loaded, DeadLetters: m.letters, Lanes: 3, State: m.state, Home: 1,
		Sinks:  []Sink{{Name: "table", Sink: m.table, Guarantee: sink.ExactlyOnce}, {Name: "changelog", Sink: m.home, Guarantee: sink.ExactlyOnce, WithoutRows: true}},
		Limits: source.Limits{Events: 10, Bytes: 1 << 20}, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for stop := time.Now().Add(after); ; time.Sleep(5 * time.Millisecond) {
		done = len(m.table.allRows()) >= rows && m.countLetters() == letters
		select {
		case err := <-ended:
			m.t.Fatalf("the pipeline ended with %v", err)
		default:
		}
		if done || time.Now().After(stop) {
			break
		}
	}
	if done || m.random.IntN(2) == 0 {
		p.Drain()
	} else {
		cancel()
	}
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		m.t.Fatalf("the pipeline ended with %v", err)
	}
	return done
}

// expected returns the ids of the rows, those of timers negative.
func (m *stateModel) expected(healed bool) (ids []int) {
	for _, e := range m.events {
		if (e.counts() && e.hasRow()) || healed {
			ids = append(ids, e.ID)
		}
		if e.After > 0 && (healed || e.counts() && e.ID%10 != 3) {
			ids = append(ids, -e.ID)
		}
	}
	return ids
}

func (m *stateModel) rows() map[int]modelRow {
	m.t.Helper()
	rows := map[int]modelRow{}
	for _, doc := range m.table.allRows() {
		var row modelRow
		if err := json.Unmarshal([]byte(doc), &row); err != nil {
			m.t.Fatal(err)
		}
		if _, twice := rows[row.ID]; twice {
			m.t.Errorf("the table has row %d twice", row.ID)
		}
		rows[row.ID] = row
	}
	return rows
}

// check compares rows, dead letters and state with those of a plain program.
func (m *stateModel) check(rows map[int]modelRow, healed bool) {
	m.t.Helper()
	want := m.expected(healed)
	if got := slices.Sorted(maps.Keys(rows)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		m.t.Errorf("the table has the rows %v, want %v", got, slices.Sorted(slices.Values(want)))
	}
	numbers := map[string][]int{}
	for _, row := range rows {
		numbers[row.User] = append(numbers[row.User], row.N)
	}
	counts := m.counts()
	if !healed {
		for _, e := range m.events { // rows that the table has rejected have numbers too
			if e.counts() && !e.hasRow() {
				numbers[e.User] = append(numbers[e.User], m.rejectedNumber(e))
			}
		}
	}
	for user, n := range counts {
		got := slices.Sorted(slices.Values(numbers[user]))
		for i := range got {
			if got[i] != i+1 {
				m.t.Errorf("the rows of %s have the numbers %v", user, got)
				break
			}
		}
		if len(got) != n {
			m.t.Errorf("the state has counted %d events of %s, and there are %d rows", n, user, len(got))
		}
	}
	if !healed && !m.shared {
		m.checkOrder(rows)
	}
	letters := 0
	for l, err := range m.letters.List(deadletter.Filter{}) {
		if err != nil {
			m.t.Fatal(err)
		}
		if letters++; healed || l.Uncommitted {
			m.t.Errorf("there is the letter %+v", l)
		}
	}
	if want := m.failures(); !healed && letters != want {
		m.t.Errorf("there are %d dead letters, want %d", letters, want)
	}
}

// failures returns how many events and timers become dead letters.
func (m *stateModel) failures() (n int) {
	for _, e := range m.events {
		if !e.counts() || !e.hasRow() {
			n++
		}
		if e.After > 0 && e.counts() && e.ID%10 == 3 {
			n++
		}
	}
	return n
}

// countLetters counts dead letters, without those of batches that may run again.
func (m *stateModel) countLetters() (n int) {
	for l, err := range m.letters.List(deadletter.Filter{}) {
		if err == nil && !l.Uncommitted {
			n++
		}
	}
	return n
}

// rejectedNumber returns the number in the row that the letter of an event has.
func (m *stateModel) rejectedNumber(e *modelEvent) int {
	m.t.Helper()
	for l, err := range m.letters.List(deadletter.Filter{}) {
		var original modelEvent
		if err != nil || json.Unmarshal(l.Original, &original) != nil || original.ID != e.ID || l.Sink == "" {
			continue
		}
		doc := l.Document
		if len(l.Row) > 0 {
			out, err := DecodeRow(l.Row)
			if err != nil {
				m.t.Fatal(err)
			}
			doc = out.Doc(0)
		}
		var row modelRow
		if err := json.Unmarshal(doc, &row); err != nil {
			m.t.Fatal(err)
		}
		return row.N
	}
	m.t.Errorf("there is no dead letter with the row of event %d", e.ID)
	return 0
}

// checkOrder holds the rows of a partition to the numbers that its events have in their order.
func (m *stateModel) checkOrder(rows map[int]modelRow) {
	m.t.Helper()
	for _, partition := range m.source.partitions {
		numbers := map[string]int{}
		for _, doc := range partition.docs {
			var e modelEvent
			if err := json.Unmarshal([]byte(doc), &e); err != nil {
				m.t.Fatal(err)
			}
			if !e.counts() {
				continue
			}
			numbers[e.User]++
			if row, ok := rows[e.ID]; ok && row != (modelRow{e.ID, e.User, numbers[e.User]}) {
				m.t.Errorf("the row %v has another number than %d", row, numbers[e.User])
			}
		}
	}
}

// counts returns what the state has counted, in all units.
func (m *stateModel) counts() map[string]int {
	m.t.Helper()
	counts := map[string]int{}
	now := *m.state
	now.Home = m.home.Traits().Units // which is not away any more
	units, err := now.Units(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for name := range units { // the last run may not have opened one whose copy was lost
		u, err := state.Open(m.t.Context(), &now, name)
		if err == nil {
			err = u.Close()
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	names, err := m.state.Copies()
	for _, name := range names {
		err = errors.Join(err, m.state.View(m.t.Context(), name, func(tx *nodedb.Tx) error {
			for node, err := range tx.Walk(m.t.Context(), nodedb.Name("^counts"), nodedb.Range{}) {
				if err != nil {
					return err
				}
				n, _ := node.Value.Int()
				counts[node.Path.Subscripts()[0].String()] = int(n)
			}
			return nil
		}))
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return counts
}

// A faultyHome is a changelog whose commits fail at times, before or after they are done, and which
// other owners take over at times.
type faultyHome struct {
	*changelog.Sink
	random *lockedRand
}

func (h *faultyHome) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	w, done, err := h.Sink.Open(ctx, partition)
	if err != nil {
		return nil, nil, err
	}
	return &faultyWriter{w.(sink.NoteWriter), h, partition}, done, nil
}

type faultyWriter struct {
	sink.NoteWriter
	home      *faultyHome
	partition string
}

// faultyUnits are the units of a home that is away at times when one is opened or read.
type faultyUnits struct {
	sink.UnitStore
	random *lockedRand
}

func (u faultyUnits) OpenUnit(ctx context.Context, name string) (sink.Unit, error) {
	if u.random.IntN(10) == 0 {
		return nil, errors.New("away")
	}
	unit, err := u.UnitStore.OpenUnit(ctx, name)
	if err != nil {
		return nil, err
	}
	return faultyUnit{unit, u.random}, nil
}

type faultyUnit struct {
	sink.Unit
	random *lockedRand
}

func (u faultyUnit) Notes(ctx context.Context, first uint64, visit func(*sink.Note) error) error {
	if u.random.IntN(10) == 0 {
		return errors.New("away")
	}
	return u.Unit.Notes(ctx, first, func(n *sink.Note) error {
		if u.random.IntN(500) == 0 {
			return errors.New("away")
		}
		return visit(n)
	})
}

func (w *faultyWriter) WriteNote(ctx context.Context, out *event.Output, unit sink.Unit, note *sink.Note) error {
	fault := w.home.random.IntN(100)
	switch fault {
	case 0, 1:
		return errors.New("away")
	case 2:
		if _, _, err := w.home.Sink.Open(ctx, w.partition); err != nil {
			return err
		}
	case 3:
		units, err := w.home.Units(ctx)
		if err != nil {
			return err
		}
		for name := range units {
			if _, err := w.home.OpenUnit(ctx, name); err != nil {
				return err
			}
		}
	}
	if err := w.NoteWriter.WriteNote(ctx, out, unit.(faultyUnit).Unit, note); err != nil || fault != 4 {
		return err
	}
	return errors.New("the answer is lost")
}
