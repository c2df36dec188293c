package stdlib

import (
	"fmt"
	"strings"
	"testing"
)

func TestRe(t *testing.T) {
	check(t, "re", []call{
		{"match", values{"k = v", `^(\w+)\s*=\s*(\w+)$`}, values{"k", "v"}, ""},
		{"match", values{"hello world", `o w`}, values{"o w"}, ""},
		{"match", values{"hello", `x`}, values{nil}, ""},
		{"match", values{"b", `(a)?b`}, values{nil}, ""},
		{"match", values{"ab", `(a)?(x)?b`}, values{"a", nil}, ""},
		{"match", values{"Ünïcödé", `(?i)ünï\pL+`}, values{"Ünïcödé"}, ""},
		{"match", values{"a", `(`}, nil, "missing closing )"},
		{"match", values{"a", `\1`}, nil, "invalid escape"},
		{"match", values{"a"}, nil, "argument 2 must be a string, not nil"},
		{"match", values{nil, "a"}, nil, "argument 1 must be a string, not nil"},
		{"match", values{"a", strings.Repeat("a", patternMax+1)}, nil, "pattern has"},
		{"match", values{strings.Repeat("a", subjectMax+1), "a"}, nil, "text has"},
		{"match", values{"a", `(a{1000}){1000}`}, nil, "repeat"},
		{"test", values{"abc", `^a.c$`}, values{true}, ""},
		{"test", values{"abc", `^b`}, values{false}, ""},
		{"find", values{"hello world", `o`}, values{5.0, 5.0}, ""},
		{"find", values{"hello world", `(o)(r)`}, values{8.0, 9.0, "o", "r"}, ""},
		{"find", values{"hello world", `o`, 6.0}, values{8.0, 8.0}, ""},
		{"find", values{"hello world", `o`, -3.0}, values{nil}, ""},
		{"find", values{"hello world", `l`, -3.0}, values{10.0, 10.0}, ""},
		{"find", values{"abc", ``, 4.0}, values{4.0, 3.0}, ""},
		{"find", values{"abc", ``, 5.0}, values{nil}, ""},
		{"find", values{"abc", ``}, values{1.0, 0.0}, ""},
		{"find", values{"abc", `a`, "x"}, nil, "argument 3"},
		{"all", values{"a1b22", `\d+`}, values{values{"1", "22"}}, ""},
		{"all", values{"a1b22", `([a-z])(\d+)`}, values{values{values{"a", "1"}, values{"b", "22"}}}, ""},
		{"all", values{"a1b22c333", `\d+`, 2.0}, values{values{"1", "22"}}, ""},
		{"all", values{"abc", `\d`}, values{values{}}, ""},
		{"all", values{"abc", `x`, true}, nil, "argument 3"},
		{"all", values{strings.Repeat("a", matchesMax+1), `a`}, nil, "more than"},
		{"replace", values{"john smith", `(\w+) (\w+)`, "$2 ${1}!"}, values{"smith john!", 1.0}, ""},
		{"replace", values{"aaa", `a`, "b", 2.0}, values{"bba", 2.0}, ""},
		{"replace", values{"abc", ``, "-"}, values{"-a-b-c-", 4.0}, ""},
		{"replace", values{"5", `\d`, "$$$0"}, values{"$5", 1.0}, ""},
		{"replace", values{"a", `x`, "y"}, values{"a", 0.0}, ""},
		{"replace", values{"a", `a`}, nil, "replacement"},
		{"replace", values{strings.Repeat("a", 1000), `a`, strings.Repeat("b", 10_000)}, nil, "grow"},
		{"split", values{"a, b,c", `,\s*`}, values{values{"a", "b", "c"}}, ""},
		{"split", values{"a,b,c", `,`, 1.0}, values{values{"a", "b,c"}}, ""},
		{"split", values{",a,", `,`}, values{values{"", "a", ""}}, ""},
		{"split", values{"abc", ``}, values{values{"a", "b", "c"}}, ""},
		{"split", values{"", `,`}, values{values{""}}, ""},
	})
}

// TestPatternsAreBounded uses more patterns than are kept, one of them always.
func TestPatternsAreBounded(t *testing.T) {
	f := reModule().Pure["test"]
	for i := range 3 * patternsMax {
		for _, pattern := range []string{fmt.Sprintf("^%d$", i), "^a$"} {
			if got, err := f(t.Context(), values{strings.Trim(pattern, "^$"), pattern}); err != nil || got[0] != true {
				t.Fatalf("%s: %v, %v", pattern, got, err)
			}
		}
	}
}
