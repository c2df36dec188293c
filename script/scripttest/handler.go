package scripttest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/script"
)

// TestHandler tests the handler of an engine for Lua, as TalariaDB's scripts use it.
func TestHandler(t *testing.T, h script.Handler) {
	if got := h.String(); got != "lua" {
		t.Errorf("the handler is called %q, want lua", got)
	}
	if _, err := h.Value(map[string]any{}); err == nil {
		t.Error("a handler with nothing loaded gave a value")
	}
	for _, c := range computations {
		t.Run(c.name, func(t *testing.T) {
			loaded, err := h.Load(c.code)
			if err != nil {
				t.Fatal(err)
			}
			defer closeHandler(t, loaded)
			row := map[string]any{"a": 1, "b": "hello", "f": 2.5, "l": []any{true, nil}, "m": map[string]any{"x": int64(9007199254740993)}}
			got, err := loaded.Value(row)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
			if len(row) != 5 || row["a"] != 1 {
				t.Errorf("the row was changed: %v", row)
			}
		})
	}
	t.Run("files", func(t *testing.T) { testHandlerFiles(t, h) })
	t.Run("faults", func(t *testing.T) { testHandlerFaults(t, h) })
	t.Run("at the same time", func(t *testing.T) { testHandlerConcurrent(t, h) })
}

var computations = []struct {
	name, code string
	want       any
}{
	{"json", "local json = require(\"json\")\n\nfunction main(row)\n\treturn json.encode({a = row.a, b = row.b})\nend", `{"a":1,"b":"hello"}`},
	{"one line", `function main(row) return row.b .. "!" end`, "hello!"},
	{"file name", `function main(row) local time = require("time") return time.format(row.a, "year=%Y/month=%m/day=%d/") .. row.b .. ".orc" end`, "year=1970/month=01/day=01/hello.orc"},
	{"whole number", `function main(row) return row.a + 1 end`, 2.0},
	{"fraction", `function main(row) return row.f end`, 2.5},
	{"boolean", `function main(row) return row.l[1] end`, true},
	{"nothing", `function main(row) end`, nil},
	{"nil", `function main(row) return row.none end`, nil},
	{"list", `function main(row) return {1, "x"} end`, []any{1.0, "x"}},
	{"table", `function main(row) return {x = {}} end`, map[string]any{"x": map[string]any{}}},
	{"large number", `function main(row) return row.m.x end`, int64(9007199254740993)},
	{"changed row", `function main(row) row.a = nil row.l = nil row.m = nil row.f = nil return row end`, map[string]any{"b": "hello"}},
}

func testHandlerFiles(t *testing.T, h script.Handler) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("helper.lua", "return {greet = function(s) return 'hi ' .. s end}")
	path := write("main.lua", "local helper = require 'helper'\nfunction main(row) return helper.greet(row.b) end")
	for _, uri := range []string{path, "file://" + path} {
		loaded, err := h.Load(uri)
		if err != nil {
			t.Fatal(err)
		}
		defer closeHandler(t, loaded)
		if got, err := loaded.Value(map[string]any{"b": "ann"}); got != "hi ann" || err != nil {
			t.Errorf("%s gave %v, %v", uri, got, err)
		}
	}
	for _, uri := range []string{filepath.Join(folder, "missing.lua"), "s3://bucket/key.lua", "https://example.org/x.lua"} {
		if _, err := h.Load(uri); err == nil {
			t.Errorf("%s was loaded", uri)
		}
	}
}

func testHandlerFaults(t *testing.T, h script.Handler) {
	if _, err := h.Load("function main(row) return end end"); err == nil {
		t.Error("code with a fault was loaded")
	}
	loaded, err := h.Load("function main(row)\n  return row.x.y\nend")
	if err != nil {
		t.Fatal(err)
	}
	defer closeHandler(t, loaded)
	_, err = loaded.Value(map[string]any{})
	var fault *script.Error
	if !errors.As(err, &fault) || fault.Line != 2 || !strings.Contains(fault.Message, "nil") {
		t.Errorf("error is %v, want one in line 2", err)
	}
	if _, err := loaded.Value(map[string]any{"f": func() {}}); err == nil {
		t.Error("a row with a function was taken")
	}
}

func testHandlerConcurrent(t *testing.T, h script.Handler) {
	loaded, err := h.Load("function main(row) return row.n * 2 end")
	if err != nil {
		t.Fatal(err)
	}
	defer closeHandler(t, loaded)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 50 {
				n := float64(g*1000 + i)
				if got, err := loaded.Value(map[string]any{"n": n}); got != 2*n || err != nil {
					t.Errorf("%v gave %v, %v", n, got, err)
				}
			}
		})
	}
	group.Wait()
}

func closeHandler(t *testing.T, h script.Handler) {
	t.Helper()
	if err := h.(io.Closer).Close(); err != nil {
		t.Error(err)
	}
}
