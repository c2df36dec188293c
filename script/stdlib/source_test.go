package stdlib

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/script"
)

func TestSource(t *testing.T) {
	reads := 0
	files := func(path string) ([]byte, error) {
		switch path {
		case "lib/helpers.lua":
			reads++
			return []byte("return 1"), nil
		case "broken.lua":
			return nil, errors.New("disk on fire")
		}
		return nil, fs.ErrNotExist
	}
	s := NewSource(script.Code{Name: "email.lua", Text: []byte("text"), Files: files}, nil)
	before := s.Version()
	for range 2 {
		if text, path, err := s.Require("lib.helpers"); string(text) != "return 1" || path != "lib/helpers.lua" || err != nil {
			t.Errorf("got %q, %q, %v", text, path, err)
		}
	}
	if reads != 1 {
		t.Errorf("the file was read %d times", reads)
	}
	if after := s.Version(); after == before || len(after) != len(before) {
		t.Errorf("the version is %s without the file and %s with it", before, after)
	}
	refused := []struct{ name, reason string }{
		{"lib.missing", "lib/missing.lua"},
		{"jsn", `did you mean "json"?`},
		{"broken", "disk on fire"},
		{"nodedb", "write state:"},
		{"timer", "write state:"},
		{"window", "write state:"},
		{"..secret", "invalid module name"},
		{"../secret", "invalid module name"},
		{"/etc/passwd", "invalid module name"},
		{"lib/helpers", "invalid module name"},
		{"lib.", "invalid module name"},
		{"", "invalid module name"},
		{"a\x00b", "invalid module name"},
	}
	for _, test := range refused {
		if _, _, err := s.Require(test.name); err == nil || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("%q: error is %v, want %q", test.name, err, test.reason)
		}
	}
	if _, _, err := NewSource(script.Code{}, nil).Require("lib"); err == nil || !strings.Contains(err.Error(), "unknown module") {
		t.Errorf("error is %v", err)
	}
}

func TestHintAtModules(t *testing.T) {
	modules, err := Modules([]script.Module{{Name: "geo"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSource(script.Code{Name: "a.lua", Text: []byte("log.info(1)\nlocal x = catalog.info\ngeo . find(x)\nx.log.y = 1")}, modules)
	for _, c := range []struct {
		line          int
		message, want string
	}{
		{1, "attempt to index global 'log' (a nil value)", `; write: local log = require "log"`},
		{1, "attempt to index a nil value with the key 'info'", `; write: local log = require "log"`},
		{1, "attempt to index a nil value with the key 'warn'", ""},
		{1, "attempt to index local 'log' (a nil value)", ""},
		{2, "attempt to index a nil value with the key 'info'", ""},
		{3, "attempt to index a nil value with the key 'find'", `; write: local geo = require "geo"`},
		{4, "attempt to index a nil value with the key 'y'", ""},
		{9, "attempt to index a nil value with the key 'y'", ""},
	} {
		if got := s.WithHint("a.lua", c.line, c.message); got != c.message+c.want {
			t.Errorf("line %d: %q becomes %q, want the hint %q", c.line, c.message, got, c.want)
		}
	}
}
