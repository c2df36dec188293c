package redis

import (
	_ "embed" // the scripts
	"fmt"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
)

//go:embed create_state.lua
var createScript string

// A keyState is the part of a key's state that every kind has.
type keyState struct {
	generation string // "" when the key has no state
	head       uint64 // position of the first event
	pipeline   string
}

// A queue knows how Redis keeps the events of a partition: as a list, as a stream, or as
// a user's scripts do. Each reader has its own. It queues commands and parses their
// replies, and waits for nothing but the connection.
type queue interface {
	// prepare is called with each new connection.
	prepare(c *resp.Conn) error

	// queueRead queues a transaction that reads the state and n events from a position
	// on, where head is the position of the first event. If anchored is set, it also
	// reads the event before them, first.
	queueRead(c *resp.Conn, head, from uint64, n int, anchored bool)

	// readSnapshot reads the reply to queueRead, up to the first event.
	readSnapshot(c *resp.Conn) (snapshot, error)

	// nextSize reads on to the next event and returns its size.
	nextSize(c *resp.Conn) (int, error)

	// appendEvent appends that event, which is at position at, and returns its
	// fingerprint.
	appendEvent(c *resp.Conn, dst []byte, at uint64) ([]byte, uint32, error)

	// queueTrim queues a compare-and-set that trims the front.
	queueTrim(c *resp.Conn, t trim)

	// readTrimReply reads its reply. source.ErrMoved says that nothing was trimmed.
	readTrimReply(c *resp.Conn) error

	// resetCommand returns the command with which a person makes all events in Redis
	// new ones.
	resetCommand(generation string, head uint64) string
}

// A walker is a queue that finds an event only from the one before it.
type walker interface {
	// startWalk starts a walk over all events from the head on.
	startWalk(now snapshot)
	// dropMarks forgets how to find the events in [first, end) except the last.
	dropMarks(first, end uint64)
	// trimmable returns the last position, at most acked, that can be trimmed to.
	trimmable(acked uint64) uint64
}

// A snapshot is the start of the reply to queueRead. The events follow it on the
// connection.
type snapshot struct {
	state   keyState
	length  int          // events from the head on
	items   int          // events that follow
	base    uint64       // position at which the generation starts
	after   entryID      // of a stream: the last trimmed entry
	removed int          // of a stream: entries that others removed after it; -1: it is another stream
	holes   event.Ranges // of a stream: positions whose events are lost
}

// A trim removes the events before position to, if the state is still the expected one.
type trim struct {
	expected   keyState
	to         uint64
	generation string // the generation that then starts; "" for none
}

func readState(c *resp.Conn) (s keyState, err error) {
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
		return s, invalidState("head", head)
	}
	return s, nil
}

func invalidState(field, value string) error {
	return &event.PermanentError{
		Err:  fmt.Errorf("invalid %s %q in the state", field, value),
		Hint: "another client wrote to the key that ends in " + stateSuffix + ": restore it, or delete it to read all events in Redis as new ones",
	}
}

// readExecHeader reads the reply to a transaction with this number of commands, up to
// the reply to the first one.
func readExecHeader(c *resp.Conn, commands int) error {
	for range 1 + commands { // OK and QUEUED
		if _, err := c.ReadHeader('+'); err != nil {
			return err
		}
	}
	_, err := c.ReadLength('*')
	return err
}

// readTrimDone reads the 1 or 0 that a compare-and-set script returns.
func readTrimDone(c *resp.Conn) error {
	n, err := c.ReadLength(':')
	if err == nil && n == 0 {
		return source.ErrMoved
	}
	return err
}
