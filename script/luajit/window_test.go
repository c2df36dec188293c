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
