package redis

import (
	_ "embed" // the scripts
	"fmt"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
)

//go:embed create.lua
var createScript string

// A state is what stands beside a key.
type state struct {
	generation string // "" when nothing stands there
	head       uint64 // position of the first event
	pipeline   string
}

// A queue is the form in which Redis holds the events of a partition: a list, a
// stream, or what a user's scripts make of a key. Each reader has its own, and
// asks it for commands and for the meaning of their replies; it never waits for
// more than the connection.
type queue interface {
	// begin is told of each new connection.
	begin(c *resp.Conn) error

	// ask queues a look at the state and at n events from a position on, all of
	// the same moment; head is the position of the first event by then. When it is
	// anchored, the event before them comes first.
	ask(c *resp.Conn, head, from uint64, n int, anchored bool)

	// answer reads the reply to ask, up to the first event.
	answer(c *resp.Conn) (peek, error)

	// size reads on until the size of the next event is known.
	size(c *resp.Conn) (int, error)

	// take appends that event, which is at position at, and returns its fingerprint.
	take(c *resp.Conn, dst []byte, at uint64) ([]byte, uint32, error)

	// askAdvance queues a trim.
	askAdvance(c *resp.Conn, t trim)

	// readAdvance reads the reply; source.ErrMoved says that nothing was done.
	readAdvance(c *resp.Conn) error

	// anew is the command by which a person declares all there is to be new.
	anew(generation string, head uint64) string
}

// A walker is a queue that finds an event only by the one before it.
type walker interface {
	// start says where a walk begins that takes in all from the head on.
	start(now peek)
	// passed says that of the events in [first, end) only the last needs to be found.
	passed(first, end uint64)
	// reachable is the last position up to which can be trimmed, at most settled.
	reachable(settled uint64) uint64
}

// A peek is the head of a reply: the events themselves follow it on the connection.
type peek struct {
	state  state
	length int          // events from the head on
	items  int          // that follow
	base   uint64       // before which nothing belongs to the generation
	after  id           // of a stream: last entry that was given up
	gone   int          // of a stream: entries that somebody else removed behind after; -1: it is another stream
	holes  event.Ranges // of a stream: positions that will never be filled
}

// A trim gives up what is before position to, if the state is still was.
type trim struct {
	was        state
	to         uint64
	generation string // that begins then; empty for none
}

func readState(c *resp.Conn) (s state, err error) {
	if _, err = c.ReadLength('*'); err != nil {
		return s, err
	}
	var head string
	for _, field := range []*string{&s.generation, &head, &s.pipeline} {
		if *field, err = c.ReadString(); err != nil {
			return s, err
		}
	}
	if s.generation == "" {
		return s, nil
	}
	if s.head, err = strconv.ParseUint(head, 10, 64); err != nil {
		return s, &event.PermanentError{
			Err:  fmt.Errorf("the state has head %q, which is no position", head),
			Hint: "somebody has written to the key that ends in :perigee; restore it, or delete it to begin again with what is there",
		}
	}
	return s, nil
}

// readExec reads the head of the reply to a transaction of so many commands, up
// to the reply to the first of them.
func readExec(c *resp.Conn, commands int) error {
	for range 1 + commands { // OK and QUEUED
		if _, err := c.ReadHeader('+'); err != nil {
			return err
		}
	}
	_, err := c.ReadLength('*')
	return err
}

// readDone reads the 1 or 0 of a script that compares and sets.
func readDone(c *resp.Conn) error {
	n, err := c.ReadLength(':')
	if err == nil && n == 0 {
		return source.ErrMoved
	}
	return err
}
