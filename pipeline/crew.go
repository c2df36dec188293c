package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// askEvery is how often the source is asked for its partitions.
const askEvery = time.Second

// A crew is the partitions of a pipeline at work, a goroutine for each. Where
// partitions are shared by lease, a share hires those that are; the crew itself
// hires all others.
type crew struct {
	p       *Pipeline
	ctx     context.Context // all work ends with it
	reading context.Context // nothing is read after its end
	shared  bool            // there is somebody to hold leases

	ended   chan ending
	answers chan answer
	failed  chan error // of the share
	asking  sync.WaitGroup
	asked   bool // and not answered yet
	endings int
	moves   pace

	mu       sync.Mutex
	listed   []string // as the source last named them; nil before it has
	finished map[string]bool
	posts    map[string]*post
}

// A post is a partition at work.
type post struct {
	partition string
	orphan    bool // only the outbox knows it any more
	leased    bool
	ctx       context.Context
	dismiss   context.CancelCauseFunc
	reading   context.Context
	drain     context.CancelFunc
	moving    atomic.Bool
}

type ending struct {
	*post
	err error // nil: exhausted or drained
}

// An answer is what the source says when it is asked for its partitions.
type answer struct {
	names   []string
	err     error
	endings int // how many posts had ended when it was asked
}

// errLeaseOver is why a post is dismissed whose lease is over or somebody else's.
var errLeaseOver = errors.New("the lease is over")

func newCrew(p *Pipeline, ctx, reading context.Context) *crew {
	return &crew{
		p: p, ctx: ctx, reading: reading,
		ended: make(chan ending), answers: make(chan answer, 1), failed: make(chan error, 1),
		finished: make(map[string]bool), posts: make(map[string]*post),
	}
}

// work returns when the source is exhausted, and all is over, when reading has
// ended and nobody is at work any more, or when something has failed for good.
func (c *crew) work() (over bool, err error) {
	ask, due := time.NewTimer(0), time.Now()
	defer ask.Stop()
	// Whatever ends brings the next question forward, and never puts it off: where
	// partitions end all the time, the source is the one who knows why.
	within := func(d time.Duration) {
		if at := time.Now().Add(d); at.Before(due) {
			due = at
			ask.Reset(d)
		}
	}
	reading := c.reading.Done()
	for {
		if c.reading.Err() != nil && c.idle() {
			return false, c.ctx.Err()
		}
		select {
		case <-ask.C:
			c.ask()
			due = time.Now().Add(askEvery)
			ask.Reset(askEvery)
		case a := <-c.answers:
			c.asked = false
			if over, err := c.see(a); over || err != nil {
				return over, err
			}
			if a.endings != c.endings && c.idle() {
				within(0) // all have ended since the source was asked
			}
		case end := <-c.ended:
			again, err := c.conclude(end)
			if err != nil {
				return false, fmt.Errorf("partition %s: %w", end.partition, err)
			}
			if again > 0 || c.idle() {
				within(again)
			}
		case err := <-c.failed:
			return false, err
		case <-reading:
			reading = nil
		}
	}
}

// ask asks the source in the background, which may take as long as it likes. It
// does not while a partition moves: what was read of it is settled first.
func (c *crew) ask() {
	if c.asked || c.reading.Err() != nil || c.anyMoving() {
		return
	}
	c.asked = true
	a := answer{endings: c.endings}
	c.asking.Go(func() {
		a.err = guard(func() (err error) {
			a.names, err = c.p.partitions(c.reading)
			return err
		})
		c.answers <- a
	})
}

// see makes the crew what the source says, and tells whether all work is done.
func (c *crew) see(a answer) (over bool, err error) {
	if a.err != nil {
		if c.reading.Err() != nil {
			return false, nil
		}
		return false, fmt.Errorf("list partitions of source: %w", a.err)
	}
	first := c.note(a.names)
	if first {
		if err := c.hireOrphans(a.names); err != nil {
			return false, err
		}
	}
	for _, name := range a.names {
		if !c.leases(name) {
			c.hire(name, &post{})
		}
	}
	c.p.status.hired()
	return !c.p.config.Source.Traits().Growing && a.endings == c.endings && c.allFinished(), nil
}

// note keeps what the source has named, and forgets what is gone.
func (c *crew) note(names []string) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = c.listed == nil
	c.listed = append([]string{}, names...)
	for name := range c.finished {
		if !slices.Contains(names, name) {
			delete(c.finished, name)
		}
	}
	return first
}

// hireOrphans lets the outbox's entries be written whose partition is gone.
func (c *crew) hireOrphans(listed []string) error {
	if c.p.config.Outbox == nil {
		return nil
	}
	names, err := c.p.config.Outbox.Partitions(c.p.config.Name)
	for _, name := range names {
		if !slices.Contains(listed, name) {
			c.hire(name, &post{orphan: true})
		}
	}
	return err
}

// leases tells whether a partition is worked on by whoever holds its lease.
func (c *crew) leases(partition string) bool {
	local := c.p.config.Source.Traits().Local
	return c.shared && !(local != nil && local(partition))
}

// hire starts a partition, unless it is at work or finished already or nothing
// may be read any more.
func (c *crew) hire(partition string, hired *post) *post {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading.Err() != nil || c.finished[partition] || c.posts[partition] != nil {
		return nil
	}
	hired.partition = partition
	hired.ctx, hired.dismiss = context.WithCancelCause(c.ctx)
	hired.reading, hired.drain = context.WithCancel(c.reading)
	context.AfterFunc(hired.ctx, hired.drain)
	c.posts[partition] = hired
	c.p.status.opening()
	go func() {
		err := guard(func() error { return c.p.runPartition(hired) })
		c.ended <- ending{hired, err}
	}()
	return hired
}

// conclude takes leave of a post. again is when to ask for partitions because
// of it, if it is above 0. The error is one that the pipeline ends with.
func (c *crew) conclude(end ending) (again time.Duration, err error) {
	defer end.release()
	c.endings++
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.posts, end.partition)
	switch {
	case context.Cause(end.ctx) == errLeaseOver, errors.Is(end.err, errPaused):
	case errors.Is(end.err, sink.ErrFenced):
		c.p.log.Warn("another worker has taken the partition over", "partition", end.partition)
	case errors.Is(end.err, source.ErrMoved):
		c.p.log.Warn("partition moved: asking the source for its partitions again",
			"partition", end.partition, "reason", end.err)
		// Nobody is hired for it until the source names it again.
		c.listed = slices.DeleteFunc(c.listed, func(name string) bool { return name == end.partition })
		again = c.moves.next()
	case end.err != nil:
		return 0, end.err
	case end.reading.Err() == nil && !end.orphan:
		c.finished[end.partition] = true
	}
	return again, nil
}

// release ends a post's contexts.
func (p *post) release() {
	p.drain()
	p.dismiss(nil)
}

// halted tells whether it was a drain or a pause, and not the end of all work,
// that ended reading.
func (p *post) halted() bool { return p.reading.Err() != nil && p.ctx.Err() == nil }

// dismiss waits for the partitions still at work, after the crew's context has ended.
func (c *crew) dismiss() {
	for !c.idle() {
		end := <-c.ended
		end.release()
		c.mu.Lock()
		delete(c.posts, end.partition)
		c.mu.Unlock()
	}
	c.asking.Wait()
}

func (c *crew) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.posts) == 0
}

func (c *crew) anyMoving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, post := range c.posts {
		if post.moving.Load() {
			return true
		}
	}
	return false
}

// allFinished tells whether everything that the source has named is exhausted.
func (c *crew) allFinished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	unfinished := func(name string) bool { return !c.finished[name] }
	return len(c.posts) == 0 && !slices.ContainsFunc(c.listed, unfinished)
}
