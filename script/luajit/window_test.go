//go:build cgo && luajit

package luajit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// An example of the reference is a block of Lua and a block of text: lines of a time, an event or
// timers, and the rows. Timers run when they are due, before each line.
var example = regexp.MustCompile("(?s)```lua\n(.*?)```\n\n```text\n(.*?)```")

// TestExamplesOfTheReference runs the examples of the modules timer and window.
func TestExamplesOfTheReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/modules.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := ""
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		for i, match := range example.FindAllStringSubmatch(text, -1) {
			ran += match[1]
			inBothModes(t, func(t *testing.T, interpreted bool) {
				t.Run(fmt.Sprintf("%s %d", name, i+1), func(t *testing.T) { runExample(t, interpreted, match[1], match[2]) })
			})
		}
	}
	for _, function := range []string{"timers.after", "timers.at", "timers.cancel", "timers.due", "window.tumbling", "window.session", "window.join",
		"window.dedupe", "window.limit", ":add(", ":completed(", ":get(", ":first(", ":take("} {
		if !strings.Contains(ran, function) {
			t.Errorf("no example calls %s", function)
		}
	}
}

func runExample(t *testing.T, interpreted bool, code, lines string) {
	s := newState(t)
	sc := loadState(t, interpreted, script.Options{}, code)
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		left, want, found := strings.Cut(line, " → ")
		hour, doc, _ := strings.Cut(left, " ")
		at, err := time.Parse("15:04:05", hour)
		if err != nil || !found {
			t.Fatalf("%q is not a time, an event, → and rows", line)
		}
		at = time.Date(2026, 11, 28, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
		got := s.fire(sc, at)
		if doc != "timers" {
			if len(got) > 0 {
				t.Errorf("before %s timers returned %q", line, got)
			}
			in := s.fill(strings.TrimSpace(doc))
			in.Time = at
			got = s.runBatch(sc, in)
		}
		if text := strings.Join(got, " "); !sameRows(text, strings.TrimSpace(want)) {
			t.Errorf("%s\n got %s", line, text)
		}
	}
}

// sameRows compares rows regardless of the order of their fields; "nothing" means none.
func sameRows(got, want string) bool {
	if want == "nothing" {
		want = ""
	}
	return sortedFields(got) == sortedFields(want)
}

// sortedFields returns a sequence of JSON values with the fields of objects in order.
func sortedFields(rows string) string {
	var all []string
	for d := json.NewDecoder(strings.NewReader(rows)); ; {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return strings.Join(all, " ")
		} else if err != nil {
			return rows // a dead letter
		}
		all = append(all, fmt.Sprint(v))
	}
}

func TestWindowErrors(t *testing.T) {
	for _, test := range []struct{ code, want string }{
		{`window.tumbling("^w")`, "window.tumbling: argument 2 must be a table of options, got a nil"},
		{`window.tumbling("w", {seconds = 1})`, `window.tumbling: argument 1 must be the name of a stored tree, such as "^tumblings", got w`},
		{`window.tumbling("^%w", {seconds = 1})`, "belong to Perigee"},
		{`window.tumbling("^w", {})`, "window.tumbling: the option seconds must be more than 0"},
		{`window.tumbling("^w", {seconds = 0})`, "window.tumbling: the option seconds must be more than 0"},
		{`window.tumbling("^w", {seconds = 1, gap = 1})`, "window.tumbling: unknown option gap"},
		{`window.session("^w", {gap = -1})`, "window.session: gap must be a number, 0 or more, got -1"},
		{`window.session("^w", {gap = 1, late = 1})`, `window.session: late and idle need time = "event": by the clock no event is late`},
		{`window.limit("^w", {count = 1, seconds = 1, time = "later"})`, `window.limit: time must be "event" or "clock", got later`},
		{`window.dedupe("^w", {seconds = 1}) window.limit("^w", {count = 1, seconds = 1})`, "window.limit: ^w is the tree of a dedupe"},
	} {
		sc, err := tryState(false, script.Options{}, `local window = require "window" `+test.code+` function main(e) end`)
		if err == nil {
			sc.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.code, err, test.want)
		}
	}
	s := newState(t)
	sc := loadState(t, false, script.Options{}, `
		local window, json = require "window", require "json"
		local clock, event = window.tumbling("^c", {seconds = 1}), window.tumbling("^e", {seconds = 1, time = "event"})
		local join, limit = window.join("^j", {seconds = 1}), window.limit("^l", {count = 2, seconds = 1})
		local uses = {
			function() clock:add("a", 1, 5) end,
			function() event:add("a", 1) end,
			function() clock:add(nil, 1) end,
			function() clock:add("a", {}) end,
			function() clock:add("a", 0 / 0) end,
			function() join:add("middle", 1, 1) end,
			function() limit:take("a", 3) end,
			function(e) clock:add(e.big, e.big) return clock:get(e.big) end,
		}
		function main(e) return uses[e.i](e) end`)
	for i, want := range []string{
		`tumbling.add: pass no time, or create the object with time = "event"`,
		"tumbling.add: the last argument must be the time of the event in seconds, got nil",
		"tumbling.add: the key must be a text or a number, got a nil",
		"tumbling.add: the value must be a finite number, a text or a boolean, got table",
		"tumbling.add: the value must be a finite number, a text or a boolean, got ",
		`join.add: the side must be "left" or "right", got middle`,
		"limit.take: the number of tokens must be above 0, and at most 2, got 3",
		`"key":"12345678901234567890"`,
	} {
		if got := s.run(sc, fmt.Sprintf(`{"i":%d,"big":12345678901234567890}`, i+1)); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("use %d: %q, want %s", i+1, got, want)
		}
	}
}
