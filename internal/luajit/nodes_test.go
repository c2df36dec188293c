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
)

// nodeStore opens a store, and skips the test in a build without the node database.
func nodeStore(t *testing.T) *nodedb.Store {
	t.Helper()
	store, err := nodedb.Open(t.TempDir(), nodedb.Options{NoSync: true})
	if errors.Is(err, nodedb.ErrUnavailable) {
		t.Skip("needs the build tag lmdb")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func nodeEngine(t *testing.T, opts Options, store *nodedb.Store, code string) *Engine {
	t.Helper()
	return nodeEngineWith(t, opts, Setup{Extension: lua.NewExtension(store)}, code)
}

// collectingEngine returns an engine that collects all garbage before every call of the store.
func collectingEngine(t *testing.T, opts Options, store *nodedb.Store, code string) *Engine {
	t.Helper()
	return nodeEngineWith(t, opts, Setup{Extension: lua.NewExtension(store), CollectBeforeCalls: true}, code)
}

func nodeEngineWith(t *testing.T, opts Options, setup Setup, code string) *Engine {
	t.Helper()
	w := NewWatchdog()
	setup.Output, setup.Sinks = 8<<20, []Sink{{}}
	e, err := NewEngine(w, opts, setup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); w.Close() })
	if err := e.Load(context.Background(), "nodes.lua", []byte("local nodedb = require 'nodedb'\n"+code)); err != nil {
		t.Fatal(err)
	}
	return e
}

// runNodes runs events and returns their results, "E: message" for a failed one.
func runNodes(e *Engine, docs ...string) (results []string, limit Kind) {
	batch := new(event.Batch)
	for _, doc := range docs {
		batch.Append([]byte(doc))
	}
	out := e.Run(context.Background(), batch, 0)
	for _, dead := range out.DeadEvents() {
		results = append(results, "E: "+dead.ScriptError.Message)
	}
	start := uint32(0)
	for _, end := range out.Ends {
		results = append(results, string(out.Data[start:end]))
		start = end
	}
	return results, out.Limit
}

// TestNodesInBothModes runs the module compiled and interpreted.
func TestNodesInBothModes(t *testing.T) {
	for mode, interpreted := range map[string]bool{"compiled": false, "interpreted": true} {
		t.Run(mode, func(t *testing.T) {
			opts := defaults()
			opts.NoJIT = interpreted
			e := nodeEngine(t, opts, nodeStore(t), `
				local users = nodedb.node("^users")
				function main(event)
					local user = users[event.name]
					nodedb.tp(function() user.visits:incr(event.visits) end)
					user.big.__ = event.big
					local all = {}
					for child, value, name in user:pairs() do all[#all + 1] = name .. "=" .. tostring(value) end
					return {all = table.concat(all, " "), same = users[event.name] == user, text = tostring(user)}
				end`)
			got, _ := runNodes(e, `{"name":"ada","visits":0.1,"big":12345678901234567890}`, `{"name":"ada","visits":0.2,"big":true}`, `{"name":7,"visits":"x"}`)
			want := []string{
				`{"all":"big=12345678901234567890 visits=0.1","same":true,"text":"^users(\"ada\")"}`,
				`{"all":"big=true visits=0.3","same":true,"text":"^users(\"ada\")"}`,
				`{"all":"visits=0","same":true,"text":"^users(7)"}`,
			}
			if len(got) != len(want) {
				t.Fatalf("%q", got)
			}
			for i := range want {
				if !sameKeys(got[i], want[i]) {
					t.Errorf("event %d returned %s, want %s", i, got[i], want[i])
				}
			}
		})
	}
}

// TestYottadb uses the module for lua-yottadb scripts together with nodedb.
func TestYottadb(t *testing.T) {
	e := nodeEngine(t, defaults(), nodeStore(t), `
		local ydb = require "yottadb"
		function main(event)
			nodedb.node("^n").x.__ = 0.5
			local x = ydb.node("^n").x
			return {all = {type(x.__), x.__, tostring(x), ydb.get("^n", {"x"})}}
		end`)
	if got, _ := runNodes(e, `{}`); len(got) != 1 || got[0] != `{"all":["string",".5","^n(\"x\")",".5"]}` {
		t.Errorf("%q", got)
	}
}

// sameKeys compares objects, ignoring the order of their members.
func sameKeys(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for _, member := range strings.Split(strings.Trim(b, "{}"), ",") {
		if !strings.Contains(a, member) {
			return false
		}
	}
	return true
}

// TestAnEventEndsItsTransaction leaves transactions and locks open in a coroutine.
func TestAnEventEndsItsTransaction(t *testing.T) {
	store := nodeStore(t)
	e := nodeEngine(t, defaults(), store, `
		local co
		function main(event)
			if event.resume then
				local ok, message = coroutine.resume(co)
				return {ok = ok, message = tostring(message), value = nodedb.get("^left")}
			end
			co = coroutine.create(function()
				nodedb.tp(function()
					nodedb.set("^left", 1)
					nodedb.node("^left"):lock_incr()
					coroutine.yield()
				end)
			end)
			coroutine.resume(co)
			if event.fail then error("failed") end
			return {value = nodedb.get("^left")}
		end`)
	session, err := store.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	soon, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, first := range []string{`{}`, `{"fail":1}`} {
		got, limit := runNodes(e, first)
		if len(got) != 1 || limit != OK {
			t.Fatalf("%q, %v", got, limit)
		}
		if v, err := session.Get(nodedb.Name("^left")); v.Exists() || err != nil {
			t.Errorf("after the event the value is %v, %v", v, err)
		}
		if err := session.Lock(soon, nodedb.Name("^left")); err != nil {
			t.Errorf("the event has left its lock: %v", err)
		}
		session.UnlockAll()
		got, _ = runNodes(e, `{"resume":true}`)
		if len(got) != 1 || !strings.Contains(got[0], `"ok":false`) || strings.Contains(got[0], `"value"`) {
			t.Errorf("the coroutine went on: %q", got)
		}
	}
}

// TestNodesCountAsMemory checks that changes, trees and iterations count towards the VM's memory
// limit, and that a VM does not keep them.
func TestNodesCountAsMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills the memory that C code counts")
	}
	store := nodeStore(t)
	opts := defaults()
	opts.EventTime, opts.BatchTime = 20*time.Second, 60*time.Second
	for name, test := range map[string]struct {
		code string
		want Kind
	}{
		"transaction":   {`local x = ("x"):rep(1e5) nodedb.tp(function() for i = 1, 1e6 do nodedb.set("^m", i, x) end end)`, Memory},
		"many in pcall": {`local x = ("x"):rep(1e5) while true do pcall(nodedb.tp, function() for i = 1, 1e6 do nodedb.set("^m", i, x) end end) end`, Memory},
		"trees":         {`local x = ("x"):rep(1e5) for i = 1, 1e6 do nodedb.set("m", i, x) end`, Memory},
		"iterations":    {`local t, n = {}, nodedb.node("^small") for i = 1, 1e6 do t[i] = n:subscripts() t[i]() end`, Memory},
		"thrown away":   {`local n = nodedb.node("^small") for i = 1, 2e4 do n:subscripts()() end`, OK},
		"undone":        {`local x = ("x"):rep(1e5) for i = 1, 200 do pcall(nodedb.tp, function() for j = 1, 10 do nodedb.set("^m", j, x) end error("undo") end) end`, OK},
		"killed":        {`local x = ("x"):rep(1e5) for i = 1, 200 do for j = 1, 10 do nodedb.set("m", j, x) end nodedb.kill("m") end`, OK},
		"not in memory": {`local x = ("x"):rep(1e5) for i = 1, 500 do nodedb.set("^stored", i, x) end`, OK},
		"pinned by iterations of a tree": {`local x, t, n = ("x"):rep(1e6), {}, nodedb.node("m")
			for i = 1, 200 do nodedb.set("m", 1, x .. i) t[i] = n:subscripts() t[i]() end`, Memory},
		"pinned by iterations of a transaction": {`local x, t, n = ("x"):rep(1e6), {}, nodedb.node("^m")
			nodedb.tp(function() for i = 1, 200 do nodedb.set("^m", 1, x .. i) t[i] = n:subscripts() t[i]() end end)`, Memory},
		"pinned by iterations of what waits": {`local x, t, n = ("x"):rep(1e6), {}, nodedb.node("^m")
			for i = 1, 200 do nodedb.set("^m", 1, x .. i) t[i] = n:subscripts() t[i]() end`, Memory},
		"pinned by iterations of past transactions": {`local x, t, n = ("x"):rep(1e6), {}, nodedb.node("^m")
			for i = 1, 200 do pcall(nodedb.tp, function() nodedb.set("^m", 1, x .. i) t[i] = n:subscripts() t[i]() error("undo") end) end`, Memory},
		"trees to restore": {`local x = ("x"):rep(1e6)
			local function deeper(i) nodedb.set("m", 1, x .. i) if i < 100 then nodedb.tp({"*"}, deeper, i + 1) end end deeper(1)`, Memory},
		"states of inner transactions": {`local x = ("x"):rep(1e6)
			nodedb.tp({"*"}, function() for i = 1, 300 do nodedb.tp({"*"}, nodedb.set, "m", 1, x .. i) end end)`, OK},
		"versions of nested transactions": {`local x = ("x"):rep(1e6)
			local function deeper(i) nodedb.set("^m", 1, x .. i) if i < 100 then nodedb.tp(deeper, i + 1) end end nodedb.tp(deeper, 1)`, Memory},
		"kills of long names": {`local x = ("k"):rep(1800) nodedb.tp(function() for i = 1, 2e5 do nodedb.kill("^m", x) end end)`, Memory},
		"changed while it iterates": {`local x, n = ("x"):rep(1e4), nodedb.node("m") for i = 1, 1000 do n[i].__ = x end
			for round = 1, 20 do for i in n:subscripts() do for j in n:subscripts({limit = 30}) do n[j].__ = x .. i end end end`, OK},
		"changed in a transaction while it iterates": {`local x, n = ("x"):rep(1e4), nodedb.node("^n")
			nodedb.tp(function() for i = 1, 1000 do n[i].__ = x end
			for round = 1, 10 do for i in n:subscripts() do n[i].__ = x .. i nodedb.incr("^small", "count", 1) end end end)`, OK},
		"changed outside a transaction while it iterates": {`local x, n = ("x"):rep(1e4), nodedb.node("^n") for i = 1, 1000 do n[i].__ = x end
			for round = 1, 20 do for i in n:subscripts() do n[i].__ = x .. i end end`, OK},
		"of a past event": {`nodedb.tp(function() nodedb.set("^small", 1, 1) nodedb.set("^small", 2, 2) end)`, OK},
	} {
		t.Run(name, func(t *testing.T) {
			e := nodeEngine(t, opts, store, "function main(event) "+test.code+" return event end")
			got, limit := runNodes(e, `{"a":1}`)
			// On a slow machine, idle iterations may be released before the limit is reached.
			released := limit == OK && (name == "pinned by iterations of what waits" || name == "pinned by iterations of past transactions")
			if limit != test.want && !released {
				t.Fatalf("%q ended with %v, want %v", got, limit, test.want)
			}
			if limit == OK && (len(got) != 1 || got[0] != `{"a":1}`) {
				t.Errorf("returned %q", got)
			}
			if used := e.VM.Memory(); limit == OK && used > 2*opts.Memory {
				t.Errorf("the VM has %d bytes", used)
			}
		})
	}
}

// TestNodesWaitForTheDisk commits more than a script's memory, event by event: the pending changes
// stay below it.
func TestNodesWaitForTheDisk(t *testing.T) {
	store := nodeStore(t)
	opts := defaults()
	opts.EventTime, opts.BatchTime, opts.Memory = 20*time.Second, 120*time.Second, 64<<20
	for name, code := range map[string]string{
		"transactions": `nodedb.tp(function() for i = 1, 20 do nodedb.set("^w", event.n, i, x) end end)`,
		"single sets":  `for i = 1, 20 do nodedb.set("^w", event.n, i, x) end`,
		"merges":       `for i = 1, 20 do nodedb.set("w", i, x) end nodedb.merge("^w", "w") nodedb.kill("w")`,
	} {
		t.Run(name, func(t *testing.T) {
			e := nodeEngine(t, opts, store, `local x = ("x"):rep(1e6) function main(event) `+code+` return event end`)
			for n := range 20 {
				if got, limit := runNodes(e, fmt.Sprintf(`{"n":%d}`, n)); limit != OK {
					t.Fatalf("event %d ended with %v: %q", n, limit, got)
				}
				stat, err := store.Stat()
				if err != nil {
					t.Fatal(err)
				}
				if limit := uint64(opts.Memory); stat.PendingBytes > limit {
					t.Fatalf("after event %d %d bytes wait to be written: want at most %d", n, stat.PendingBytes, limit)
				}
			}
		})
	}
}

// TestNodesSeeTheTimeLimit waits for a lock that another session holds.
func TestNodesSeeTheTimeLimit(t *testing.T) {
	store := nodeStore(t)
	session, err := store.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := session.Lock(context.Background(), nodedb.Name("^held")); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]string{
		"for ever":      `nodedb.node("^held"):lock_incr()`,
		"again":         `while true do pcall(nodedb.lock, {nodedb.node("^held")}, 0.01) end`,
		"a transaction": `nodedb.tp(function() nodedb.node("^held").x:lock_incr() end)`,
	} {
		t.Run(name, func(t *testing.T) {
			e := nodeEngine(t, defaults(), store, "function main(event) "+code+" return event end")
			start := time.Now()
			if _, limit := runNodes(e, `{}`); limit != EventTime {
				t.Errorf("ended with %v", limit)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("after %v", took)
			}
		})
	}
	e := nodeEngine(t, defaults(), store, `function main(event)
		local ok, message = pcall(nodedb.lock, {nodedb.node("^held")}, 0.02)
		return {code = nodedb.get_error_code(message) == nodedb.NDB_E_TIMEOUT}
	end`)
	if got, _ := runNodes(e, `{}`); len(got) != 1 || got[0] != `{"code":true}` {
		t.Errorf("a short wait returned %q", got)
	}
}

// TestNodesSeeTheTimeLimitOfAChange changes a node while a transaction of another session runs
// alone after conflicts.
func TestNodesSeeTheTimeLimitOfAChange(t *testing.T) {
	store := nodeStore(t)
	other, err := store.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	alone, end, done := make(chan bool), make(chan bool), make(chan error)
	go func() {
		runs := 0
		done <- store.Update(context.Background(), func(tx *nodedb.Tx) error {
			if _, err := tx.Get(nodedb.Name("^read")); err != nil {
				return err
			}
			if runs++; runs < 3 {
				return errors.Join(other.Set(nodedb.Name("^read"), runs), tx.Set(nodedb.Name("^x"), runs))
			}
			alone <- true
			<-end
			return nil
		})
	}()
	<-alone
	for name, code := range map[string]string{
		"a set":         `nodedb.set("^y", 1)`,
		"a transaction": `nodedb.tp(function() nodedb.set("^y", 1) end)`,
		"a merge":       `nodedb.set("y", 1) nodedb.merge("^y", "y")`,
		"in pcall":      `while true do pcall(nodedb.set, "^y", 1) end`,
	} {
		t.Run(name, func(t *testing.T) {
			e := nodeEngine(t, defaults(), store, "function main(event) "+code+" return event end")
			start := time.Now()
			if got, limit := runNodes(e, `{}`); limit != EventTime {
				t.Errorf("%q ended with %v, want %v", got, limit, EventTime)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("after %v", took)
			}
		})
	}
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStoreStaysOpenForItsEngines closes a store that an engine uses.
func TestStoreStaysOpenForItsEngines(t *testing.T) {
	store := nodeStore(t)
	w := NewWatchdog()
	defer w.Close()
	e, err := NewEngine(w, defaults(), Setup{Output: 1 << 20, Sinks: []Sink{{}}, Extension: lua.NewExtension(store)})
	if err != nil {
		t.Fatal(err)
	}
	if store.Close() == nil {
		t.Fatal("the store closed under an engine")
	}
	e.Close()
}

// TestNoNodes requires the module without a store.
func TestNoNodes(t *testing.T) {
	w := NewWatchdog()
	defer w.Close()
	e, err := NewEngine(w, defaults(), Setup{Output: 1 << 20, Sinks: []Sink{{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Load(context.Background(), "x.lua", []byte("require 'nodedb'")); err == nil {
		t.Error("there is a module")
	}
}

// TestNodesHoldTheirArguments makes calls whose text only the call keeps alive, with a full garbage
// collection before each one.
func TestNodesHoldTheirArguments(t *testing.T) {
	const code = `
		local n, count = nodedb.node("^held"), 0
		local function fresh(length) count = count + 1 return ("%d"):format(count):rep(length) end
		function main(event)
			for i = 1, 9 do n["x" .. i].__ = i end
			for i = 1, 60 do
				local k = i % 6 + 1
				local s = n:subscripts {from = "x" .. k, to = "x" .. k + 2}
				local all = s() .. s() .. s()
				if all ~= "x" .. k .. "x" .. k + 1 .. "x" .. k + 2 or s() then error("an iteration from x" .. k .. " gives " .. all) end
				if nodedb.str2zwr(fresh(900)) ~= '"' .. ("%d"):format(count):rep(900) .. '"' then error("the text of str2zwr") end
				n.big.__ = event.big
				if not n.big:compare_and_set(event.big, event.bigger) then error("compare_and_set of two big numbers") end
				if nodedb.str2zwr(n.big.__) ~= nodedb.str2zwr(event.bigger) then error("the big number that was set") end
				nodedb.set("^held", event.big, event.bigger)
				if nodedb.str2zwr(nodedb.get("^held", event.big)) ~= nodedb.str2zwr(event.bigger) then error("a big subscript") end
				if nodedb.zwr2str('"' .. fresh(500) .. '"') ~= ("%d"):format(count):rep(500) then error("the text of zwr2str") end
				nodedb.load('^held("l")="' .. fresh(300) .. '"')
				if n.l.__ ~= ("%d"):format(count):rep(300) then error("the text of load") end
			end
			return event
		end`
	for mode, interpreted := range map[string]bool{"compiled": false, "interpreted": true} {
		t.Run(mode, func(t *testing.T) {
			opts := defaults()
			opts.NoJIT, opts.EventTime, opts.BatchTime = interpreted, time.Minute, time.Minute
			e := collectingEngine(t, opts, nodeStore(t), code)
			if !interpreted {
				if err := e.VM.runTrusted(`require("jit.opt").start("hotloop=3", "hotexit=2")`); err != nil {
					t.Fatal(err)
				}
			}
			const doc = `{"big":123456789012345678901,"bigger":987654321098765432109}`
			for range 3 {
				if got, _ := runNodes(e, doc); len(got) != 1 || got[0] != doc {
					t.Fatalf("got %q, want the event", got)
				}
			}
		})
	}
}
