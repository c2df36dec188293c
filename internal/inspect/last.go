package inspect

import (
	"fmt"
	"slices"
)

// lastBytesMax is the maximum size of the events that a Last keeps.
const lastBytesMax = 64 << 20

// A Last keeps the last events of a stream. Only one goroutine at a time may use it.
type Last struct {
	limit  uint64
	events [][]byte // a ring once it is full
	next   int      // oldest event of the full ring
	bytes  int
}

// NewLast returns a Last that keeps limit events, at least 1.
func NewLast(limit uint64) *Last { return &Last{limit: limit} }

// Add adds a copy of an event. It fails if the kept events become too large.
func (l *Last) Add(event []byte) error {
	l.bytes += len(event)
	if uint64(len(l.events)) < l.limit {
		l.events = append(l.events, slices.Clone(event))
	} else {
		l.bytes -= len(l.events[l.next])
		l.events[l.next] = slices.Clone(event)
		l.next = (l.next + 1) % len(l.events)
	}
	if l.bytes > lastBytesMax {
		return fmt.Errorf("the last %d events have more than %d MiB: use fewer", l.limit, lastBytesMax>>20)
	}
	return nil
}

// Each passes the kept events to add, oldest first, until it returns an error.
func (l *Last) Each(add func(event []byte) error) error {
	for i := range l.events {
		if err := add(l.events[(l.next+i)%len(l.events)]); err != nil {
			return err
		}
	}
	return nil
}
