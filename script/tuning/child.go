package tuning

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

// A Program is a script and what it is loaded with.
type Program struct {
	Name   string
	Text   []byte
	Folder string   // of the files that it requires; empty for none
	Sinks  []string // that it may route to
	// Waits are stand-ins for functions of the user's own, by their names as in
	// "cache.get": each waits for the duration and returns its arguments.
	Waits map[string]time.Duration
}

// load loads the script into VMs of a pool.
func (p *Program) load(ctx context.Context, language script.Language, vms *pool.Pool) (script.Script, error) {
	options, err := p.Options()
	if err != nil {
		return nil, err
	}
	options.Pool = vms
	return language.Load(ctx, p.Code(), options)
}

// Code returns the script's code.
func (p *Program) Code() script.Code {
	code := script.Code{Name: p.Name, Text: p.Text}
	if p.Folder != "" {
		code.Files = script.Folder(p.Folder)
	}
	return code
}

// Options returns the options that the script is loaded with, except the pool.
func (p *Program) Options() (script.Options, error) {
	modules, err := standInModules(p.Waits)
	o := script.Options{Modules: modules, Sinks: []script.Sink{{Name: "stdout"}}}
	for _, name := range p.Sinks {
		o.Sinks = append(o.Sinks, script.Sink{Name: name, Routed: true})
	}
	return o, err
}

// A job is what a parent process asks of a child.
type job struct {
	Program  Program
	Settings pool.Settings
	Setup    Setup
	Sample   string // path
	Slice    time.Duration
}

// Serve runs a child process: it reads a job from in and warms up; then it measures one
// round for each line that it reads, and writes a reading to out.
func Serve(ctx context.Context, language script.Language, in io.Reader, out io.Writer) error {
	lines, answers := bufio.NewReader(in), json.NewEncoder(out)
	c, long, err := startJob(ctx, language, lines)
	if err != nil {
		return err
	}
	defer func() { _ = c.script.Close() }()
	for {
		if err := answers.Encode("ready"); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			return nil // the parent has closed the pipe
		}
		reading, err := c.measure(ctx, long)
		if err != nil {
			return err
		}
		if err := answers.Encode(reading); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// startJob reads a job and runs its load for one round, to warm up.
func startJob(ctx context.Context, language script.Language, in *bufio.Reader) (*loadGenerator, time.Duration, error) {
	var j job
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &j)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read job: %w", err)
	}
	file, err := os.Open(j.Sample)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	sample, err := ReadSample(j.Sample, file)
	if err != nil {
		return nil, 0, err
	}
	vms := pool.New(j.Settings)
	loaded, err := j.Program.load(ctx, language, vms)
	if err != nil {
		return nil, 0, err
	}
	c := newLoadGenerator(loaded, vms, sample.batches(j.Setup.Batch), j.Setup.Goroutines, len(j.Program.Sinks)+1)
	_, err = c.measure(ctx, j.Slice)
	return c, j.Slice, err
}
