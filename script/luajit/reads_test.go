//go:build cgo && luajit && lmdb

package luajit

import (
	"context"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
)

// An otherState is the state of another pipeline.
type otherState struct {
	t    *testing.T
	unit *nodedb.Unit
	last uint64
}

func newOtherState(t *testing.T) *otherState {
	t.Helper()
	unit, err := nodedb.OpenUnit(t.TempDir(), nodedb.UnitOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unit.Close() })
	return &otherState{t: t, unit: unit}
}

// commit commits what change does.
func (o *otherState) commit(change func(tx *nodedb.Tx) error) {
	o.t.Helper()
	d, err := o.unit.Begin(time.Now())
	if err == nil {
		err = change(d.Tx())
	}
	if err == nil {
		err = d.Freeze()
	}
	if err == nil {
		o.last++
		err = o.unit.Commit(d, o.last, 0)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *otherState) set(path nodedb.Path, value any) {
	o.t.Helper()
	o.commit(func(tx *nodedb.Tx) error { return tx.Set(path, value) })
}

// run runs a script over documents with snapshots of other states, and returns its rows.
func runReading(t *testing.T, own *stateTest, sc script.Script, states []*otherState, docs ...string) []string {
	t.Helper()
	in := &event.Batch{Partition: "p", Range: event.Range{Count: uint64(len(docs))}}
	for _, doc := range docs {
		in.Append([]byte(doc))
	}
	for _, o := range states {
		r, err := o.unit.OpenReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		in.Reads = append(in.Reads, r)
	}
	if own.tx != nil {
		in.State = own.tx
	}
	return own.runBatch(sc, in)
}

func loadReading(t *testing.T, interpreted bool, extension script.Extension, code string, opts script.Options) *Script {
	t.Helper()
	opts.Extension, opts.Sinks = extension, []script.Sink{{}}
	s, err := load(context.Background(), script.Code{Name: "reads.lua", Text: []byte(code)}, opts, interpreted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestReadOthers reads two states beside the one that the script changes.
func TestReadOthers(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		own, users, plans := newState(t), newOtherState(t), newOtherState(t)
		name := nodedb.Name("^name")
		users.set(name.At("a"), "Ada")
		users.set(name.At("b"), "Bob")
		plans.set(name.At("a"), "gold")
		sc := loadReading(t, interpreted, lua.ForState("users", "plans"), `
			local nodedb, state = require "nodedb", require "state"
			local users, plans = state.open "users", state.open "plans"
			local seen, names = nodedb.node "^name", users.node "^name"
			function main(e)
				local n = seen[e.u]:incr(1)
				if e.fail then error "fails" end
				local all = {}
				for u in names:subscripts() do all[#all + 1] = u end
				return {n = n, name = names[e.u].__, plan = plans.node("^name", e.u).__, all = table.concat(all, " ")}
			end`, script.Options{})
		expect(t, "rows", runReading(t, own, sc, []*otherState{users, plans}, `{"u":"a"}`, `{"u":"a","fail":true}`, `{"u":"b"}`, `{"u":"c"}`), []string{
			`{"all":"a b","n":1,"name":"Ada","plan":"gold"}`, `E: reads.lua:7: fails`, `{"all":"a b","n":1,"name":"Bob"}`, `{"all":"a b","n":1}`})
		users.commit(func(tx *nodedb.Tx) error { return tx.Kill(name.At("a")) })
		expect(t, "rows of the next run", runReading(t, own, sc, []*otherState{users, plans}, `{"u":"a"}`),
			[]string{`{"all":"b","n":2,"plan":"gold"}`})
		expect(t, "the own tree", own.dump("^name"), `^name("a")=2 ^name("b")=1 ^name("c")=1`)
	})
}

// TestReadOnlyOthers tries what a script may not do with the state of another pipeline.
func TestReadOnlyOthers(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		own, users := newState(t), newOtherState(t)
		users.set(nodedb.Name("^n"), 1)
		sc := loadReading(t, interpreted, lua.ForState("users"), `
			local nodedb, state = require "nodedb", require "state"
			local users = state.open "users"
			local n, mine = users.node "^n", nodedb.node "^mine"
			local kept
			local tries = {
				set = function() n.__ = 2 end,
				incr = function() n:incr() end,
				kill = function() n:kill() end,
				child = function() n.x.__ = 1 end,
				merge = function() n:merge(users.node "^m") end,
				mix = function() mine:merge(n) end,
				mixed = function() return nodedb.node(n).__ end,
				lock = function() n:lock() end,
				memory = function() users.node("n").__ = 1 end,
				hidden = function() return users.node("^%timers").__ end,
				tp = function() return users.tp(function() return n.__ end) end,
				unknown = function() return state.open "orders" end,
				iterate = function()
					if kept then return kept() end
					kept = n:subscripts()
				end,
			}
			function main(e)
				local ok, problem = pcall(tries[e.try])
				return {ok = ok, problem = not ok and problem or nil, n = n.__}
			end`, script.Options{})
		refused := `{"n":1,"ok":false,"problem":"nodedb: NDB_E_ARGUMENT: the state users belongs to another pipeline: this one only reads it"}`
		for _, try := range []string{"set", "incr", "kill", "child", "merge", "lock", "memory"} {
			expect(t, try, runReading(t, own, sc, []*otherState{users}, `{"try":"`+try+`"}`), []string{refused})
		}
		expect(t, "others", runReading(t, own, sc, []*otherState{users}, `{"try":"mix"}`, `{"try":"mixed"}`, `{"try":"hidden"}`, `{"try":"tp"}`, `{"try":"unknown"}`, `{"try":"iterate"}`, `{"try":"iterate"}`), []string{
			`{"n":1,"ok":false,"problem":"nodedb: NDB_E_ARGUMENT: merge: argument 1 must be the node to copy from, got a userdata"}`,
			`{"n":1,"ok":false,"problem":"nodedb: NDB_E_ARGUMENT: node: the first argument must be a name or a node, got a userdata"}`,
			`{"n":1,"ok":false,"problem":"nodedb: NDB_E_ARGUMENT: names that begin with ^% belong to Perigee: choose another name"}`,
			`{"n":1,"ok":true}`,
			`{"n":1,"ok":false,"problem":"state.open: the pipeline does not read a state \"orders\": add it to reads: [users] in the configuration"}`,
			`{"n":1,"ok":true}`,
			`{"n":1,"ok":false,"problem":"nodedb: NDB_E_LEVEL: the event of this iteration has ended: iterate within one event"}`,
		})
	})
}

// TestReadOthersWithoutState reads a state in a script that has none, whose clock goes on.
func TestReadOthersWithoutState(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		users := newOtherState(t)
		users.set(nodedb.Name("^n"), 1)
		sc := loadReading(t, interpreted, lua.ForReads("users"), `
			local n = require("state").open("users").node "^n"
			local has, problem = pcall(require, "nodedb")
			local loaded, early = pcall(function() return n.__ end)
			function main(e)
				local began = time.now()
				while time.now() == began do end
				return {n = n.__, problem = problem, early = early}
			end
			local time = require "time"
			_G.time = time`, script.Options{})
		expect(t, "rows", runReading(t, &stateTest{t: t, res: event.Result{Outputs: make([]event.Output, 1)}}, sc, []*otherState{users}, `{}`), []string{
			`{"early":"nodedb: NDB_E_LEVEL: the states of other pipelines are there only inside main and timer: use them in these functions, not while the script loads",` +
				`"n":1,"problem":"no node database is open for this script; write state: in the pipeline for one, or use perigee eval --nodes FOLDER, in a build with LuaJIT and LMDB"}`})
	})
}

// TestRenewSnapshot changes a state while a run reads it: the events of the run see one snapshot,
// until that is too old.
func TestRenewSnapshot(t *testing.T) {
	inBothModes(t, func(t *testing.T, interpreted bool) {
		for age, want := range map[time.Duration]string{time.Hour: `{"n":1}`, 0: `{"n":2}`} {
			users := newOtherState(t)
			users.set(nodedb.Name("^n"), 1)
			change := script.Module{Name: "other", Functions: map[string]script.Func{"change": func(context.Context, []any) ([]any, error) {
				users.set(nodedb.Name("^n"), 2)
				return nil, nil
			}}}
			sc := loadReading(t, interpreted, lua.ForReads("users").Renewing(age), `
				local n, other = require("state").open("users").node "^n", require "other"
				function main(e)
					local before = n.__
					if e.change then other.change() end
					return {n = n.__, same = n.__ == before and nil}
				end`, script.Options{Modules: []script.Module{change}})
			rows := runReading(t, &stateTest{t: t, res: event.Result{Outputs: make([]event.Output, 1)}}, sc, []*otherState{users}, `{"change":true}`, `{}`, `{}`)
			expect(t, "rows with snapshots of "+age.String(), rows, []string{`{"n":1}`, want, want})
		}
	})
}
