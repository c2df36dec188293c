package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/bench/process"
)

// A contestant is one way of moving events.
type contestant struct {
	name           string
	events         uint64
	firstRoundOnly bool // it is too slow for every round
	from           source
	to             target

	// command returns the command to run.
	command func(ctx context.Context) (*exec.Cmd, error)
	// waitsForStart: the process prepares, prints a line, and starts when it reads one.
	waitsForStart bool
	// runsUntilStopped: the process does not exit by itself; it is stopped when from is
	// empty.
	runsUntilStopped bool
	// check checks what was written.
	check func(ctx context.Context) error
}

// A source holds the waiting events.
type source interface {
	fill(ctx context.Context, events uint64) error
	remaining(ctx context.Context) (int64, error)
	pid() int
}

// A target receives the rows.
type target interface {
	empty(ctx context.Context) error
	pid() int
}

// A measurement is one turn of a contestant.
type measurement struct {
	rate                      float64 // events/s
	source, database, program float64 // CPU time per event, in microseconds
	resident                  float64 // peak memory of all its processes, in MB
}

const (
	turnLimit = 10 * time.Minute
	// pollInterval is how often the source is asked whether it is empty: rarely, because
	// asking costs CPU time. It may add that much to the engine's time.
	pollInterval = 20 * time.Millisecond
)

func (b *bench) measure(ctx context.Context, c contestant) (m measurement, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	command, err := c.command(ctx)
	if err != nil {
		return m, err
	}
	var log bytes.Buffer
	command.Stderr = &log
	stdin, stdout, err := pipes(command)
	if err != nil {
		return m, err
	}
	if err := command.Start(); err != nil {
		return m, err
	}
	output := bufio.NewReader(stdout)
	if c.waitsForStart {
		if _, err := output.ReadString('\n'); err != nil {
			return m, fmt.Errorf("it did not prepare: %w\n%s", errors.Join(err, command.Wait()), log.String())
		}
	}
	before := [...]time.Duration{process.TreeTime(c.from.pid()), process.TreeTime(c.to.pid()), process.Read(command.Process.Pid).Time}
	began := time.Now()
	_, _ = io.WriteString(stdin, "\n")
	stdin.Close()

	stopProfile := b.startProfile(c, command.Process.Pid)
	peak := process.WatchMemory(command.Process.Pid, process.PeakResident)
	go func() { _, _ = io.Copy(&log, output) }()
	var took time.Duration
	if c.runsUntilStopped {
		err = waitEmpty(ctx, c.from, command.Process.Pid)
		took = time.Since(began)
		_ = command.Process.Signal(syscall.SIGTERM)
	}
	err = errors.Join(err, command.Wait())
	if !c.runsUntilStopped {
		took = time.Since(began)
	}
	stopProfile()
	m.resident = float64(peak()) / 1e6
	if err != nil {
		return m, fmt.Errorf("%w\n%s", err, log.String())
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(c.events) }
	state := command.ProcessState
	m.rate = float64(c.events) / took.Seconds()
	m.source, m.database = per(process.TreeTime(c.from.pid())-before[0]), per(process.TreeTime(c.to.pid())-before[1])
	m.program = per(state.UserTime() + state.SystemTime() - before[2])
	return m, nil
}

func pipes(command *exec.Cmd) (io.WriteCloser, io.Reader, error) {
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, err := command.StdoutPipe()
	return stdin, stdout, err
}

// startProfile runs the command of -profile beside the engine.
func (b *bench) startProfile(c contestant, pid int) (stop func()) {
	if b.profile == "" || !c.runsUntilStopped {
		return func() {}
	}
	command := exec.Command("sh", "-c", b.profile)
	command.Env = append(os.Environ(), fmt.Sprintf("PID=%d", pid))
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Start(); err != nil {
		logf("-profile: %v", err)
		return func() {}
	}
	return func() { _ = command.Wait() }
}

func waitEmpty(ctx context.Context, from source, pid int) error {
	for {
		left, err := from.remaining(ctx)
		if err != nil || left == 0 {
			return err
		}
		if process.Read(pid).Ended {
			return fmt.Errorf("it exited with %d events waiting", left)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}
