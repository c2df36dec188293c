package stdlib

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/script"
)

// Bounds of one call, and of the cache.
const (
	subjectMax  = 1 << 20 // bytes
	matchesMax  = 100_000
	patternsMax = 256    // compiled ones that are kept,
	cachedMax   = 50_000 // and their instructions, of about 50 bytes each
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
	byText map[string]*list.Element // of cachedPattern
	recent *list.List               // the one used last is in front
	size   int                      // of all programs
}

type cachedPattern struct {
	text string
	*expression
}

func (p *patterns) compile(pattern string) (*expression, error) {
	if e := p.cached(pattern); e != nil {
		return e, nil
	}
	e, err := compileExpression(pattern)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byText[pattern] == nil {
		p.byText[strings.Clone(pattern)] = p.recent.PushFront(cachedPattern{pattern, e})
		p.size += e.size
	}
	for p.recent.Len() > patternsMax || p.size > cachedMax {
		oldest := p.recent.Remove(p.recent.Back()).(cachedPattern)
		delete(p.byText, oldest.text)
		p.size -= oldest.size
	}
	return e, nil
}

func (p *patterns) cached(pattern string) *expression {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.byText[pattern]
	if e == nil {
		return nil
	}
	p.recent.MoveToFront(e)
	return e.Value.(cachedPattern).expression
}

// A search is one call of a function of the module.
type search struct {
	*matcher
	s    string
	rest []any // the arguments after the text and the pattern
	left int   // bytes that the results may still have
}

// function wraps f(text, pattern, …) for scripts.
func (p *patterns) function(f func(*search) ([]any, error)) script.Func {
	return func(ctx context.Context, args []any) ([]any, error) {
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
		e, err := p.compile(pattern)
		if err != nil {
			return nil, err
		}
		m := e.matchers.Get().(*matcher)
		defer e.matchers.Put(m)
		m.steps, m.proceed = 0, ctx.Err
		defer func() { m.proceed = nil }()
		return f(&search{matcher: m, s: s, rest: args[2:], left: script.MemoryLeft(ctx)})
	}
}

// valueSize is what a value takes besides its bytes, here and in the script.
const valueSize = 64

// spend takes the memory of a value from what is left.
func (c *search) spend(bytes int) error {
	if c.left -= bytes + valueSize; c.left < 0 {
		return script.ErrMemory
	}
	return nil
}

// captures returns the groups of a match, nil for a group that did not take part.
// Without groups it returns the whole match.
func (c *search) captures(at []int) ([]any, error) {
	if len(at) > 2 {
		at = at[2:]
	}
	if err := c.spend(len(at) / 2 * valueSize); err != nil {
		return nil, err
	}
	values := make([]any, len(at)/2)
	for i := range values {
		if at[2*i] < 0 {
			continue
		}
		if err := c.spend(at[2*i+1] - at[2*i]); err != nil {
			return nil, err
		}
		values[i] = c.s[at[2*i]:at[2*i+1]]
	}
	return values, nil
}

// match is match(text, pattern): the captures, or nil.
func match(c *search) ([]any, error) {
	at, err := c.find(c.s, 0, true)
	if err != nil {
		return nil, err
	}
	if at == nil {
		return one(nil), nil
	}
	return c.captures(at)
}

func test(c *search) ([]any, error) {
	at, err := c.find(c.s, 0, false)
	return one(at != nil), err
}

// find is find(text, pattern, [from]): first and last byte, and the groups. ^ and \b
// take from for the beginning of the text.
func find(c *search) ([]any, error) {
	from, err := optional(c.rest, 0, 1)
	if err != nil {
		return nil, errors.New("argument 3, where to start, must be a number")
	}
	if from < 0 {
		from += float64(len(c.s)) + 1
	}
	if from > float64(len(c.s)+1) {
		return one(nil), nil
	}
	start := int(max(from, 1)) - 1
	c.s = c.s[start:]
	at, err := c.find(c.s, 0, true)
	if err != nil {
		return nil, err
	}
	if at == nil {
		return one(nil), nil
	}
	values := []any{float64(start + at[0] + 1), float64(start + at[1])}
	if len(at) == 2 {
		return values, nil
	}
	groups, err := c.captures(at)
	return append(values, groups...), err
}

// matches calls found for at most as many matches as argument i of rest says, or all.
func (c *search) matches(i int, found func(at []int) error) error {
	n, err := optional(c.rest, i, -1)
	if err != nil {
		return fmt.Errorf("argument %d, how many at most, must be a number", i+3)
	}
	if !(n >= 0 && n <= matchesMax) {
		n = matchesMax + 1
	}
	count := 0
	return c.findAll(c.s, int(n), func(at []int) error {
		if count++; count > matchesMax {
			return fmt.Errorf("more than %d matches", matchesMax)
		}
		return found(at)
	})
}

// all is all(text, pattern, [count]): a list of matches. Each is a string, or a list if
// the pattern has several groups.
func all(c *search) ([]any, error) {
	found := []any{}
	err := c.matches(0, func(at []int) error {
		values, err := c.captures(at)
		if len(values) == 1 {
			found = append(found, values[0])
		} else {
			found = append(found, values)
		}
		return err
	})
	return one(found), err
}

// replace is replace(text, pattern, replacement, [count]): the new text and the number
// of replacements. $1 or ${name} in the replacement is a group, $$ a dollar.
func replace(c *search) ([]any, error) {
	template, err := text(c.rest, 0)
	if err != nil {
		return nil, errors.New("argument 3, the replacement, must be a string")
	}
	if len(template) > subjectMax {
		return nil, fmt.Errorf("the replacement has %d bytes; at most %d are allowed", len(template), subjectMax)
	}
	with := c.e.parseReplacement(template)
	var out []byte
	last, count := 0, 0
	add := func(s string) error {
		if len(out)+len(s) > subjectMax {
			return fmt.Errorf("the text would grow beyond %d bytes", subjectMax)
		}
		out = append(out, s...)
		return nil
	}
	err = c.matches(1, func(at []int) error {
		if err := add(c.s[last:at[0]]); err != nil {
			return err
		}
		count++
		last = at[1]
		c.steps += with.tries
		for i, text := range with.texts {
			if err := add(text); err != nil {
				return err
			}
			begin, end := with.group(i, at)
			if err := add(c.s[begin:end]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = add(c.s[last:])
	}
	if err == nil {
		err = c.spend(2 * len(out))
	}
	return []any{string(out), float64(count)}, err
}

// split is split(text, pattern, [count]): the parts between at most count matches.
func split(c *search) ([]any, error) {
	parts, last := []any{}, 0
	err := c.matches(0, func(at []int) error {
		if at[1] == 0 || at[0] == len(c.s) && at[0] == at[1] {
			return nil // nothing matched at either end parts nothing
		}
		parts = append(parts, c.s[last:at[0]])
		err := c.spend(at[0] - last)
		last = at[1]
		return err
	})
	return one(append(parts, c.s[last:])), err
}
