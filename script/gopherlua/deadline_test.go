package gopherlua

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPausedDeadline: what a run waits for does not count, and the rest of its time does.
func TestPausedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newDeadline()
		c.start(time.Now().Add(100*time.Millisecond), time.Now().Add(time.Minute))
		for range 3 {
			time.Sleep(30 * time.Millisecond)
			c.pause()
			time.Sleep(time.Second)
			c.resume()
		}
		if c.waited != 3*time.Second {
			t.Errorf("waited %v", c.waited)
		}
		time.Sleep(9 * time.Millisecond)
		synctest.Wait()
		if err := c.ctx.Err(); err != nil {
			t.Errorf("after 99 ms of 100: %v", err)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if c.ctx.Err() == nil || !c.stop() {
			t.Error("the run goes on after its time")
		}
	})
}
