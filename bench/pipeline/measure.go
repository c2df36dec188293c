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
	name   string
	events uint64
	once   bool // too slow, or too well known, for every round
	from   source
	to     target

	// command makes the process that does it.
	command func(ctx context.Context) (*exec.Cmd, error)
	// prepares says that the process prepares, prints a line, and begins when it
	// reads one.
	prepares bool
	// serves says that the process does not end by itself, but is told to when
	// from is empty.
	serves bool
	// check looks at what has landed.
	check func(ctx context.Context) error
}

// A source is where events wait.
type source interface {
	fill(ctx context.Context, events uint64) error
	left(ctx context.Context) (int64, error)
	pid() int
}

// A target is where events go.
type target interface {
	empty(ctx context.Context) error
	pid() int
}

// A measurement is one turn of a contestant.
type measurement struct {
	rate                      float64 // events/s
	source, database, program float64 // microseconds of processor time per event
	resident                  float64 // MB at the peak, of all its processes
}

const (
	patience = 10 * time.Minute
	// look is how often the source is asked whether it is empty: rarely, because the
	// answer takes processor time from who is measured. It makes ours up to that slower.
	look = 20 * time.Millisecond
)

func (b *bench) measure(ctx context.Context, c contestant) (m measurement, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
	if c.prepares {
		if _, err := output.ReadString('\n'); err != nil {
			return m, fmt.Errorf("it did not prepare: %w\n%s", errors.Join(err, command.Wait()), log.String())
		}
	}
	before := [...]time.Duration{tree(c.from.pid()), tree(c.to.pid()), processorTime(command.Process.Pid)}
	began := time.Now()
	_, _ = io.WriteString(stdin, "\n")
	stdin.Close()

	stopProfile := b.startProfile(c, command.Process.Pid)
	peak := watchMemory(command.Process.Pid)
	go func() { _, _ = io.Copy(&log, output) }()
	var took time.Duration
	if c.serves {
		err = untilEmpty(ctx, c.from, command.Process.Pid)
		took = time.Since(began)
		_ = command.Process.Signal(syscall.SIGTERM)
	}
	err = errors.Join(err, command.Wait())
	if !c.serves {
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
	m.source, m.database = per(tree(c.from.pid())-before[0]), per(tree(c.to.pid())-before[1])
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

// startProfile runs the command of -profile beside an engine.
func (b *bench) startProfile(c contestant, pid int) (stop func()) {
	if b.profile == "" || !c.serves {
		return func() {}
	}
	command := exec.Command("sh", "-c", b.profile)
	command.Env = append(os.Environ(), fmt.Sprintf("PID=%d", pid))
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Start(); err != nil {
		say("-profile: %v", err)
		return func() {}
	}
	return func() { _ = command.Wait() }
}

func untilEmpty(ctx context.Context, from source, pid int) error {
	for {
		left, err := from.left(ctx)
		if err != nil || left == 0 {
			return err
		}
		if stat(pid).ended {
			return fmt.Errorf("it ended with %d events waiting", left)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
	}
}

// A process is what the kernel says of one.
type process struct {
	parent int
	time   time.Duration // of processors: its own, and that of children it has buried
	ended  bool
}

// tick is the kernel's unit of processor time.
const tick = 10 * time.Millisecond

// stat returns the zero process, ended, for one that is not there.
func stat(pid int) process {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(text, ')') // of the name, which may hold anything
	if err != nil || end < 0 {
		return process{ended: true}
	}
	fields := strings.Fields(string(text[end+1:]))
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	return process{parent: number(1), time: time.Duration(number(11)+number(12)+number(13)+number(14)) * tick, ended: fields[0] == "Z"}
}

func processorTime(pid int) time.Duration { return stat(pid).time }

// family returns pid and all processes below it.
func family(pid int) []int {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	parents := map[int]int{}
	for _, entry := range entries {
		if n, err := strconv.Atoi(filepath.Base(entry)); err == nil {
			parents[n] = stat(n).parent
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

// tree is the processor time of pid and all processes below it that live.
func tree(pid int) (total time.Duration) {
	for _, member := range family(pid) {
		total += stat(member).time
	}
	return total
}

// watchMemory looks from time to time at what pid and the processes below it
// hold resident. What it returns ends that and says the peak.
func watchMemory(pid int) (peak func() int64) {
	stop, result := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		for {
			sum := int64(0)
			for _, member := range family(pid) {
				sum += resident(member)
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

// resident is the most that a process has held, by the kernel's own mark.
func resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, found := strings.Cut(string(text), "VmHWM:")
	if err != nil || !found {
		return 0
	}
	kib, _ := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	return kib << 10
}
