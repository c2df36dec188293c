package config

import "testing"

func TestLocate(t *testing.T) {
	const file = "pipelines:\n  p:\n    script: |\n      local a\n\n      function main() return a. end\n    other: |\r\n      one\r\n      two\r\n  é: \"function f() x end\"\n"
	d, _ := parse("p.yaml", file, func(string) (string, bool) { return "", false })
	for _, test := range []struct {
		name, code   string
		from         int // line of the file
		line, column int
		want         string
	}{
		{"a block", "local a\n\nfunction main() return a. end\n", 3, 3, 16, "p.yaml:6:22: fault"},
		{"a block's empty line", "local a\n\nfunction main() return a. end\n", 3, 2, 1, "p.yaml:5:7: fault"},
		{"a block of Windows", "one\ntwo\n", 7, 2, 2, "p.yaml:9:8: fault"},
		{"one line", "function f() x end", 10, 1, 14, "p.yaml:10:20: fault"},
		{"before the place", "one\ntwo\n", 10, 2, 2, "script:2:2: fault"},
		{"another block", "local a\nfunction main() return a. end\n", 1, 2, 1, "script:2:1: fault"},
		{"elsewhere", "function g() end", 1, 1, 1, "script:1:1: fault"},
		{"no line", "local a\n\nfunction main() return a. end\n", 3, 0, 0, "script: fault"},
		{"behind the code", "local a\n\nfunction main() return a. end\n", 3, 4, 1, "script:4:1: fault"},
	} {
		o := origin{d, place{test.from, 1}}
		if got := o.Locate(&Error{File: "script", Line: test.line, Column: test.column, Message: "fault"}, test.code); got.Error() != test.want {
			t.Errorf("%s: %v instead of %s", test.name, got, test.want)
		}
	}
	fault := &Error{File: "script", Line: 1, Column: 1, Message: "fault"}
	if got := (origin{}).Locate(fault, "one\n"); got != fault {
		t.Errorf("in a literal: %v", got)
	}
}
