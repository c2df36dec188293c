package scripttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

func testRun(t *testing.T, lang script.Language) {
	t.Run("books", func(t *testing.T) { testResult(t, lang) })
	t.Run("a result used again", func(t *testing.T) { testReuse(t, lang) })
	t.Run("empty batch", func(t *testing.T) { testEmptyBatch(t, lang) })
	t.Run("tail of a batch", func(t *testing.T) { testTail(t, lang) })
	t.Run("traceback", func(t *testing.T) { testTraceback(t, lang) })
	t.Run("at the same time", func(t *testing.T) { testConcurrent(t, lang) })
	t.Run("scripts apart", func(t *testing.T) { testIsolation(t, lang) })
	t.Run("large events", func(t *testing.T) { testLarge(t, lang) })
	t.Run("cancelled", func(t *testing.T) { testCancelled(t, lang) })
}

const mixedScript = `
function main(event)
  if event.n % 5 == 0 then return nil end
  if event.n % 5 == 1 then error("one") end
  if event.n % 5 == 2 then return {event, {copy = event.n}} end
  return event
end`

// testResult mixes everything that can come of an event.
func testResult(t *testing.T, lang script.Language) {
	s := load(t, lang, mixedScript, script.Options{})
	var docs []string
	for n := range 100 {
		docs = append(docs, fmt.Sprintf(`{"n":%d}`, n))
	}
	docs[3] = "broken"
	res := run(t, s, docs...)
	if res.Dropped != 20 || len(res.Dead) != 21 || res.Outputs[0].Len() != 79 {
		t.Errorf("%d dropped, %d dead, %d out; want 20, 21, 79", res.Dropped, len(res.Dead), res.Outputs[0].Len())
	}
	for i := 1; i < len(res.Outputs[0].From); i++ {
		if res.Outputs[0].From[i-1] > res.Outputs[0].From[i] {
			t.Errorf("outputs are not in the order of their events: %v", res.Outputs[0].From)
			break
		}
	}
	for i := 1; i < len(res.Dead); i++ {
		if res.Dead[i-1].Position >= res.Dead[i].Position {
			t.Errorf("dead letters are not in the order of their events: %v before %v", &res.Dead[i-1], &res.Dead[i])
		}
	}
}

func testReuse(t *testing.T, lang script.Language) {
	s := load(t, lang, mixedScript, sinks([]event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}))
	res := result()
	for n := range 5 {
		docs := []string{`{"n":4}`, fmt.Sprintf(`{"n":%d}`, n), "broken"}[n%3:]
		in := batch(docs...)
		if err := s.Run(t.Context(), in, res); err != nil {
			t.Fatal(err)
		}
		checkResult(t, s, docs, in, res)
		if columns := res.Outputs[0].Columns; columns.Rows != res.Outputs[0].Len() || len(columns.Vectors[0].Ints) != columns.Rows {
			t.Errorf("%d rows and %d values for %d documents", columns.Rows, len(columns.Vectors[0].Ints), res.Outputs[0].Len())
		}
	}
}

func testEmptyBatch(t *testing.T, lang script.Language) {
	res := run(t, load(t, lang, passThrough, script.Options{}))
	if res.Outputs[0].Len() != 0 || len(res.Dead) != 0 {
		t.Errorf("nothing became %v", res)
	}
}

func testTail(t *testing.T, lang script.Language) {
	s := load(t, lang, `function main(event) event.seen = true return event end`, script.Options{})
	whole := batch(`{"n":1}`, `{"n":2}`, `{"n":3}`)
	tail := whole.Tail(1)
	res := result()
	if err := s.Run(t.Context(), &tail, res); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(outLines(&res.Outputs[0]), " "), `0 {"n":2,"seen":true} 1 {"n":3,"seen":true}`; got != want {
		t.Errorf("output is %s, want %s", got, want)
	}
	if got := res.Outputs[0].Position(0); got != firstPosition+1 {
		t.Errorf("position is %d, want %d", got, firstPosition+1)
	}
}

func testTraceback(t *testing.T, lang script.Language) {
	const text = `
local function inner(event) return event.user.name end
local function outer(event)
  local name = inner(event)
  return name
end
function main(event)
  local name = outer(event)
  return {name = name}
end`
	res := run(t, load(t, lang, text, script.Options{}), `{}`)
	if len(res.Dead) != 1 {
		t.Fatalf("%d dead letters, want 1", len(res.Dead))
	}
	for _, part := range []string{"case.lua:2:", "case.lua:4:", "case.lua:8:"} {
		if !strings.Contains(res.Dead[0].Traceback, part) {
			t.Errorf("traceback lacks %s:\n%s", part, res.Dead[0].Traceback)
		}
	}
}

// testConcurrent runs one script from more goroutines than an engine keeps VMs.
func testConcurrent(t *testing.T, lang script.Language) {
	s := load(t, lang, `function main(event) event.double = event.n * 2 if event.n % 7 == 0 then error("seven") end return event end`, script.Options{})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			res := result()
			for round := range 20 {
				n := g*1000 + round*10
				docs := make([]string, 10)
				var want []string
				for i := range docs {
					docs[i] = fmt.Sprintf(`{"n":%d}`, n+i)
					if (n+i)%7 != 0 {
						want = append(want, fmt.Sprintf(`%d {"n":%d,"double":%d}`, i, n+i, 2*(n+i)))
					}
				}
				in := batch(docs...)
				if err := s.Run(t.Context(), in, res); err != nil {
					t.Error(err)
					return
				}
				checkResult(t, s, docs, in, res)
				if got := strings.Join(outLines(&res.Outputs[0]), " "); got != strings.Join(want, " ") {
					t.Errorf("output is %s\nwant %s", got, want)
					return
				}
			}
		})
	}
	group.Wait()
}

// testIsolation checks that scripts of one process do not see each other's globals.
func testIsolation(t *testing.T, lang script.Language) {
	one := load(t, lang, `
shared = "one"
pcall(function() string.upper = function() return "poisoned" end end)
pcall(function() getmetatable("").__index.upper = string.lower end)
pcall(function() json.encode = tostring end)
function main(event) return {shared = shared, up = ("a"):upper()} end`, script.Options{})
	two := load(t, lang, `function main(event) return {shared = tostring(shared), up = ("a"):upper(), json = json.encode({})} end`, script.Options{})
	for range 2 {
		run(t, one, `{}`)
		got := strings.Join(outLines(&run(t, two, `{}`).Outputs[0]), " ")
		if want := `0 {"json":"{}","shared":"nil","up":"A"}`; got != want {
			t.Errorf("output is %s, want %s", got, want)
		}
	}
}

func testLarge(t *testing.T, lang script.Language) {
	s := load(t, lang, `function main(event) event.n = #event.text event.last = event.list[#event.list] return event end`, script.Options{})
	text, list := strings.Repeat("text é ", 40_000), strings.Repeat("1,", 50_000)+"2"
	doc := `{"text":"` + text + `","list":[` + list + `]}`
	res := run(t, s, doc)
	want := fmt.Sprintf(`0 %s,"n":%d,"last":2}`, strings.TrimSuffix(doc, "}"), len(text))
	if got := strings.Join(outLines(&res.Outputs[0]), " "); got != want {
		t.Errorf("a document of %d bytes came out as %d bytes", len(doc), len(got))
		for _, dead := range res.Dead {
			t.Error(dead.Error)
		}
	}
}

// testCancelled: a cancelled run returns the error of its context.
func testCancelled(t *testing.T, lang script.Language) {
	s := load(t, lang, "function main(event) while true do end end", script.Options{
		Limits: script.Limits{EventTime: time.Minute, BatchTime: time.Minute},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Run(ctx, batch(`{}`), result()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want that of the context", err)
	}
	good := batch(`{}`)
	done, cancelled := context.WithCancel(t.Context())
	cancelled()
	if err := s.Run(done, good, result()); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that of the context", err)
	}
}
