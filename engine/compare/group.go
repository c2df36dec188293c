package compare

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// Bounds of what a Comparison keeps.
const (
	groupsMax    = 100
	examplesMax  = 3
	textBytesMax = 2 << 10 // of an example and of a message
	pathBytesMax = 200
	depthMax     = 16 // deeper values are compared as a whole
)

// A key names a group.
type key struct {
	kind   Kind
	field  string
	detail string
	sink   int // -1 if the group is of all sinks
	stored bool
}

// A counter counts the events of a group.
type counter struct {
	Group
	last  uint64 // event that was counted last
	sinks uint64 // a bit for each
}

// groups are the differences by what they are.
type groups struct {
	byKey   map[key]*counter
	omitted uint64 // events with a difference that has no group
	last    uint64 // event that was omitted last
}

// find returns the group of a difference of an event, which it counts. It returns nil if there are
// too many groups, and more is false if the group has enough examples, or one of this event.
func (g *groups) find(k key, number uint64) (c *counter, more bool) {
	c = g.byKey[k]
	if c == nil {
		if len(g.byKey) == groupsMax {
			if g.last != number {
				g.omitted, g.last = g.omitted+1, number
			}
			return nil, false
		}
		if g.byKey == nil {
			g.byKey = map[key]*counter{}
		}
		c = &counter{}
		g.byKey[k] = c
	}
	if c.last == number {
		return c, false
	}
	c.Events, c.last = c.Events+1, number
	return c, len(c.Examples) < examplesMax
}

// sortedGroups returns the groups, those of lost events first, and then by their number of events.
func (d *differ) sortedGroups() []Group {
	var all []Group
	for k, c := range d.byKey {
		g := c.Group
		g.Kind, g.Field, g.Unstored = k.kind, k.field, !k.stored
		for i, s := range d.sinks {
			if c.sinks&(1<<i) != 0 {
				g.Sinks = append(g.Sinks, s.Name)
			}
		}
		g.AllSinks = len(g.Sinks) == 0 || len(g.Sinks) == len(d.sinks)
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Kind.rank(), b.Kind.rank()), cmp.Compare(b.Events, a.Events),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail), slices.Compare(a.Sinks, b.Sinks))
	})
	return all
}

// shorten returns a text of at most n bytes, cut between characters.
func shorten(text []byte, n int) string {
	if len(text) <= n {
		return string(text)
	}
	n -= len("…")
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return string(text[:n]) + "…"
}
