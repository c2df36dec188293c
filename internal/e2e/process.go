// Package e2e runs the perigee binary end to end, as its users do: it starts the process
// on a configuration, waits until it is ready, reads its memory, suspends and kills it,
// starts the servers it works with, and pushes events exactly once. Demos, benchmarks and
// package chaos use it; tests of single packages do not need it.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A Process is a running "perigee run". It is not safe for concurrent use.
type Process struct {
	command *exec.Cmd
	done    chan struct{}
	err     error // how the process ended; valid once done is closed
	peak    atomic.Int64
}

// StartProcess starts "perigee run config" with env added to the environment, and appends
// its output to the file log.
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

// Done returns a channel that is closed when the process has exited.
func (e *Process) Done() <-chan struct{} { return e.done }

// Wait waits for the process to exit and returns its error.
func (e *Process) Wait(ctx context.Context) error {
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill kills the process with SIGKILL and waits for it.
func (e *Process) Kill() {
	e.command.Process.Kill()
	<-e.done
}

// KillChildren kills the child processes with SIGKILL, and returns how many.
func (e *Process) KillChildren() (killed int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", e.command.Process.Pid))
	for _, file := range tasks {
		children, _ := os.ReadFile(file) // the thread may have ended
		for field := range strings.FieldsSeq(string(children)) {
			if pid, err := strconv.Atoi(field); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	return killed
}

// Suspend stops the process with SIGSTOP.
func (e *Process) Suspend() error { return e.command.Process.Signal(syscall.SIGSTOP) }

// Resume continues a suspended process.
func (e *Process) Resume() error { return e.command.Process.Signal(syscall.SIGCONT) }

// DumpStacks ends the process with SIGQUIT, which logs the stacks of all goroutines.
func (e *Process) DumpStacks() {
	_ = e.command.Process.Signal(syscall.SIGQUIT)
	<-e.done
}

// Shutdown sends SIGTERM and waits until the process has drained and exited.
func (e *Process) Shutdown(ctx context.Context) error {
	if err := e.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("shut the engine down: %w", err)
	}
	return e.Wait(ctx)
}

// WaitReady waits until the engine that listens at address reports that its pipelines run.
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
			return errors.Join(errors.New("the engine exited before it was ready"), e.err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// PeakBytes returns the peak of the resident memory so far.
func (e *Process) PeakBytes() int64 { return e.peak.Load() }

// ResetPeak resets the peak to the memory that is resident now. Only root can do that for an engine
// that hides its memory; for others the peak stays that of its whole life.
func (e *Process) ResetPeak() error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", e.command.Process.Pid), []byte("5"), 0)
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	e.peak.Store(0)
	return err
}

// watchPeak polls the kernel's high-water mark until the process exits. The maximum that
// wait4 returns is useless: it includes what this process held before exec.
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
