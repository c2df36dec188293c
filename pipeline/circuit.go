package pipeline

import (
	"context"
	"sync"
)

// breakAfter is how many attempts in a row fail before the circuit breaks.
const breakAfter = 3

// A circuit is broken while one of those that a batch needs to be settled is in
// trouble: what would be read could only wait. Its zero value is whole.
type circuit struct {
	mu     sync.Mutex
	broken int // how many are in trouble
	mended chan struct{}
}

func (c *circuit) breakOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == 0 {
		c.mended = make(chan struct{})
	}
	c.broken++
}

func (c *circuit) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken--
	if c.broken == 0 {
		close(c.mended)
	}
}

func (c *circuit) isBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken > 0
}

// wait returns when the circuit is whole or ctx ends.
func (c *circuit) wait(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		broken, mended := c.broken > 0, c.mended
		c.mu.Unlock()
		if !broken {
			return
		}
		select {
		case <-mended:
		case <-ctx.Done():
		}
	}
}
