package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/source"
)

// A crew is the partitions of a pipeline at work, a goroutine for each.
type crew struct {
	p       *Pipeline
	known   map[string]bool // at work or exhausted
	working int
	ended   chan ending
	moves   pace
}

type ending struct {
	partition string
	err       error // nil: exhausted or drained
}

func newCrew(p *Pipeline) *crew {
	return &crew{p: p, known: make(map[string]bool), ended: make(chan ending)}
}

// hire starts the partitions that are new.
func (c *crew) hire(ctx context.Context, names []string) {
	for _, name := range names {
		if c.known[name] {
			continue
		}
		c.known[name] = true
		c.working++
		c.p.status.opening()
		go func() {
			err := guard(func() error { return c.p.runPartition(ctx, name) })
			c.ended <- ending{name, err}
		}()
	}
	c.p.status.hired()
}

// wait returns when all partitions have ended or one has failed. again says
// that one has moved, so that the source must be asked for partitions again.
func (c *crew) wait(ctx context.Context) (again bool, err error) {
	for c.working > 0 {
		end := <-c.ended
		c.working--
		switch {
		case errors.Is(end.err, source.ErrMoved):
			c.p.log.Warn("partition moved: asking the source for its partitions again",
				"partition", end.partition, "reason", end.err)
			delete(c.known, end.partition)
			c.pause(ctx)
			return true, nil
		case end.err != nil:
			return false, fmt.Errorf("partition %s: %w", end.partition, end.err)
		}
	}
	return false, nil
}

// pause keeps a source that moves again and again from spinning.
func (c *crew) pause(ctx context.Context) {
	reading, stop := c.p.reading(ctx)
	defer stop()
	sleep(reading, c.moves.next())
}

// dismiss waits for the partitions still at work, after their context has ended.
func (c *crew) dismiss() {
	for ; c.working > 0; c.working-- {
		<-c.ended
	}
}
