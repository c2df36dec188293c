package powercut

import (
	"bytes"
	"fmt"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// traceMax is how long a recorded program may run. The longest takes some seconds.
const traceMax = 3 * time.Minute

// runFor runs a command in a process group of its own, and kills the group when the time is
// over.
func runFor(limit time.Duration, c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = 10 * time.Second // for what has left the group, and has the output open
	if err := c.Start(); err != nil {
		return err
	}
	var hung atomic.Bool
	timer := time.AfterFunc(limit, func() {
		hung.Store(true)
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	})
	defer timer.Stop()
	err := c.Wait()
	if hung.Load() {
		output, _ := c.Stderr.(*bytes.Buffer)
		text := fmt.Sprint(output)
		return fmt.Errorf("the recorded program did not end in %v, and was killed, after\n%s", limit, text[max(0, len(text)-4000):])
	}
	return err
}
