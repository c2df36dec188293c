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
	s := NewSource(script.Code{Name: "email.lua", Text: []byte("text"), Files: files})
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
		{"broken", "disk on fire"},
		{"..secret", "no name"},
		{"../secret", "no name"},
		{"/etc/passwd", "no name"},
		{"lib/helpers", "no name"},
		{"lib.", "no name"},
		{"", "no name"},
		{"a\x00b", "no name"},
	}
	for _, test := range refused {
		if _, _, err := s.Require(test.name); err == nil || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("%q: error is %v, want %q", test.name, err, test.reason)
		}
	}
	if _, _, err := NewSource(script.Code{}).Require("lib"); err == nil || !strings.Contains(err.Error(), "no module") {
		t.Errorf("error is %v", err)
	}
}
