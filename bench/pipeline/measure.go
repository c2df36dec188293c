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
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	before := [...]time.Duration{treeTime(c.from.pid()), treeTime(c.to.pid()), processorTime(command.Process.Pid)}
	began := time.Now()
	_, _ = io.WriteString(stdin, "\n")
	stdin.Close()

	stopProfile := b.startProfile(c, command.Process.Pid)
	peak := watchMemory(command.Process.Pid)
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
	m.source, m.database = per(treeTime(c.from.pid())-before[0]), per(treeTime(c.to.pid())-before[1])
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
		if readProcess(pid).ended {
			return fmt.Errorf("it exited with %d events waiting", left)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// A process holds the kernel's figures of a process.
type process struct {
	parent int
	time   time.Duration // CPU time, including that of children it has waited for
	ended  bool
}

// tick is the kernel's unit of CPU time.
const tick = 10 * time.Millisecond

// readProcess returns an ended process if pid does not exist.
func readProcess(pid int) process {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(text, ')') // end of the name, which may contain anything
	if err != nil || end < 0 {
		return process{ended: true}
	}
	fields := strings.Fields(string(text[end+1:]))
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	return process{parent: number(1), time: time.Duration(number(11)+number(12)+number(13)+number(14)) * tick, ended: fields[0] == "Z"}
}

func processorTime(pid int) time.Duration { return readProcess(pid).time }

// processTree returns pid and all its descendants.
func processTree(pid int) []int {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	parents := map[int]int{}
	for _, entry := range entries {
		if n, err := strconv.Atoi(filepath.Base(entry)); err == nil {
			parents[n] = readProcess(n).parent
		}
	}
	members := []int{pid}
	for i := 0; i < len(members); i++ {
		for child, parent := range parents {
			if parent == members[i] {
				members = append(members, child)
			}
		}
	}
	return members
}

// treeTime returns the CPU time of pid and its running descendants.
func treeTime(pid int) (total time.Duration) {
	for _, member := range processTree(pid) {
		total += readProcess(member).time
	}
	return total
}

// watchMemory samples the memory of pid and its descendants. The function that it returns
// stops that and returns the peak.
func watchMemory(pid int) (peak func() int64) {
	stop, result := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		for {
			sum := int64(0)
			for _, member := range processTree(pid) {
				sum += peakResident(member)
			}
			most = max(most, sum)
			select {
			case <-stop:
				result <- most
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(stop); return <-result }
}

// peakResident returns the kernel's high-water mark of a process's resident memory.
func peakResident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, found := strings.Cut(string(text), "VmHWM:")
	if err != nil || !found {
		return 0
	}
	kib, _ := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	return kib << 10
}
