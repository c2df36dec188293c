//go:build cgo && luajit

package luajit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/document"
)

// zeros returns an event with an array of n zeros, of two bytes each. Its index is 40 times as
// large.
func zeros(n int) string { return `{"a":[` + strings.Repeat("0,", n-1) + `0]}` }

// TestIndexCountsAsMemory runs events whose index exceeds the VM's memory, between two that fit.
func TestIndexCountsAsMemory(t *testing.T) {
	for mode, interpreted := range map[string]bool{"compiled": false, "interpreted": true} {
		t.Run(mode, func(t *testing.T) {
			opts := defaults()
			opts.NoJIT, opts.EventTime = interpreted, 5*time.Second
			e := loaded(t, opts, "local kept = {} function main(event) event.a = nil return event end")
			for _, docs := range [][]string{
				{`{"b":1}`, zeros(8 << 20), `{"b":2}`},
				{zeros(8 << 20)},
				{`{"b":1}`, zeros(8 << 20), zeros(8 << 20)},
			} {
				before, _, counted := document.AllocatorBytes()
				out := runDocs(e, docs...)
				for _, dead := range out.DeadEvents() {
					if dead.ParseError == 0 || !strings.Contains(dead.ParseError.String(), "memory") {
						t.Errorf("event %d: %v", dead.Event, dead.ParseError)
					}
				}
				if got := len(out.DeadEvents()) + len(out.Ends); got != len(docs) || len(out.DeadEvents()) == 0 || out.Limit != OK {
					t.Errorf("%d of %d events are accounted for, limit %v", got, len(docs), out.Limit)
				}
				after, _, _ := document.AllocatorBytes()
				if counted && after > before+4<<20 {
					t.Errorf("%d bytes are kept", after-before)
				}
				if e.VM.Memory() > opts.Memory/4 {
					t.Errorf("the VM still has %d bytes", e.VM.Memory())
				}
			}
		})
	}
}

// TestIndexIsGivenBack runs an event whose index fits, and checks the VM's memory afterwards.
func TestIndexIsGivenBack(t *testing.T) {
	e := loaded(t, defaults(), "function main(event) if event.a then return nil end return event end")
	small := e.VM.Memory()
	for _, docs := range [][]string{{zeros(60_000)}, {zeros(60_000), `{"b":1}`}} {
		if out := runDocs(e, docs...); len(out.DeadEvents()) != 0 {
			t.Fatal(out.DeadEvents())
		}
		if now := e.VM.Memory(); now > small+1<<20 {
			t.Errorf("the VM had %d bytes, and has %d", small, now)
		}
	}
}

// TestWrittenTextIsFreed writes texts to events: their memory, apart from the index, is freed
// before the next event.
func TestWrittenTextIsFreed(t *testing.T) {
	e := loaded(t, defaults(), `
		local text = ("x"):rep(50000)
		function main(event)
			for i = 1, event.texts do event["t" .. i] = text end
			return nil
		end`)
	var held []uint64
	for range 4 {
		for _, doc := range []string{`{"texts":60}`, `{"texts":0}`} {
			if out := runDocs(e, doc); len(out.DeadEvents()) != 0 {
				t.Fatal(out.DeadEvents())
			}
		}
		bytes, _, counted := document.AllocatorBytes()
		if !counted {
			t.Skip("the C library does not tell")
		}
		held = append(held, bytes)
	}
	if held[3] > held[0]+1<<20 {
		t.Errorf("bytes in use after each of the events: %d", held)
	}
}

// TestIndexIsCountedAtItsEdges runs events whose index exactly fills its memory, and events with
// one more value: the additional memory is counted, and freed after an event whose index is not
// kept.
func TestIndexIsCountedAtItsEdges(t *testing.T) {
	const nodeBytes, noise = 64, 32 << 10
	e := loaded(t, defaults(), "function main(event) return nil end")
	counted := func(values int) int {
		t.Helper()
		for range 3 { // with different amounts of garbage
			if out := runDocs(e, zeros(values-2)); len(out.DeadEvents()) != 0 { // plus the event and the array
				t.Fatal(out.DeadEvents())
			}
		}
		return e.VM.Memory()
	}
	small := counted(10)
	for _, capacity := range []int{1024, 4096} {
		below, full := counted(capacity-100), counted(capacity)
		if full > below+noise {
			t.Errorf("an index that is full has %d bytes, and with 100 values fewer %d", full, below)
		}
		if more := counted(capacity + 1); more < full+capacity*nodeBytes {
			t.Errorf("with one value more than %d, %d bytes became %d", capacity, full, more)
		}
	}
	counted(100_000)
	if after := counted(10); after > small+noise {
		t.Errorf("%d bytes before a large event, and %d after it", small, after)
	}
}

// TestWriteToALargeArray writes to an array, which then needs memory for each element, with more
// and more of the memory in use: either the write succeeds, or the event fails.
func TestWriteToALargeArray(t *testing.T) {
	passed, failed := 0, 0
	doc := zeros(131_000) // the elements fill the index, and need 1 MiB for a write
	for taken := 0; taken < 64; taken += 4 {
		opts := defaults()
		opts.EventTime = 5 * time.Second
		out := runOn(t, opts, `
			local taken = {}
			for i = 1, `+fmt.Sprint(taken)+` do taken[i] = ("x"):rep(2^17) .. i end
			function main(event)
				event.a[1] = #taken
				return {n = event.a[1]}
			end`, doc)
		switch {
		case len(out.DeadEvents()) == 0 && string(out.Data) == fmt.Sprintf(`{"n":%d}`, taken):
			passed++
		case len(out.DeadEvents()) == 1 && len(out.Data) == 0:
			failed++
		default:
			t.Errorf("with %d strings: %q, dead %v, limit %v", taken, out.Data, out.DeadEvents(), out.Limit)
		}
	}
	if passed == 0 || failed == 0 {
		t.Errorf("%d events passed, %d failed", passed, failed)
	}
}

// TestGarbageMakesRoom runs large events in a VM whose heap is full of garbage.
func TestGarbageMakesRoom(t *testing.T) {
	for mode, interpreted := range map[string]bool{"compiled": false, "interpreted": true} {
		t.Run(mode, func(t *testing.T) {
			opts := defaults()
			opts.NoJIT, opts.EventTime, opts.BatchTime = interpreted, 5*time.Second, 30*time.Second
			e := loaded(t, opts, "function main(event) if event.fill then local s = ('x'):rep(4e6) return {n = #s} end event.a = nil return event end")
			docs := []string{`{"fill":true}`, zeros(100_000), `{"fill":true}`, zeros(100_000), `{"b":1}`}
			for range 2 {
				out := runDocs(e, docs...)
				if len(out.Ends) != len(docs) {
					t.Errorf("%d events came out, dead %v", len(out.Ends), out.DeadEvents())
				}
			}
			runDocs(e, docs[0])
			if out := runDocs(e, docs[1]); len(out.Ends) != 1 {
				t.Errorf("alone: dead %v", out.DeadEvents())
			}
		})
	}
}

// TestDecodedDocumentsCount keeps documents of json.decode, and drops many more than would fit.
func TestDecodedDocumentsCount(t *testing.T) {
	opts := defaults()
	opts.EventTime, opts.BatchTime = 10*time.Second, 30*time.Second
	out := runOn(t, opts, `
		local text = "[" .. ("0,"):rep(9999) .. "0]"
		local kept = {}
		function main(event)
			for i = 1, 1000 do
				local d = json.decode(text)
				if event.keep then kept[i] = d end
			end
			return event
		end`, `{"drop":true}`, `{"keep":true}`)
	if len(out.DeadEvents()) != 1 || out.Limit != Memory || len(out.Ends) != 1 {
		t.Errorf("limit %v, dead %v; want the second event's memory limit", out.Limit, out.DeadEvents())
	}
}

// TestHostileDecode decodes texts that exceed a document's limits.
func TestHostileDecode(t *testing.T) {
	out := runOn(t, defaults(), `
		function main(event)
			local t = {}
			for i = 1, 33000 do t[i] = '"k' .. i .. '":0' end
			local v, why = json.decode("{" .. table.concat(t, ",") .. "}")
			return {v = tostring(v), why = why}
		end`, `{}`)
	if got := string(out.Data); got != `{"v":"nil","why":"more than 32768 fields"}` {
		t.Errorf("%s, dead %v", got, out.DeadEvents())
	}
}

// TestEscapesAreReadForEver reads fields with escapes more often than there is memory for their
// text.
func TestEscapesAreReadForEver(t *testing.T) {
	for mode, interpreted := range map[string]bool{"compiled": false, "interpreted": true} {
		t.Run(mode, func(t *testing.T) {
			opts := defaults()
			opts.NoJIT, opts.EventTime, opts.BatchTime = interpreted, 10*time.Second, 30*time.Second
			out := runOn(t, opts, `
				function main(event)
					for i = 1, 200 do
						assert(#event.text == 300001, "text")
						local n = 0
						for k, v in pairs(event.sub) do n = n + #k end
						assert(n == 200001, "keys")
					end
					return {}
				end`, `{"text":"`+strings.Repeat("x", 300_000)+`\n","sub":{"`+strings.Repeat("y", 200_000)+`\n":1}}`)
			for _, dead := range out.DeadEvents() {
				t.Error(dead.ScriptError)
			}
		})
	}
}
