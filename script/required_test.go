package script

import (
	"strings"
	"testing"
)

func TestModulePath(t *testing.T) {
	long := strings.Repeat("a", moduleNameMax)
	for _, test := range []struct{ name, want string }{
		{"a", "a.lua"}, {"lib.helpers", "lib/helpers.lua"}, {"a-b_C.9", "a-b_C/9.lua"}, {long, long + ".lua"},
		{"", ""}, {".", ""}, {"..", ""}, {"a.", ""}, {".a", ""}, {"a..b", ""}, {"../a", ""}, {"a/b", ""}, {"/a", ""}, {"a\\b", ""},
		{"a\x00", ""}, {"a\n", ""}, {"ä", ""}, {"a b", ""}, {"file:", ""}, {long + "a", ""},
	} {
		path, err := ModulePath(test.name)
		if path != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q: path %q, error %v, want %q", test.name, path, err, test.want)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("the error for a name of %d bytes has %d", len(test.name), len(err.Error()))
		}
		if test.want != "" && !IsModulePath(path) {
			t.Errorf("%q is not the path of a module", path)
		}
	}
	for _, path := range []string{
		"", ".lua", "a", "a.yaml", "a.lua.yaml", "a.b.lua", "../a.lua", "./a.lua", "/a.lua", "a//b.lua", "a/../b.lua", "a/.lua", "a\x00.lua",
		".a.lua", "lib/.a.lua", "a\\b.lua", long + "a.lua", "config.yaml",
	} {
		if IsModulePath(path) {
			t.Errorf("%q is the path of a module", path)
		}
	}
}
