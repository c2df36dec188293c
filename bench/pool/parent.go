package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/perigeedb/perigee/bench/rounds"
)

// A result holds the readings of one contestant in one column of the matrix.
type result struct {
	contestant contestant
	readings   []reading
}

// times returns the nanoseconds per call of each round.
func (r result) times() []float64 {
	var all []float64
	for _, one := range r.readings {
		all = append(all, float64(one.Took)/float64(one.Calls))
	}
	return all
}

func (r result) median() float64 { return rounds.Median(r.times()) }

// perCall returns the average of a figure per call over all rounds.
func (r result) perCall(of func(reading) uint64) float64 {
	var sum uint64
	calls := 0
	for _, one := range r.readings {
		sum += of(one)
		calls += one.Calls
	}
	return float64(sum) / float64(calls)
}

func (r result) bytes() float64  { return r.perCall(func(one reading) uint64 { return one.Bytes }) }
func (r result) allocs() float64 { return r.perCall(func(one reading) uint64 { return one.Allocs }) }

// cpu returns the CPU time of a call, in nanoseconds.
func (r result) cpu() float64 { return r.perCall(func(one reading) uint64 { return uint64(one.CPU) }) }

// peakMB returns the peak memory of the process, in megabytes.
func (r result) peakMB() float64 { return float64(r.readings[len(r.readings)-1].Peak) / 1000 }

// A process runs a contestant.
type process struct {
	cmd   *exec.Cmd
	lines io.WriteCloser
	out   *bufio.Reader
}

func start(c contestant, b body, goroutines int, slice time.Duration) *process {
	self, err := os.Executable()
	must(err)
	p := &process{cmd: exec.Command(self, "-child", c.name, "-body", b.name, "-goroutines", fmt.Sprint(goroutines), "-slice", slice.String())}
	p.lines, err = p.cmd.StdinPipe()
	must(err)
	printed, err := p.cmd.StdoutPipe()
	must(err)
	readings, write, err := os.Pipe()
	must(err)
	p.cmd.ExtraFiles, p.cmd.Stderr = []*os.File{write}, os.Stderr
	must(p.cmd.Start())
	must(write.Close())
	go func() { _, _ = io.Copy(io.Discard, printed) }()
	p.out = bufio.NewReader(readings)
	p.line() // warm
	return p
}

func (p *process) line() string {
	line, err := p.out.ReadString('\n')
	must(err)
	return line
}

// measure makes the process run one slice.
func (p *process) measure() (r reading) {
	_, err := fmt.Fprintln(p.lines)
	must(err)
	_, err = fmt.Sscan(p.line(), &r.Calls, (*int64)(&r.Took), &r.Bytes, &r.Allocs, &r.Peak, (*int64)(&r.CPU))
	must(err)
	return r
}

func (p *process) stop() {
	must(p.lines.Close())
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// measureColumn measures one column of the matrix: each contestant in its own process, one
// slice of each in every round.
func measureColumn(all []contestant, b body, goroutines, count int, slice time.Duration, step func()) []result {
	results := make([]result, len(all))
	processes := make([]*process, len(all))
	for i, c := range all {
		results[i].contestant = c
		processes[i] = start(c, b, goroutines, slice)
		defer processes[i].stop()
		step()
	}
	for range count {
		for i, p := range processes {
			results[i].readings = append(results[i].readings, p.measure())
			step()
		}
	}
	return results
}
