package stdlib

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/script"
)

// Bounds that keep one call short: RE2 takes time linear in both lengths, and
// nothing stops a match that is under way.
const (
	patternMax  = 4 << 10 // bytes
	subjectMax  = 1 << 20 // bytes
	matchesMax  = 100_000 // of one call
	patternsMax = 256     // compiled ones that are kept
)

// reModule returns the functions for RE2 expressions. The text comes first, as in the
// library string.
func reModule() script.Module {
	p := &patterns{byText: make(map[string]*list.Element), recent: list.New()}
	return script.Module{Name: "re", Pure: map[string]script.Func{
		"all":     p.function(all),
		"find":    p.function(find),
		"match":   p.function(match),
		"replace": p.function(replace),
		"split":   p.function(split),
		"test":    p.function(test),
	}}
}

// patterns caches compiled expressions.
type patterns struct {
	mu     sync.Mutex
	byText map[string]*list.Element // of *regexp.Regexp
	recent *list.List               // the one used last is in front
}

func (p *patterns) compile(pattern string) (*regexp.Regexp, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.byText[pattern]; e != nil {
		p.recent.MoveToFront(e)
		return e.Value.(*regexp.Regexp), nil
	}
	if len(pattern) > patternMax {
		return nil, fmt.Errorf("the pattern has %d bytes; at most %d are allowed", len(pattern), patternMax)
	}
	r, err := regexp.Compile(pattern)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	p.byText[pattern] = p.recent.PushFront(r)
	if p.recent.Len() > patternsMax {
		oldest := p.recent.Remove(p.recent.Back()).(*regexp.Regexp)
		delete(p.byText, oldest.String())
	}
	return r, nil
}

// function wraps f(text, pattern, …) for scripts. rest are the arguments after these
// two.
func (p *patterns) function(f func(r *regexp.Regexp, s string, rest []any) ([]any, error)) script.Func {
	return func(_ context.Context, args []any) ([]any, error) {
		s, err := text(args, 0)
		if err != nil {
			return nil, err
		}
		pattern, err := text(args, 1)
		if err != nil {
			return nil, err
		}
		if len(s) > subjectMax {
			return nil, fmt.Errorf("the text has %d bytes; at most %d can be searched", len(s), subjectMax)
		}
		r, err := p.compile(pattern)
		if err != nil {
			return nil, err
		}
		return f(r, s, args[2:])
	}
}

// captures returns the groups of a match, nil for a group that did not take part.
// Without groups it returns the whole match.
func captures(s string, at []int) []any {
	if len(at) > 2 {
		at = at[2:]
	}
	values := make([]any, len(at)/2)
	for i := range values {
		if at[2*i] >= 0 {
			values[i] = s[at[2*i]:at[2*i+1]]
		}
	}
	return values
}

// match is match(text, pattern): the captures, or nil.
func match(r *regexp.Regexp, s string, _ []any) ([]any, error) {
	at := r.FindStringSubmatchIndex(s)
	if at == nil {
		return one(nil), nil
	}
	return captures(s, at), nil
}

func test(r *regexp.Regexp, s string, _ []any) ([]any, error) { return one(r.MatchString(s)), nil }

// find is find(text, pattern, [from]): first and last byte, and the groups. ^ and \b
// take from for the beginning of the text.
func find(r *regexp.Regexp, s string, rest []any) ([]any, error) {
	from, err := optional(rest, 0, 1)
	if err != nil {
		return nil, errors.New("argument 3, where to start, must be a number")
	}
	if from < 0 {
		from += float64(len(s)) + 1
	}
	start := int(max(from, 1)) - 1
	if start > len(s) {
		return one(nil), nil
	}
	at := r.FindStringSubmatchIndex(s[start:])
	if at == nil {
		return one(nil), nil
	}
	values := []any{float64(start + at[0] + 1), float64(start + at[1])}
	if len(at) > 2 {
		values = append(values, captures(s[start:], at)...)
	}
	return values, nil
}

// matches returns at most as many matches as argument i of rest says, or all.
func matches(r *regexp.Regexp, s string, rest []any, i int) ([][]int, error) {
	n, err := optional(rest, i, -1)
	if err != nil {
		return nil, fmt.Errorf("argument %d, how many at most, must be a number", i+3)
	}
	if n < 0 || n > matchesMax {
		n = matchesMax + 1
	}
	found := r.FindAllStringSubmatchIndex(s, int(n))
	if len(found) > matchesMax {
		return nil, fmt.Errorf("more than %d matches", matchesMax)
	}
	return found, nil
}

// all is all(text, pattern, [count]): a list of matches. Each is a string, or a list if
// the pattern has several groups.
func all(r *regexp.Regexp, s string, rest []any) ([]any, error) {
	places, err := matches(r, s, rest, 0)
	if err != nil {
		return nil, err
	}
	found := []any{}
	for _, at := range places {
		values := captures(s, at)
		if len(values) == 1 {
			found = append(found, values[0])
		} else {
			found = append(found, values)
		}
	}
	return one(found), nil
}

// replace is replace(text, pattern, replacement, [count]): the new text and the number
// of replacements. $1 or ${name} in the replacement is a group, $$ a dollar.
func replace(r *regexp.Regexp, s string, rest []any) ([]any, error) {
	with, err := text(rest, 0)
	if err != nil {
		return nil, errors.New("argument 3, the replacement, must be a string")
	}
	places, err := matches(r, s, rest, 1)
	if err != nil {
		return nil, err
	}
	var out []byte
	last := 0
	for _, at := range places {
		out = append(out, s[last:at[0]]...)
		out = r.ExpandString(out, with, s, at)
		last = at[1]
		if len(out) > subjectMax {
			return nil, fmt.Errorf("the text would grow beyond %d bytes", subjectMax)
		}
	}
	out = append(out, s[last:]...)
	return []any{string(out), float64(len(places))}, nil
}

// split is split(text, pattern, [count]): the parts between at most count matches.
func split(r *regexp.Regexp, s string, rest []any) ([]any, error) {
	places, err := matches(r, s, rest, 0)
	if err != nil {
		return nil, err
	}
	parts, last := []any{}, 0
	for _, at := range places {
		if at[1] == 0 || at[0] == len(s) && at[0] == at[1] {
			continue // nothing matched at either end parts nothing
		}
		parts = append(parts, s[last:at[0]])
		last = at[1]
	}
	return one(append(parts, s[last:])), nil
}
