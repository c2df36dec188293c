//go:build cgo && luajit

package luajit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

// TestDepth builds values that are too deep, from parts that are not.
func TestDepth(t *testing.T) {
	const want = "nested deeper than 512"
	for name, body := range map[string]string{
		"objects adopted level by level": `
			local p = event
			for i = 1, 80000 do p.x = json.decode('{"x":{}}') p = p.x end`,
		"arrays adopted level by level": `
			event.x = json.decode('[[]]')
			local p = event.x
			for i = 1, 80000 do p[1] = json.decode('[[]]') p = p[1] end`,
		"arrays inserted level by level": `
			event.x = json.decode('[]')
			local p = event.x
			for i = 1, 80000 do table.insert(p, json.decode('[]')) p = p[1] end`,
		"a deep document adopted in a deep place": `
			event.x = json.decode(('{"x":'):rep(300) .. '{}' .. ('}'):rep(300))
			local p = event
			while p.x do p = p.x end
			p.y = json.decode(('['):rep(300) .. (']'):rep(300))`,
		"tables and documents in turns": `
			local inner = {}
			for i = 1, 20 do
				local d = json.decode(('{"x":'):rep(500) .. '{}' .. ('}'):rep(500))
				local p = d
				while p.x do p = p.x end
				p.t = {inner}
				inner = d
			end
			event.x = inner`,
		"documents in tables": `
			local t = json.decode(('['):rep(500) .. (']'):rep(500))
			for i = 1, 20 do t = {t} end
			do return {x = t} end`,
		"a table in a deep document": `
			event.x = json.decode(('['):rep(500) .. (']'):rep(500))
			local p, t = event.x, {}
			while #p > 0 do p = p[1] end
			for i = 1, 20 do t = {t} end
			p[1] = t`,
		"a deep document in a table, with a field added beside it": `
			event.a = json.decode(('['):rep(511) .. (']'):rep(511))
			event.b = 1
			do return {x = event} end`,
		"encoded by json.encode": `
			local t = json.decode(('['):rep(500) .. (']'):rep(500))
			for i = 1, 20 do t = {t} end
			do return {x = json.encode(t)} end`,
	} {
		for mode, interpreted := range map[string]bool{"compiled": false, "interpreted": true} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				opts := defaults()
				opts.NoJIT, opts.EventTime = interpreted, time.Second
				out := runOn(t, opts, "function main(event)\n"+body+"\nreturn event end", `{"a":1}`, `{"a":2}`)
				for _, dead := range out.DeadEvents() {
					if !strings.Contains(dead.ScriptError.Message, want) {
						t.Errorf("event %d: %s, want %q", dead.Event, dead.ScriptError.Message, want)
					}
				}
				if len(out.DeadEvents()) != 2 || out.Limit != OK {
					t.Errorf("%d dead events, limit %v; want 2 and none", len(out.DeadEvents()), out.Limit)
				}
			})
		}
	}
}

// TestDepthAllowed writes values of exactly the maximum depth.
func TestDepthAllowed(t *testing.T) {
	for name, body := range map[string]string{
		"adopted": `
			local p = event
			for i = 1, 511 do p.x = json.decode('{}') p = p.x end`,
		"adopted at once": `event.x = json.decode(('['):rep(511) .. (']'):rep(511))`,
		"tables": `
			local t = json.decode(('['):rep(500) .. (']'):rep(500))
			for i = 1, 11 do t = {t} end
			event.x = t`,
		"replaced": `
			for i = 1, 1000 do event.x = json.decode('[[]]') end`,
	} {
		t.Run(name, func(t *testing.T) {
			out := runOn(t, defaults(), "function main(event)\n"+body+"\nreturn event end", `{"a":1}`)
			for _, dead := range out.DeadEvents() {
				t.Error(dead.ScriptError)
			}
		})
	}
}

// TestExpiredForEver counts more events than a 32-bit counter can.
func TestExpiredForEver(t *testing.T) {
	for mode, interpreted := range map[string]bool{"compiled": false, "interpreted": true} {
		t.Run(mode, func(t *testing.T) {
			opts := defaults()
			opts.NoJIT = interpreted
			for back := range 8 {
				e := loaded(t, opts, `
					local kept, sub
					function main(event)
						if not kept then kept, sub = event, event.sub return nil end
						return {kept = tostring(pcall(function() return kept.a end)), sub = tostring(pcall(function() return sub.b end))}
					end`)
				runDocs(e, `{"a":1,"sub":{"b":2}}`)
				e.c.generation += 1<<32 - 1
				for range back {
					e.c.generation--
				}
				if got := string(runDocs(e, `{"a":3,"sub":{"b":4}}`).Data); got != `{"kept":"false","sub":"false"}` {
					t.Errorf("%d before: %s", back, got)
				}
			}
		})
	}
}

// loaded opens an engine with a script.
func loaded(t *testing.T, opts Options, code string) *Engine {
	t.Helper()
	w := NewWatchdog()
	e, err := NewEngine(w, opts, Setup{Output: 8 << 20, Sinks: []Sink{{}}, Host: testHost()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); w.Close() })
	if err := e.Load(context.Background(), "test.lua", []byte(code)); err != nil {
		t.Fatal(err)
	}
	return e
}

// runDocs runs a batch of documents.
func runDocs(e *Engine, docs ...string) *Outcome {
	batch := new(event.Batch)
	for _, doc := range docs {
		batch.Append([]byte(doc))
	}
	return e.Run(context.Background(), batch, 0)
}

// runOn runs a script on a batch of documents.
func runOn(t *testing.T, opts Options, code string, docs ...string) *Outcome {
	t.Helper()
	return runDocs(loaded(t, opts, code), docs...)
}
