package stdlib

import (
	"container/list"
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
		``, `a`, `a*`, `a*?b`, `(a|ab)(c|bcd)(d*)`, `^a|b$`, `(?m)^\w+$`, `\bfoo\b`, `\B`, `(?i)straße`, `[^a-c]+`, `(?P<x>a)(?P<y>b)?`, `(?P<x>b)?(?P<x>a)(?P<x>(?P<y>a))`,
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
		"many groups":     {"replace", []any{strings.Repeat("a", 9000), "a" + strings.Repeat("(?P<x>b)?", 100), strings.Repeat("${x}", 2000)}, context.DeadlineExceeded},
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
		"time.format": func() ([]any, error) {
			return timeModule(clockOf(nil)).Pure["format"](t.Context(), []any{0.0, template})
		},
		"os.date": func() ([]any, error) { return OS(nil).Pure["date"](t.Context(), []any{template}) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), "template") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPatternsAtTheirBounds: the largest pattern of each sort is compiled, one more is refused.
func TestPatternsAtTheirBounds(t *testing.T) {
	for name, test := range map[string]struct {
		largest, larger, want string
	}{
		"length":            {strings.Repeat("a", patternMax), strings.Repeat("a", patternMax+1), "at most 4096 are allowed"},
		"classes, folded":   {"(?i)" + strings.Repeat("[a]", foldedMax), "(?i)" + strings.Repeat("[a]", foldedMax+1), "has 33 classes; with (?i) at most 32"},
		"Unicode classes":   {`(?i)` + strings.Repeat(`\pL`, 8), `(?i)` + strings.Repeat(`\pL`, 16) + strings.Repeat(`\PL`, 17), "has 33 classes"},
		"folded in the end": {`(?:a)(?s)` + strings.Repeat("[a]", 40), `(?:a)` + strings.Repeat("[a]", 40) + "(?si)b", "has 40 classes"},
		"folded in a group": {`(?:a)(?s:b)` + strings.Repeat("[a]", 40), `(?s)` + strings.Repeat("[a]", 40) + "(?mi:b)", "has 40 classes"},
		"captures":          {strings.Repeat("()", 18) + strings.Repeat("x{1000}", 4) + "x{780}", strings.Repeat("()", 20) + strings.Repeat("x{1000}", 4) + "x{780}", "has 20 groups"},
		"instructions":      {strings.Repeat("x{1000}", 4), strings.Repeat("x{1000}", 5), "more than 10000 instructions"},
		"optional repeats":  {strings.Repeat("x{0,1000}", 4), strings.Repeat("x{0,1000}", 5), "more than 10000 instructions"},
		"unbounded repeats": {strings.Repeat("x{1000,}", 4), strings.Repeat("x{1000,}", 5), "more than 10000 instructions"},
		"repeated groups":   {strings.Repeat("(?:abcdefghi){100}", 9), strings.Repeat("(?:abcdefghi){100}", 11), "more than 10000 instructions"},
	} {
		if _, err := compileExpression(test.largest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := compileExpression(test.larger); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, larger: %v, want %q", name, err, test.want)
		}
	}
}

// TestGroupNames reads the names of groups in templates as package regexp does.
func TestGroupNames(t *testing.T) {
	for _, template := range []string{"$1", "$2", "$3", "$01", "$10", "$0", "${1}0", "$x", "$xy", "${x}y", "$y", "${y", "${}", "$", "$$", "$ä", "${1}${2}", "$1x", "$-1", "${x }", "$z_9"} {
		agree(t, `(?P<x>a)(?P<y>b)(?P<z_9>c)?`, "abcab", "<"+template+">")
	}
	agree(t, `(?P<ä>a)`, "a", "$ä-${ä}")
}

// TestPatternsAreKept: a pattern is compiled once as long as those after it leave room, by
// their number and by their size.
func TestPatternsAreKept(t *testing.T) {
	p := &patterns{byText: make(map[string]*list.Element), recent: list.New()}
	compile := func(pattern string) *expression {
		e, err := p.compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := compile("a")
	for i := range patternsMax - 1 {
		compile(fmt.Sprint("b", i))
	}
	if compile("a") != first || p.recent.Len() != patternsMax || len(p.byText) != patternsMax {
		t.Errorf("%d patterns are kept, of %d that may be", len(p.byText), patternsMax)
	}
	compile("c") // takes the place of the one that was used least recently
	if compile("a") != first || p.byText["b0"] != nil || p.byText["b1"] == nil || len(p.byText) != patternsMax {
		t.Errorf("%d patterns are kept; the first: %v, b0: %v", len(p.byText), p.byText["a"] != nil, p.byText["b0"] != nil)
	}
	large := strings.Repeat("x{1000}", 4)
	for i := range 10 {
		compile(large + fmt.Sprint(i))
	}
	size := 0
	for _, e := range p.byText {
		size += e.Value.(cachedPattern).size
	}
	if p.size != size || size > cachedMax || size+compile(large).size <= cachedMax || len(p.byText) >= patternsMax || p.recent.Len() != len(p.byText) {
		t.Errorf("%d patterns of size %d are kept, counted as %d", len(p.byText), size, p.size)
	}
}
