package scripttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// faultyScripts are scripts that are refused, with the line and parts of the reason.
var faultyScripts = []struct {
	name, text string
	line       int
	parts      []string
}{
	{"syntax", "function main(event)\n  return event.\nend\n", 3, []string{"end"}},
	{"unfinished", "function main(event)\n  return event\n", 2, nil},
	{"no main", "function mian(event) return event end", 0, []string{"main"}},
	{"empty", "", 0, []string{"main"}},
	{"local main", "local function main(event) return event end", 0, []string{"main", "global"}},
	{"main of the wrong type", "main = 5", 0, []string{"main", "number"}},
	{"error at load", "local x = 1\nerror('no config')\nfunction main(e) return e end", 2, []string{"no config"}},
	{"nil at load", "local x\nx.y = 1", 2, []string{"nil"}},
	{"compiled code", "\x1bLJ\x02", 0, nil},
	{"compiled code of PUC Lua", "\x1bLua", 0, nil},
}

func testLoad(t *testing.T, lang script.Language) {
	for _, c := range faultyScripts {
		t.Run(c.name, func(t *testing.T) {
			refused := loadError(t, lang, c.text, script.Limits{})
			if c.line != 0 && refused.Line != c.line {
				t.Errorf("error is at line %d, want %d: %v", refused.Line, c.line, refused)
			}
			for _, part := range c.parts {
				if !strings.Contains(refused.Message+refused.Hint, part) {
					t.Errorf("error %q with hint %q lacks %q", refused, refused.Hint, part)
				}
			}
		})
	}
	t.Run("endless at load", func(t *testing.T) {
		refused := loadError(t, lang, "while true do end", script.Limits{BatchTime: 100 * time.Millisecond, EventTime: 100 * time.Millisecond})
		if !strings.Contains(refused.Error(), "time") {
			t.Errorf("error is %q, want the time limit", refused)
		}
	})
	t.Run("name and version", func(t *testing.T) {
		one := load(t, lang, "function main(e) return e end", script.Options{})
		two := load(t, lang, "function main(e) return nil end", script.Options{})
		if !strings.Contains(one.String(), scriptName) || one.String() == two.String() {
			t.Errorf("scripts are called %q and %q, want the name and something that tells them apart", one, two)
		}
	})
}

// loadError loads text and returns why it was refused.
func loadError(t *testing.T, lang script.Language, text string, limits script.Limits) *script.Error {
	t.Helper()
	code := script.Code{Name: scriptName, Text: []byte(text)}
	s, err := lang.Load(context.Background(), code, script.Options{Limits: limits, Sinks: []script.Sink{{}}})
	if err == nil {
		_ = s.Close()
		t.Fatal("loaded, want an error")
	}
	var refused *script.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error is a %T, want *script.Error: %v", err, err)
	}
	if refused.Script != scriptName {
		t.Errorf("error is about %q, want %q", refused.Script, scriptName)
	}
	return refused
}
