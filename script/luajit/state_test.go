//go:build cgo && luajit

package luajit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
)

// A stateTest runs scripts on a unit, as a pipeline with a state does: a delta for each batch.
type stateTest struct {
	t     *testing.T
	unit  *nodedb.Unit
	delta *nodedb.Delta // the open one
	tx    *nodedb.Tx    // of the delta
	batch event.Batch
	res   event.Result
}

func newState(t testing.TB) *stateTest {
	t.Helper()
	unit, err := nodedb.OpenUnit(t.TempDir(), nodedb.UnitOptions{})
	if errors.Is(err, nodedb.ErrUnavailable) {
		t.Skip("needs the build tag lmdb")
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &stateTest{unit: unit, res: event.Result{Outputs: make([]event.Output, 1)}}
	s.t, _ = t.(*testing.T)
	s.begin(t)
	t.Cleanup(func() {
		s.commit(t)
		if err := unit.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *stateTest) begin(t testing.TB) {
	t.Helper()
	var err error
	if s.delta, err = s.unit.Begin(clock); err != nil {
		t.Fatal(err)
	}
	s.tx = s.delta.Tx()
}

// commit commits the delta, which fails if a script has left its session in a transaction.
func (s *stateTest) commit(t testing.TB) {
	t.Helper()
	err := s.delta.Freeze()
	if err == nil {
		err = s.unit.Commit(s.delta, s.unit.Last()+1, 0)
	}
	if err != nil {
		t.Errorf("the delta cannot be committed: %v", err)
	}
}

// next begins a new delta: over the last one, or in its place, which was dropped then.
func (s *stateTest) next(drop bool) {
	s.t.Helper()
	if drop {
		s.unit.Drop()
	} else {
		s.commit(s.t)
	}
	s.begin(s.t)
}

// clock is the time of the batches of tests.
var clock = time.Date(2026, 11, 28, 10, 30, 0, 250000000, time.UTC)

// fill makes a batch of documents.
func (s *stateTest) fill(docs ...string) *event.Batch {
	s.batch.Reset()
	for _, doc := range docs {
		s.batch.Append([]byte(doc))
	}
	s.batch.Range.Count = uint64(len(docs))
	s.batch.State, s.batch.Time = s.delta, clock
	return &s.batch
}

// run runs a batch and returns the rows, "E: message" for a dead letter, in the order of events.
func (s *stateTest) run(sc script.Script, docs ...string) []string {
	s.t.Helper()
	return s.runBatch(sc, s.fill(docs...))
}

func (s *stateTest) runBatch(sc script.Script, in *event.Batch) (got []string) {
	s.t.Helper()
	results := make([][]string, in.Len())
	at := 0
	err := script.RunAll(context.Background(), sc, in, &s.res, 0, func(part *event.Batch, _ *script.LimitError) error {
		out := &s.res.Outputs[0]
		for i := range out.Len() {
			results[at+int(out.From[i])] = append(results[at+int(out.From[i])], string(out.Doc(i)))
		}
		for _, dead := range s.res.Dead {
			i := at + int(dead.Position-part.Range.First)
			results[i] = append(results[i], "E: "+dead.Error)
		}
		at += part.Len()
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range results {
		got = append(got, r...)
	}
	return got
}

// dump returns the tree of a name as text.
func (s *stateTest) dump(name string) string {
	s.t.Helper()
	var all []string
	for node, err := range s.tx.Walk(context.Background(), nodedb.Name(name), nodedb.Range{}) {
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%v=%v", node.Path, node.Value))
	}
	return strings.Join(all, " ")
}

// loadState loads a script with the modules for a state, compiled or interpreted.
func loadState(t *testing.T, interpreted bool, opts script.Options, code string) *Script {
	t.Helper()
	s, err := tryState(interpreted, opts, code)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func tryState(interpreted bool, opts script.Options, code string) (*Script, error) {
	opts.Extension = lua.ForState()
	if opts.Sinks == nil {
		opts.Sinks = []script.Sink{{}}
	}
	return load(context.Background(), script.Code{Name: "state.lua", Text: []byte(code)}, opts, interpreted)
}

// inBothModes runs a test with the compiler on and off.
func inBothModes(t *testing.T, test func(t *testing.T, interpreted bool)) {
	t.Run("compiled", func(t *testing.T) { test(t, false) })
	t.Run("interpreted", func(t *testing.T) { test(t, true) })
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprintf("%q", got), fmt.Sprintf("%q", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func TestState(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		s := newState(t)
		sc := loadState(t, interpreted, script.Options{}, `
			local nodedb = require "nodedb"
			local users = nodedb.node "^users"
			function main(e)
				local n = users[e.u]:incr(1)
				if e.fail then error("no " .. n) end
				return {n = n}
			end`)
		expect(t, "rows", s.run(sc, `{"u":"a"}`, `{"u":"a","fail":true}`, `nonsense`, `{"u":"a"}`, `{"u":"b","fail":1}`, `{"u":"b"}`),
			[]string{`{"n":1}`, `E: state.lua:6: no 2`, `E: not a JSON object: an event must start with { (at byte 0)`, `{"n":2}`, `E: state.lua:6: no 1`, `{"n":1}`})
		expect(t, "rows of one event", s.run(sc, `{"u":"a"}`), []string{`{"n":3}`})
		expect(t, "the tree", s.dump("^users"), `^users("a")=3 ^users("b")=1`)
	})
}

// TestStateUndo lets an event fail in each way that there is after it has changed the state, and
// runs events before and after it in the same batch.
func TestStateUndo(t *testing.T) {
	limits := script.Limits{EventTime: 50 * time.Millisecond, BatchTime: 400 * time.Millisecond, Memory: 8 << 20, Output: 20000}
	wait := script.Module{Name: "wait", Functions: map[string]script.Func{
		"short": func(context.Context, []any) ([]any, error) { return []any{1.0}, nil },
		"fail":  func(context.Context, []any) ([]any, error) { return nil, errors.New("no answer") },
	}}
	code := `
		local nodedb, wait = require "nodedb", require "wait"
		local n, log = nodedb.node "^n", nodedb.node "^log"
		local kept
		local how = {
			none = function() return {n = n.__} end,
			error = function() error "x" end,
			table = function() error({}) end,
			time = function() while true do n:incr(1) end end,
			spin = function() while true do end end,
			caught = function() while true do pcall(function() while true do n:incr(1) end end) end end,
			memory = function() local all = {} while true do all[#all + 1] = ("x"):rep(1000) .. #all end end,
			["local"] = function() local i = 0 while true do i = i + 1 nodedb.set("tree", i, ("x"):rep(10000)) end end,
			output = function() return {text = ("x"):rep(30000)} end,
			row = function() return 7 end,
			wait = function() wait.short() error "after a wait" end,
			fails = function() wait.fail() end,
			waits = function() while true do wait.short() end end,
			tp = function() nodedb.tp(function() n:incr(100) error "in tp" end) end,
			open = function()
				kept = coroutine.wrap(function() nodedb.tp(function() n:incr(1000) coroutine.yield() end) end)
				kept()
				error "with an open transaction"
			end,
			depth = function() local function f() return 1 + f() end return f() end,
			kill = function() n:kill() log:kill() error "killed" end,
		}
		function main(e)
			n:incr(1)
			log[e.i].__ = e.how
			nodedb.set("tree", 1)
			local result = how[e.how](e)
			return result
		end`
	inBothModes(t, func(t *testing.T, interpreted bool) {
		for _, how := range []string{"error", "table", "time", "spin", "caught", "memory", "local", "output", "row", "wait", "fails", "waits", "tp", "open", "depth", "kill"} {
			t.Run(how, func(t *testing.T) {
				s := newState(t)
				sc := loadState(t, interpreted, script.Options{Limits: limits, Modules: []script.Module{wait}}, code)
				for batch, docs := range [][]string{
					{`{"i":1,"how":"none"}`, `{"i":2,"how":"` + how + `"}`, `{"i":3,"how":"none"}`},
					{`{"i":4,"how":"` + how + `"}`},
					{`{"i":5,"how":"` + how + `"}`, `{"i":6,"how":"none"}`},
				} {
					got := s.run(sc, docs...)
					want := [][]string{{`{"n":1}`, "E", `{"n":2}`}, {"E"}, {"E", `{"n":3}`}}[batch]
					for i := range got {
						if strings.HasPrefix(got[i], "E: ") {
							got[i] = "E"
						}
					}
					expect(t, fmt.Sprintf("rows of batch %d", batch), got, want)
				}
				expect(t, "the count", s.dump("^n"), `^n=3`)
				expect(t, "the log", s.dump("^log"), "^log(1)=none ^log(3)=none ^log(6)=none")
			})
		}
	})
}

// TestStateBatchLimits ends runs by limits of the batch: the event that will run again is undone.
func TestStateBatchLimits(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		s := newState(t)
		sc := loadState(t, interpreted, script.Options{Limits: script.Limits{Output: 5000, BatchTime: 100 * time.Millisecond}}, `
			local nodedb = require "nodedb"
			local n = nodedb.node "^n"
			function main(e)
				local v = n:incr(1)
				if e.spin then for i = 1, e.spin do n.x.__ = i end end
				return {n = v, text = ("x"):rep(e.size or 0)}
			end`)
		var docs []string
		for range 20 {
			docs = append(docs, `{"size":900}`)
		}
		for i, row := range s.run(sc, docs...) {
			if want := fmt.Sprintf(`"n":%d`, i+1); !strings.Contains(row, want+",") && !strings.Contains(row, want+"}") {
				t.Errorf("row %d is %.20s…%.10s, want it to contain %s", i, row, row[max(0, len(row)-10):], want)
			}
		}
		expect(t, "the count", s.dump("^n"), "^n=20")
	})
}

func TestStateOutsideOfMain(t *testing.T) {
	const outside = "the state is there only inside main and timer"
	for _, use := range []string{`nodedb.get("^n")`, `nodedb.set("^n", 1)`, `nodedb.tp(function() end)`, `nodedb.view(function() end)`,
		`nodedb.node("^n"):incr(1)`, `for _ in nodedb.node("^n"):values() do end`, `nodedb.node("^n"):count()`, `nodedb.set("tree", 1)`,
		`nodedb.node("^n"):expire_tree(5)`, `nodedb.get_all({"^n"})`, `nodedb.names()()`} {
		_, err := tryState(false, script.Options{}, `local nodedb = require "nodedb" `+use+` function main(e) end`)
		if err == nil || !strings.Contains(err.Error(), outside) {
			t.Errorf("%s while loading: %v, want %s", use, err, outside)
		}
	}
	inBothModes(t, func(t *testing.T, interpreted bool) {
		s := newState(t)
		sc := loadState(t, interpreted, script.Options{}, `
			local nodedb = require "nodedb"
			local n = nodedb.node("^n") -- a node is only a path
			function main(e) return {n = n:incr(1)} end`)
		without := s.fill(`{}`, `{}`)
		without.State = nil
		for _, row := range s.runBatch(sc, without) {
			if !strings.Contains(row, outside) {
				t.Errorf("without a state: %s, want an error", row)
			}
		}
		expect(t, "with a state", s.run(sc, `{}`), []string{`{"n":1}`})
		without = s.fill(`{}`)
		without.State = nil
		if got := s.runBatch(sc, without); !strings.Contains(got[0], outside) {
			t.Errorf("without a state again: %q, want an error", got)
		}
	})
}

// TestStateRefusals checks what scripts cannot do with a state, and how transactions within an
// event behave.
func TestStateRefusals(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		s := newState(t)
		if err := s.tx.Set(nodedb.Name("^%timers").At("key", "k"), 7); err != nil {
			t.Fatal(err)
		}
		if err := s.tx.Set(nodedb.Name("^Users").At("a"), 1); err != nil {
			t.Fatal(err)
		}
		sc := loadState(t, interpreted, script.Options{}, `
			local nodedb, ydb = require "nodedb", require "yottadb"
			local runs = 0
			local n, m = nodedb.node "^n", nodedb.node "^m"
			local uses = {
				lock = function() n:lock() end,
				lock_incr = function() n:lock_incr(0) end,
				unlock = function() n:lock_decr() end,
				reserved = function() return nodedb.node "^%timers" end,
				get = function() return nodedb.get("^%timers", "key", "k") end,
				set = function() nodedb.set("^%x", 1) end,
				load = function() nodedb.load('^%timers("key","k")=1') end,
				ydb = function() return ydb.get("^%timers", {"key", "k"}) end,
				open = function() nodedb.open("/tmp/x") end,
				names = function()
					local all = {}
					for name in nodedb.names() do all[#all + 1] = name end
					for name in nodedb.names(true) do all[#all + 1] = name end
					return table.concat(all, " ")
				end,
				["next"] = function()
					return tostring(nodedb.subscript_previous("^Users")) .. tostring(nodedb.node_previous("^Users", "a"))
				end,
				tp = function()
					local level = 0
					nodedb.tp(function() n:incr(1) nodedb.tp(function() n:incr(1) end) end)
					local ok, message = pcall(nodedb.tp, function() n:incr(100) error "undone" end)
					return n.__ .. " " .. tostring(ok)
				end,
				rollback = function() pcall(nodedb.tp, function() m.__ = 5 nodedb.trollback() end) return tostring(m.__) end,
				restart = function()
					m.before.__ = 1
					local seen, runs = {}, 0
					nodedb.tp(function()
						runs = runs + 1
						seen[#seen + 1] = tostring(m.x.__)
						m.x.__ = runs
						if runs < 3 then nodedb.trestart() end
					end)
					return table.concat(seen, " ") .. " " .. m.x.__ .. " " .. m.before.__
				end,
				outside = function() nodedb.trestart() end,
				view = function() return nodedb.view(function() return tostring(pcall(n.set, n, 1)) end) end,
				tree = function() local before = nodedb.get("tree") nodedb.set("tree", 1) return tostring(before) .. nodedb.get("tree") end,
				restored = function()
					nodedb.set("tree", 1)
					pcall(nodedb.tp, "", {"*"}, function() nodedb.set("tree", 2) error "x" end)
					nodedb.tp("", {"tree"}, function() nodedb.set("other", 2) end)
					return nodedb.get("tree")
				end,
				merge = function() m:merge(n) return m.__ end,
			}
			function main(e) return {is = uses[e.use]()} end`)
		refused := "nodedb: NDB_E_ARGUMENT: one script at a time uses the state, so it needs no locks: leave them out"
		for _, use := range []struct{ name, want string }{
			{"lock", refused}, {"lock_incr", refused}, {"unlock", refused},
			{"reserved", "belong to Perigee"}, {"get", "belong to Perigee"}, {"set", "belong to Perigee"}, {"load", "belong to Perigee"},
			{"ydb", "belong to Perigee"}, {"open", "the state of the pipeline is the store"},
			{"names", `{"is":"^Users ^Users"}`}, {"next", `{"is":"nilnil"}`},
			{"tp", `{"is":"2 false"}`}, {"rollback", `{"is":"nil"}`}, {"restart", `{"is":"nil nil nil 3 1"}`}, {"outside", "no transaction is open"},
			{"view", `{"is":"false"}`}, {"tree", `{"is":"nil1"}`}, {"tree", `{"is":"nil1"}`}, {"restored", `{"is":1}`}, {"merge", `{"is":2}`},
		} {
			if got := s.run(sc, `{"use":"`+use.name+`"}`); len(got) != 1 || !strings.Contains(got[0], use.want) {
				t.Errorf("%s: %q, want %s", use.name, got, use.want)
			}
		}
		expect(t, "the timers", s.dump("^%timers"), `^%timers("key","k")=7`)
	})
}

// TestStateHostile keeps what an event must not keep: iterations, transactions in coroutines, and
// nodes, and uses them in events on another session.
func TestStateHostile(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		one, other := newState(t), newState(t)
		sc := loadState(t, interpreted, script.Options{}, `
			local nodedb = require "nodedb"
			local n = nodedb.node "^n"
			local iterations, step, co, guarded = {}
			local uses = {
				fill = function(e)
					for i = 1, 600 do n[i].__ = e.base + i end
					n.name.__ = e.base
				end,
				keep = function()
					iterations[1] = {n:values()}
					iterations[2] = {n:pairs()}
					iterations[3] = {n:subscripts()}
					iterations[4] = {nodedb.subscripts("^n", "")}
					iterations[5] = {nodedb.names()}
					iterations[6] = {n:walk()}
					for _, it in ipairs(iterations) do it.first = tostring(it[1](it[2], it[3])) end
				end,
				continue = function()
					local all = {}
					for i, it in ipairs(iterations) do
						local ok, what = pcall(it[1], it[2], it[3])
						all[i] = ok and tostring(what) or what:match "event of this iteration has ended" or what
					end
					return table.concat(all, " ")
				end,
				suspend = function()
					co = coroutine.create(function()
						nodedb.tp(function()
							n.left.__ = "left"
							coroutine.yield()
							n.left.__ = "resumed"
						end)
					end)
					coroutine.resume(co)
					local ok, message = pcall(n.get, n)
					return (tostring(message):match "suspended coroutine has a transaction open")
				end,
				resume = function()
					local ok, message = coroutine.resume(co)
					return tostring(ok) .. tostring(message) .. tostring(n.left.__)
				end,
				inside = function() -- resumes the coroutine inside a transaction
					return nodedb.tp(function()
						n.inside.__ = 1
						local ok, message = coroutine.resume(co)
						return tostring(ok) .. tostring(message) .. tostring(n.left.__)
					end)
				end,
				drop = function()
					iterations, co = {}, nil
					for i = 1, 20000 do local _ = {("x"):rep(i % 100)} end -- makes the collector finalize them
				end,
			}
			function main(e) return {is = uses[e.use](e) or "done"} end`)
		ended := "event of this iteration has ended"
		all := strings.TrimSpace(strings.Repeat(ended+" ", 6))
		lost := "nodedb: NDB_E_LEVEL: the transaction of this coroutine was rolled back while it was suspended"
		for i, step := range []struct {
			s         *stateTest
			doc, want string
		}{
			{one, `{"use":"fill","base":1000}`, `{"is":"done"}`},
			{other, `{"use":"fill","base":5000}`, `{"is":"done"}`},
			{one, `{"use":"keep"}`, `{"is":"done"}`},
			{one, `{"use":"continue"}`, `{"is":"` + all + `"}`},
			{other, `{"use":"continue"}`, `{"is":"` + all + `"}`},
			{one, `{"use":"keep"}`, `{"is":"done"}`},
			{other, `{"use":"continue"}`, `{"is":"` + all + `"}`},
			{one, `{"use":"suspend"}`, `{"is":"suspended coroutine has a transaction open"}`},
			{other, `{"use":"resume"}`, `{"is":"false` + lost + `nil"}`},
			{one, `{"use":"suspend"}`, `{"is":"suspended coroutine has a transaction open"}`},
			{other, `{"use":"inside"}`, `{"is":"false` + lost + `nil"}`},
			{one, `{"use":"keep"}`, `{"is":"done"}`},
			{other, `{"use":"drop"}`, `{"is":"done"}`},
		} {
			if got := step.s.run(sc, step.doc); len(got) != 1 || got[0] != step.want {
				t.Errorf("step %d, %s:\n got %q\nwant %s", i, step.doc, got, step.want)
			}
			step.s.next(i > 1 && i%2 == 0) // frees what the session held
		}
		for _, s := range []*stateTest{one, other} {
			if left := s.dump("^n"); strings.Contains(left, "left") {
				t.Errorf("a suspended transaction has left %.100s", left)
			}
		}
		if got := one.dump("^n"); strings.Contains(got, "=5001") || strings.Contains(got, "inside") {
			t.Errorf("one state has nodes of the other: %.100s", got)
		}
	})
}

// BenchmarkState reports the time of an event that does nothing, without and with a state, and of
// events that read or change one.
func BenchmarkState(b *testing.B) {
	jobs := []struct {
		name, code string
		state      bool
	}{
		{"none", `function main(e) return e end`, false},
		{"attached", `function main(e) return e end`, true},
		{"get", `local n = require "nodedb".node("^n") function main(e) local v = n.__ return e end`, true},
		{"incr", `local n = require "nodedb".node("^n") function main(e) n:incr(1) return e end`, true},
		{"incr100k", `local nodedb, i = require "nodedb", 0 function main(e) i = (i + 7919) % 100000 nodedb.incr("^n", i, 1) return e end`, true},
		{"timer", `local timers, i = require "timer", 0 function main(e) i = (i + 1) % 1000 timers.after(i, i) return e end function timer() end`, true},
		{"tumbling", `local w, i = require "window".tumbling("^w", {seconds = 60}), 0
			function main(e) i = (i + 1) % 1000 w:add(i, i) return e end`, true},
		{"dedupe", `local w, i = require "window".dedupe("^w", {seconds = 60}), 0
			function main(e) i = (i + 7919) % 100000 w:first(i) return e end`, true},
	}
	for _, job := range jobs {
		for _, size := range []int{1, 256} {
			b.Run(fmt.Sprintf("%s/%d", job.name, size), func(b *testing.B) {
				s := newState(b)
				sc, err := tryState(false, script.Options{}, job.code)
				if err != nil {
					b.Fatal(err)
				}
				defer sc.Close()
				var docs []string
				for range size {
					docs = append(docs, `{"id":12345,"city":"Singapore"}`)
				}
				in := s.fill(docs...)
				if !job.state {
					in.State = nil
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := sc.Run(context.Background(), in, &s.res); err != nil || len(s.res.Dead) > 0 {
						b.Fatal(err, s.res.Dead)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/event")
			})
		}
	}
}

// TestStateMemory checks that changes do not count towards the memory of a VM, but what an event
// holds besides them does.
func TestStateMemory(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		s := newState(t)
		sc := loadState(t, interpreted, script.Options{Limits: script.Limits{Memory: 6 << 20, EventTime: 5 * time.Second, BatchTime: 20 * time.Second}}, `
			local nodedb = require "nodedb"
			local text = ("x"):rep(100000)
			local held = {}
			local uses = {
				state = function(e) nodedb.set("^t", e.i, text .. e.i) return nodedb.count("^t") end,
				tree = function() for i = 1, 1000 do nodedb.set("tree", i, text .. i) end end,
				iterations = function()
					for i = 1, 5000 do
						local following, state, at = nodedb.node("^t"):values()
						following(state, at)
						held[i] = following
					end
				end,
				again = function() held = {} return nodedb.count("^t") end,
			}
			function main(e) return {n = uses[e.use](e)} end`)
		var docs []string
		for i := range 200 {
			docs = append(docs, fmt.Sprintf(`{"use":"state","i":%d}`, i))
		}
		got := s.run(sc, docs...)
		expect(t, "the last row after 20 MB of changes", got[len(got)-1], `{"n":200}`)
		for _, use := range []string{"tree", "iterations"} {
			got := s.run(sc, `{"use":"`+use+`"}`, `{"use":"again"}`)
			if len(got) != 2 || !strings.Contains(got[0], "memory limit exceeded") || got[1] != `{"n":200}` {
				t.Errorf("%s: %q, want an exceeded limit, and then 200 nodes", use, got)
			}
		}
	})
}
