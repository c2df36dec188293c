// Package rig is what programs need that treat a whole engine as their users
// do: start the binary on a configuration, wait until it is ready, kill it, and
// push events that are counted exactly. Tests of single packages do not need it.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// An Process is a running perigee. Its methods are for one goroutine.
type Process struct {
	command *exec.Cmd
	done    chan struct{}
	err     error // of the process, once ended is closed
	peak    atomic.Int64
}

// StartProcess runs "perigee run config" with env added to the environment. Its log
// goes to the end of the file log.
func StartProcess(binary, config, log string, env ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	e := &Process{command: exec.Command(binary, "run", config), done: make(chan struct{})}
	e.command.Env = append(os.Environ(), env...)
	e.command.Stdout, e.command.Stderr = out, out
	if err := e.command.Start(); err != nil {
		return nil, fmt.Errorf("start the engine: %w", err)
	}
	go e.watchPeak()
	go func() {
		e.err = e.command.Wait()
		close(e.done)
	}()
	return e, nil
}

// Done is closed when the process is gone.
func (e *Process) Done() <-chan struct{} { return e.done }

// Wait waits for the process to end by itself, and returns how it did.
func (e *Process) Wait(ctx context.Context) error {
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill ends the process as the kernel's memory killer would.
func (e *Process) Kill() {
	e.command.Process.Kill()
	<-e.done
}

// Suspend stops the process where it is, as a laptop's lid or a starved machine would.
func (e *Process) Suspend() error { return e.command.Process.Signal(syscall.SIGSTOP) }

// Resume lets a frozen process go on.
func (e *Process) Resume() error { return e.command.Process.Signal(syscall.SIGCONT) }

// DumpStacks ends the engine with the stacks of all its goroutines in the log.
func (e *Process) DumpStacks() {
	_ = e.command.Process.Signal(syscall.SIGQUIT)
	<-e.done
}

// Shutdown asks the engine to finish what it has and end, and waits for it.
func (e *Process) Shutdown(ctx context.Context) error {
	if err := e.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("ask the engine to drain: %w", err)
	}
	return e.Wait(ctx)
}

// WaitReady waits until the engine at address says that its pipelines run.
func (e *Process) WaitReady(ctx context.Context, address string) error {
	for {
		response, err := http.Get("http://" + address + "/ready")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-e.done:
			return errors.Join(errors.New("the engine ended before it was ready"), e.err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// PeakBytes is the most memory that the engine has held resident so far.
func (e *Process) PeakBytes() int64 { return e.peak.Load() }

// watchPeak reads the kernel's own high-water mark until the process is gone. The
// figure of wait4 cannot be used: it starts at what this process held.
func (e *Process) watchPeak() {
	path := fmt.Sprintf("/proc/%d/status", e.command.Process.Pid)
	for {
		if status, err := os.ReadFile(path); err == nil {
			e.peak.Store(max(e.peak.Load(), parseKiB(string(status), "VmHWM:")))
		}
		select {
		case <-e.done:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func parseKiB(status, name string) int64 {
	_, after, found := strings.Cut(status, name)
	if !found {
		return 0
	}
	fields := strings.Fields(after)
	kib, _ := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10
}
