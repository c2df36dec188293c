package redis

import (
	_ "embed" // the scripts
	"fmt"
	"strconv"

	"github.com/perigeedb/perigee/source"
)

//go:embed create.lua
var createScript string

//go:embed advance.lua
var advanceScript string

// A state is what stands beside a list.
type state struct {
	generation string // "" when nothing stands there
	head       uint64 // position of the list's first item
	pipeline   string
}

// A peek is the head of a reply: the items themselves follow it on the connection.
type peek struct {
	state  state
	length int // of the whole list
	items  int // that follow
}

// askPeek queues a look at the state and at items of the list, from one index to
// before another, all of the same moment.
func (c *conn) askPeek(s *Source, from, to int) {
	c.command("MULTI")
	c.command("HMGET", s.state, "generation", "head", "pipeline")
	c.command("LLEN", s.config.List)
	if to > from {
		c.command("LRANGE", s.config.List, strconv.Itoa(from), strconv.Itoa(to-1))
	} else {
		c.command("LRANGE", s.config.List, "1", "0") // no item
	}
	c.command("EXEC")
}

// readPeek reads the reply to askPeek up to the first item.
func (c *conn) readPeek() (p peek, err error) {
	for range 4 { // OK and QUEUED
		if _, err = c.line('+'); err != nil {
			return p, err
		}
	}
	if _, err = c.number('*'); err != nil {
		return p, err
	}
	if p.state, err = c.readState(); err != nil {
		return p, err
	}
	if p.length, err = c.number(':'); err != nil {
		return p, err
	}
	p.items, err = c.number('*')
	return p, err
}

func (c *conn) readState() (s state, err error) {
	if _, err = c.number('*'); err != nil {
		return s, err
	}
	var head string
	for _, field := range []*string{&s.generation, &head, &s.pipeline} {
		if *field, err = c.text(); err != nil {
			return s, err
		}
	}
	if s.generation == "" {
		return s, nil
	}
	if s.head, err = strconv.ParseUint(head, 10, 64); err != nil {
		return s, &source.PermanentError{
			Err:  fmt.Errorf("the state beside the list has head %q, which is no position", head),
			Hint: "somebody has written to the key that ends in :perigee; restore it, or delete it to begin again with what is in the list",
		}
	}
	return s, nil
}

// askAdvance queues the trim of count items, into a new generation if there is one.
func (c *conn) askAdvance(r *reader, count uint64, generation string) {
	c.eval(advanceScript, []string{r.source.config.List, r.source.state},
		r.generation, strconv.FormatUint(r.head, 10), strconv.FormatUint(count, 10), generation)
}

// readAdvance reads the reply to askAdvance.
func (c *conn) readAdvance() error {
	n, err := c.number(':')
	if err == nil && n == 0 {
		return source.ErrMoved
	}
	return err
}
