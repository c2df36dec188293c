//go:build cgo && luajit

package luajit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// An operation of a random script: a name, a node of two subscripts, a number, and the operations of
// a transaction.
type operation struct {
	Do    string      `json:"do"`
	A     int         `json:"a"`
	B     int         `json:"b"`
	By    int         `json:"by"`
	Inner []operation `json:"inner,omitempty"`
}

// stateProgram runs the operations of its events. It returns what they read.
const stateProgram = `
	local nodedb, wait = require "nodedb", require "wait"
	local t, kept = nodedb.node "^t", {}
	local perform
	local function all(ops, read) for i = 1, #ops do perform(ops[i], read) end end
	function perform(op, read)
		local what, node = op["do"], t[op.a][op.b]
		if what == "incr" then read[#read + 1] = node:incr(op.by)
		elseif what == "set" then node.__ = op.by
		elseif what == "get" then read[#read + 1] = node.__ or -1
		elseif what == "delete" then node.__ = nil
		elseif what == "kill" then t[op.a]:kill()
		elseif what == "range" then t[op.a]:kill_range(op.b, op.b + op.by)
		elseif what == "sum" then
			local sum = 0
			for _, v in t[op.a]:values() do sum = sum + v end
			read[#read + 1] = sum
		elseif what == "grow" then
			for b, v in t[op.a]:values() do if b < 40 then t[op.a][b + 20].__ = v end end
		elseif what == "keep" then kept[#kept % 50 + 1] = {t[op.a]:values()}
		elseif what == "kept" then
			for i = 1, #kept do pcall(kept[i][1], kept[i][2], kept[i][3]) end
		elseif what == "merge" then t[op.a]:merge(t[op.a + 10])
		elseif what == "local" then nodedb.incr("tree", op.by) read[#read + 1] = nodedb.get("tree")
		elseif what == "tp" then nodedb.tp(function() all(op.inner, read) end)
		elseif what == "failed" then pcall(nodedb.tp, function() all(op.inner, {}) error "undone" end)
		elseif what == "restart" then
			local runs = 0
			nodedb.tp(function()
				runs = runs + 1
				local seen = runs > op.by and read or {}
				all(op.inner, seen)
				if runs <= op.by then nodedb.trestart() end
			end)
		elseif what == "left" then
			local co = coroutine.wrap(function() nodedb.tp(function() all(op.inner, {}) coroutine.yield() end) end)
			co()
			kept[#kept % 50 + 1] = {co}
			error "an open transaction"
		elseif what == "wait" then wait.short()
		elseif what == "error" then error "failed"
		elseif what == "spin" then while true do node:incr(1) end
		elseif what == "memory" then local x = {} while true do x[#x + 1] = ("x"):rep(1000) .. #x end
		elseif what == "output" then read[1] = ("x"):rep(40000)
		elseif what == "large" then read[#read + 1] = ("x"):rep(op.by * 100)
		end
	end
	function main(e)
		local read = {}
		all(e.ops, read)
		return {read = #read > 0 and read or nil, ok = true}
	end`

// A stateModel is what the state must be: values by "a,b".
type stateModel map[[2]int]int

// perform does an operation. It returns false if the event fails.
func (m *stateModel) perform(op operation, read *[]any, local *int) bool {
	at := [2]int{op.A, op.B}
	all := func(m *stateModel, read *[]any, local *int) bool {
		for _, inner := range op.Inner {
			if !m.perform(inner, read, local) {
				return false
			}
		}
		return true
	}
	switch op.Do {
	case "incr":
		(*m)[at] += op.By
		*read = append(*read, (*m)[at])
	case "set":
		(*m)[at] = op.By
	case "get":
		if v, found := (*m)[at]; found {
			*read = append(*read, v)
		} else {
			*read = append(*read, -1)
		}
	case "delete":
		delete(*m, at)
	case "kill":
		maps.DeleteFunc(*m, func(k [2]int, _ int) bool { return k[0] == op.A })
	case "range":
		maps.DeleteFunc(*m, func(k [2]int, _ int) bool { return k[0] == op.A && k[1] >= op.B && k[1] <= op.B+op.By })
	case "sum":
		sum := 0
		for k, v := range *m {
			if k[0] == op.A {
				sum += v
			}
		}
		*read = append(*read, sum)
	case "grow":
		for b := range 40 { // what the iteration adds it also visits
			if v, found := (*m)[[2]int{op.A, b}]; found {
				(*m)[[2]int{op.A, b + 20}] = v
			}
		}
	case "merge":
		for k, v := range maps.Clone(*m) {
			if k[0] == op.A+10 {
				(*m)[[2]int{op.A, k[1]}] = v
			}
		}
	case "local":
		*local += op.By
		*read = append(*read, *local)
	case "tp":
		return all(m, read, local)
	case "failed":
		copied, none := maps.Clone(*m), []any(nil)
		all(&copied, &none, local)
	case "restart": // trees in memory keep the changes of all runs
		for range op.By {
			copied, none := maps.Clone(*m), []any(nil)
			if !all(&copied, &none, local) {
				return false
			}
		}
		return all(m, read, local)
	case "left", "error", "spin", "memory", "output":
		return false
	case "large":
		*read = append(*read, strings.Repeat("x", op.By*100))
	}
	return true
}

// randomOperations returns operations; rare ones end in a failure.
func randomOperations(r *rand.Rand, depth, failures int) (ops []operation) {
	ordinary := []string{"incr", "incr", "set", "get", "delete", "kill", "range", "sum", "grow", "keep", "kept", "merge", "local", "wait", "large"}
	for range 1 + r.IntN(8) {
		op := operation{Do: ordinary[r.IntN(len(ordinary))], A: r.IntN(4), B: r.IntN(20), By: r.IntN(5)}
		if depth > 0 && r.IntN(5) == 0 {
			op.Do = []string{"tp", "failed", "restart"}[r.IntN(3)]
			op.Inner = randomOperations(r, depth-1, 0)
			if depth < 2 && op.Do == "restart" {
				op.Do = "tp" // a nested one restarts the outermost
			}
		}
		ops = append(ops, op)
	}
	if failures > 0 && r.IntN(failures) == 0 {
		op := operation{Do: []string{"error", "error", "left", "left", "output", "spin", "memory"}[r.IntN(7)], A: r.IntN(4), B: r.IntN(20)}
		if op.Do == "left" {
			op.Inner = randomOperations(r, 0, 0)
		}
		ops = append(ops, op)
	}
	return ops
}

// TestStateAgainstModel runs random events, some of which fail, in batches on a unit whose deltas
// are committed or dropped.
func TestStateAgainstModel(t *testing.T) {
	wait := script.Module{Name: "wait", Functions: map[string]script.Func{
		"short": func(context.Context, []any) ([]any, error) { return nil, nil },
	}}
	limits := script.Limits{EventTime: 60 * time.Millisecond, WallTime: 10 * time.Second, BatchTime: 2 * time.Second, Memory: 4 << 20, Output: 30000}
	inBothModes(t, func(t *testing.T, interpreted bool) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		s := newState(t)
		sc := loadState(t, interpreted, script.Options{Limits: limits, Modules: []script.Module{wait}}, stateProgram)
		committed, model := stateModel{}, stateModel{}
		for batch := range 120 {
			var docs, want []string
			for range 1 + r.IntN(12) {
				ops := randomOperations(r, 2, 8)
				doc, err := json.Marshal(map[string]any{"ops": ops})
				if err != nil {
					t.Fatal(err)
				}
				docs = append(docs, string(doc))
				changed, read, local, ok := maps.Clone(model), []any(nil), 0, true
				for _, op := range ops {
					if ok = changed.perform(op, &read, &local); !ok {
						break
					}
				}
				if !ok {
					want = append(want, "E")
					continue
				}
				model = changed
				row := map[string]any{"ok": true}
				if len(read) > 0 {
					row["read"] = read
				}
				text, err := json.Marshal(row)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, sortedFields(string(text)))
			}
			got := s.run(sc, docs...)
			for i := range got {
				if strings.HasPrefix(got[i], "E: ") {
					got[i] = "E"
				} else {
					got[i] = sortedFields(got[i])
				}
			}
			if !slices.Equal(got, want) {
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("seed %d, batch %d: event %s:\n got %.300s\nwant %.300s", seed, batch, docs[i], got[i], want[i])
					}
				}
				t.Fatalf("seed %d, batch %d: %d results, want %d", seed, batch, len(got), len(want))
			}
			if dumped, wanted := s.dump("^t"), model.String(); dumped != wanted {
				t.Fatalf("seed %d, batch %d, %s: the tree is\n%s, want\n%s", seed, batch, docs, dumped, wanted)
			}
			if drop := r.IntN(4) == 0; drop {
				s.next(true)
				model = maps.Clone(committed)
			} else if r.IntN(3) == 0 {
				s.next(false)
				committed = maps.Clone(model)
			}
		}
	})
}

func (m stateModel) String() string {
	var all []string
	for _, k := range slices.SortedFunc(maps.Keys(m), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		all = append(all, fmt.Sprintf("^t(%d,%d)=%d", k[0], k[1], m[k]))
	}
	return strings.Join(all, " ")
}
