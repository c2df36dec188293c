package gopherlua

import (
	"context"
	"sync"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// A deadline stops a machine when the time is over or the context of the run ends.
// gopher-lua checks the deadline's context before each instruction, so a script that
// catches the error meets it again.
type deadline struct {
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	unlink func()

	at     time.Time     // when the run ends
	wall   time.Time     // when it ends whatever it waits for
	paused time.Time     // since when the clock stands still
	waited time.Duration // for how long it has, in the batch

	mu      sync.Mutex
	run     uint64 // counts starts, so that a late timer never hits the next run
	running bool
	late    bool
}

func newDeadline() *deadline {
	c := &deadline{}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// stopWith stops the machine when ctx ends, until unfollow.
func (c *deadline) stopWith(ctx context.Context) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.interrupt(0)
		close(ended)
	})
	c.unlink = func() {
		if !stop() {
			<-ended // else it could stop the next run
		}
	}
}

func (c *deadline) unfollow() {
	if c.unlink != nil {
		c.unlink()
		c.unlink = nil
	}
}

// start begins a run that ends at the time until, or later if it waits, but not after wall.
func (c *deadline) start(until, wall time.Time) {
	c.mu.Lock()
	c.run++
	c.running = true
	run := c.run
	c.mu.Unlock()
	c.at, c.wall = until, wall
	c.timer = time.AfterFunc(time.Until(until), func() { c.interrupt(run) })
}

// pause stops the clock, until resume.
func (c *deadline) pause() {
	c.timer.Stop()
	c.paused = time.Now()
}

func (c *deadline) resume() {
	waited := time.Since(c.paused)
	c.waited += waited
	c.at = c.at.Add(waited)
	run := c.run
	if c.isOver() {
		c.interrupt(run)
	}
	c.timer = time.AfterFunc(time.Until(c.at), func() { c.interrupt(run) })
}

// isOver tells whether the run has no time left by the clock.
func (c *deadline) isOver() bool { return !time.Now().Before(c.wall) }

// interrupt stops a run by its number, or the current run for 0.
func (c *deadline) interrupt(run uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running && (run == c.run || run == 0) {
		c.late = true
		c.cancel()
	}
}

// stop ends the run and reports whether it was interrupted. If so, the machine must be
// closed.
func (c *deadline) stop() (late bool) {
	c.timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
	return c.late
}

// check raises an error if the run was interrupted. Loops in Go call it.
func (c *deadline) check(l *lua.LState) {
	if err := c.ctx.Err(); err != nil {
		l.RaiseError("%s", err.Error())
	}
}
