package stdlib

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// agree compares an expression with package regexp on a text.
func agree(t *testing.T, pattern, s, template string) {
	t.Helper()
	want, err := regexp.Compile(pattern)
	e, failed := compileExpression(pattern)
	if (err == nil) != (failed == nil) {
		if failed != nil && strings.Contains(failed.Error(), "pattern") {
			return // beyond our bounds
		}
		t.Fatalf("%q: regexp says %v, we say %v", pattern, err, failed)
	}
	if err != nil {
		return
	}
	m := newMatcher(e)
	m.proceed = func() error { return nil }
	all := [][]int{}
	if err := m.findAll(s, 1000, func(at []int) error { all = append(all, append([]int{}, at...)); return nil }); err != nil {
		t.Fatal(err)
	}
	if got, wanted := fmt.Sprint(all), fmt.Sprint(append([][]int{}, want.FindAllStringSubmatchIndex(s, 1000)...)); got != wanted {
		t.Errorf("%q in %q: matches %s, want %s", pattern, s, got, wanted)
	}
	at, _ := m.find(s, 0, false)
	if (at != nil) != want.MatchString(s) {
		t.Errorf("%q in %q: test is %v", pattern, s, at != nil)
	}
	got, err := reModule().Pure["replace"](context.Background(), []any{s, pattern, template})
	if err == nil && got[0] != want.ReplaceAllString(s, template) {
		t.Errorf("%q in %q by %q: %q, want %q", pattern, s, template, got[0], want.ReplaceAllString(s, template))
	}
}

func FuzzExpression(f *testing.F) {
	for _, pattern := range []string{
		``, `a`, `a*`, `a*?b`, `(a|ab)(c|bcd)(d*)`, `^a|b$`, `(?m)^\w+$`, `\bfoo\b`, `\B`, `(?i)straße`, `[^a-c]+`, `(?P<x>a)(?P<y>b)?`,
		`(a*)*`, `(a*)+?`, `x{2,5}`, `(?s).+`, `.`, `\pL\d`, `abc`, `abc|abd`, `(?:)`, `$`, `^`, `\z`, `(|a)*`, `a??`,
	} {
		for _, s := range []string{"", "a", "aaab", "abcd", "foo bar\nbaz", "\xffa\xc3", "STRASSE straße", "xxxxxxx", "ab ab", "é1"} {
			f.Add(pattern, s, "<$1-$0-${x}$$$y$>")
		}
	}
	f.Fuzz(agree)
}

// TestExpressionsAreStopped runs matches that would take half a minute, and results of a gigabyte.
func TestExpressionsAreStopped(t *testing.T) {
	quantifiers := strings.Repeat("(?:x?){9}", 30)
	for name, c := range map[string]struct {
		function string
		args     []any
		want     error
	}{
		"one match":       {"match", []any{strings.Repeat("x", 1<<20), strings.Repeat("x?", 1000) + strings.Repeat("x", 500) + "y"}, context.DeadlineExceeded},
		"one test":        {"test", []any{strings.Repeat("x", 1<<20), quantifiers + "y"}, context.DeadlineExceeded},
		"quadratic all":   {"all", []any{strings.Repeat("a", 90_000), "a*b|a"}, context.DeadlineExceeded},
		"quadratic split": {"split", []any{strings.Repeat("a", 90_000), "a*b|a"}, context.DeadlineExceeded},
		"replace":         {"replace", []any{strings.Repeat("a", 90_000), "a*b|a", "$0"}, context.DeadlineExceeded},
		"groups":          {"all", []any{strings.Repeat("a", 90_000), "a" + strings.Repeat("()", 150)}, script.ErrMemory},
		"long captures":   {"match", []any{strings.Repeat("a", 1<<20), "((((((((((((((((a*))))))))))))))))"}, script.ErrMemory},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			ctx := &limited{Context: t.Context(), until: start.Add(100 * time.Millisecond), left: 8 << 20}
			if c.want == script.ErrMemory {
				ctx.until = start.Add(time.Minute)
			}
			_, err := reModule().Pure[c.function](ctx, c.args)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("stopped after %v", took)
			}
		})
	}
}

// A limited context is that of a script with little time and memory.
type limited struct {
	context.Context
	until time.Time
	left  int
}

func (c *limited) MemoryLeft() int { return c.left }

func (c *limited) Err() error {
	if time.Now().After(c.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// TestPatternsAreRefused gives patterns that are small and compile to much.
func TestPatternsAreRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		strings.Repeat("x{1000}", 20): "instructions",
		"(((a{100}){100}){100}){100}": "repeat",
		strings.Repeat("()", 1000):    "groups",
		strings.Repeat(`\pL`, 1000):   "instructions",
	} {
		if _, err := compileExpression(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", pattern, err, want)
		}
	}
}

// TestHashIsStopped hashes more than there is time for.
func TestHashIsStopped(t *testing.T) {
	s := strings.Repeat("x", 8<<20)
	for name, f := range hashModule().Pure {
		if name == "murmur3" {
			continue // 64 MiB take it 50 ms
		}
		args := []any{s}
		if name == "hmac" {
			args = []any{"sha512", s, s}
		}
		ctx := &limited{Context: t.Context(), until: time.Now()}
		if _, err := f(ctx, args); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTemplatesAreBounded formats a time by a template that would give a gigabyte.
func TestTemplatesAreBounded(t *testing.T) {
	template := strings.Repeat("%c", 1<<20)
	for name, call := range map[string]func() ([]any, error){
		"time.format": func() ([]any, error) { return timeModule().Pure["format"](t.Context(), []any{0.0, template}) },
		"os.date":     func() ([]any, error) { return OS().Pure["date"](t.Context(), []any{template}) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), "template") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
