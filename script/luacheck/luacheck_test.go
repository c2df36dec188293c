package luacheck

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
)

var sinks = []script.Sink{{Name: "audit"}, {Name: "orders", Routed: true}}

// findings lists what is wrong with the first file of an archive, beside the others, as
// FILE:LINE: MESSAGE (HINT).
func findings(text string, opts script.Options) string {
	archive := txtar.Parse([]byte("-- s.lua --\n" + text))
	files := func(path string) ([]byte, error) {
		for _, f := range archive.Files {
			if f.Name == path {
				return f.Data, nil
			}
		}
		return nil, fs.ErrNotExist
	}
	var lines []string
	for _, fault := range Check(script.Code{Name: "s.lua", Text: archive.Files[0].Data, Files: files}, opts) {
		line := fault.Error()
		if fault.Hint != "" {
			line += " (" + fault.Hint + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestCheckFinds(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"misspelt": {"function main(event)\n  local total = 1\n  event.x = totl\n  return event\nend",
			"s.lua:3: the global totl is never set (did you mean total?)"},
		"called":        {"function main(event) return evnt(event) end", "s.lua:1: the global evnt is never set (did you mean event?)"},
		"indexed":       {"function main(e)\n return strng.upper(e.a) end", "s.lua:2: the global strng is never set (did you mean string?)"},
		"module":        {"function main(e)\n log.info(e)\n return e end", `s.lua:2: the global log is never set (write: local log = require "log")`},
		"own module":    {"function main(e) return geo.find(e) end", `s.lua:1: the global geo is never set (write: local geo = require "geo")`},
		"once":          {"function main(e)\n zyx(e)\n zyx(e)\n return e end", "s.lua:2: the global zyx is never set"},
		"out of scope":  {"function main(e)\n do local qwerty = 1 end\n return qwerty end", "s.lua:3: the global qwerty is never set"},
		"or":            {"function main(e) return (e.a or zyx) end", "s.lua:1: the global zyx is never set"},
		"method":        {"function main(e) zyx:go() return e end", "s.lua:1: the global zyx is never set"},
		"forbidden":     {"function main(e) return io.open(e.a) end", "s.lua:1: the global io is never set (scripts run in a sandbox without it)"},
		"sink":          {"function main(e)\n return to('audti', e), to('orders', e)\nend", `s.lua:2: SINK`},
		"list of sinks": {"function main(e) return to({'audit', 'odrers'}, e) end", `s.lua:1: SINK`},
		"missing module": {"local x = require 'jsn'\nfunction main(e) return e end",
			"s.lua:1: MODULE"},
		"in a required file": {"local lib = require 'lib.a'\nfunction main(e) return lib.f(e) end\n-- lib/a.lua --\nlocal M = {}\nfunction M.f(e) return zyx(e) end\nreturn M\n",
			"lib/a.lua:2: the global zyx is never set"},
	} {
		t.Run(name, func(t *testing.T) {
			got := findings(c.text, script.Options{Sinks: sinks, Modules: []script.Module{{Name: "geo"}}})
			if want, general := strings.CutSuffix(c.want, "SINK"); general {
				if !strings.HasPrefix(got, want) || !strings.Contains(got, "sink") || !strings.Contains(got, "did you mean") || strings.Contains(got, "\n") {
					t.Errorf("found %q, want an unknown sink at %s", got, want)
				}
				return
			}
			if want, general := strings.CutSuffix(c.want, "MODULE"); general {
				if !strings.HasPrefix(got, want) || !strings.Contains(got, "module") {
					t.Errorf("found %q, want an unknown module at %s", got, want)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckReportsNothingCorrect(t *testing.T) {
	for name, text := range map[string]string{
		"globals":          "count = 0\nfunction helper(x) return x + count end\nfunction main(e) return helper(e) end",
		"set later":        "function main(e) return later(e) end\nfunction later(e) return e end",
		"tested":           "function main(e) if jit then e.a = 1 end local b = bit32 or {} local c = not zyx and zyx == nil return e end",
		"type":             "function main(e) e.kind = type(zyx) return e end",
		"recursive local":  "local function f(n) return n == 0 and 0 or f(n - 1) end\nlocal g = function(n) return g end\nfunction main(e) return f(1) end",
		"loops":            "function main(e) for i = 1, 3 do e[i] = i end for k, v in pairs(e) do e[k] = v end repeat local done = true until done return e end",
		"method":           "local T = {} function T:go() return self end function T.stop(...) return ... end\nfunction main(e) return T.stop(T:go()) end",
		"varargs":          "function main(...) local e = ... return e end",
		"goto":             "function main(e) for i = 1, 2 do if i == 1 then goto continue end e.a = i ::continue:: end return e end",
		"_G.name":          "_G.zyx = 1\nfunction main(e) e.a = zyx e.b = _G.absent return e end",
		"_G by expression": "for _, n in ipairs({'a', 'b'}) do _G[n .. 'x'] = 1 end\nfunction main(e) return ax end",
		"_G under a name":  "local env = _G env.zyx = 1\nfunction main(e) return zyx end",
		"syntax of LuaJIT": "local big = 42LL\nfunction main(e) return zyx(0x1p4) end",
		"bad syntax":       "function main(e",
		"computed require": "local name = 'lib' require(name)\nfunction main(e) return zyx end",
		"optional module":  "local ok = pcall(require, 'zyx')\nfunction main(e) return zyx end",
		"set by a file":    "require 'lib'\nfunction main(e) return zyx(e) end\n-- lib.lua --\nfunction zyx(e) return e end\n",
		"own to":           "local function to(a, b) return b end\nfunction main(e) return to('nowhere', e) end",
		"own global to":    "function to(a, b) return b end\nfunction main(e) return to('nowhere', e) end",
		"computed sink":    "function main(e) return to(e.sink, e), to({e.a, 'audit'}, e) end",
		"modules":          "local log, re = require 'log', require 're'\nfunction main(e) log.info(re, string, table, math, json, os.time()) return to('audit', e) end",
	} {
		t.Run(name, func(t *testing.T) {
			if got := findings(text, script.Options{Sinks: sinks}); got != "" {
				t.Errorf("found %s", got)
			}
		})
	}
}

// TestStateModules checks a script of a pipeline with a state.
func TestStateModules(t *testing.T) {
	const text = "local window, timers = require 'window', require 'timer'\nfunction main(e) return window.x(e, timers) end\nfunction timer(key) return key end"
	if got := findings(text, script.Options{Sinks: sinks, Extension: lua.ForState()}); got != "" {
		t.Errorf("found %s", got)
	}
	if got := findings(text, script.Options{Sinks: sinks}); !strings.Contains(got, "module window is for scripts of pipelines with a state") {
		t.Errorf("without a state it found %q", got)
	}
}

func TestColumnsRouteNowhere(t *testing.T) {
	got := findings("function main(row) return to('audit', row) end", script.Options{ReturnsValue: true, Sinks: []script.Sink{{}}})
	if !strings.HasPrefix(got, "s.lua:1: the global to is never set") {
		t.Errorf("found %q", got)
	}
}

// TestScriptsOfTheRepository: the scripts of the conformance suite and of the examples are full
// of what Lua allows.
func TestScriptsOfTheRepository(t *testing.T) {
	checked := 0
	check := func(name, text string) {
		checked++
		for _, fault := range Check(script.Code{Name: name, Text: []byte(text), Files: func(string) ([]byte, error) { return nil, fs.ErrNotExist }}, script.Options{Sinks: sinks}) {
			if strings.Contains(fault.Message, "never set") && !strings.Contains(fault.Message, "global missing ") && !strings.Contains(name, "not required") {
				t.Errorf("%v", fault)
			}
		}
	}
	for _, folder := range []string{"../scripttest/testdata", "../../examples"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			switch filepath.Ext(path) {
			case ".lua":
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				check(path, string(text))
			case ".txtar":
				archive, err := txtar.ParseFile(path)
				if err != nil {
					return err
				}
				for _, f := range archive.Files {
					if filepath.Ext(f.Name) == ".lua" {
						check(fmt.Sprint(path, "/", f.Name), string(f.Data))
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 100 {
		t.Errorf("checked %d scripts", checked)
	}
}

// TestGlobals: gopherlua has what the check takes for known, but for what only LuaJIT has.
func TestGlobals(t *testing.T) {
	for _, name := range Globals() {
		if name == "_VERSION" || name == "bit" || name == "rawlen" {
			continue
		}
		text := fmt.Sprintf("assert(%s ~= nil)\nfunction main(e) return e end", name)
		s, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "s.lua", Text: []byte(text)}, script.Options{Sinks: sinks})
		if err != nil {
			t.Error(name, err)
			continue
		}
		_ = s.Close()
	}
}
