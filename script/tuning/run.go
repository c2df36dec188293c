package tuning

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

// A Trial measures a script.
type Trial struct {
	Program  Program
	Language script.Language
	Sample   *Sample
	Plan     Plan
	Budget   time.Duration // for the whole trial
	// Child returns the command that calls Serve in a process of its own.
	Child func(ctx context.Context) (*exec.Cmd, error)
	// Compile runs a batch so many times, or for so long, and returns what the compiler
	// did; nil where there is no compiler.
	Compile func(ctx context.Context, b *event.Batch, times int, long time.Duration) (*Compilation, error)
	// Progress is called before each step with the steps that are done, their total and a
	// description of the next step.
	Progress func(done, total int, next string)
}

const (
	startTime  = 80 * time.Millisecond  // that a child takes to start, until one was measured
	sliceMin   = 10 * time.Millisecond  // of a round; shorter ones measure nothing
	compileMin = 200 * time.Millisecond // for the compiler to finish
)

// Run measures all setups. It fills the report except Command and Machine.
func (t *Trial) Run(ctx context.Context) (*Report, error) {
	began := time.Now()
	report := &Report{Began: began, Script: t.Program.Name, Sample: t.Sample}
	if err := t.examineScript(ctx, report); err != nil {
		return nil, err
	}
	report.Plan = t.Plan
	folder, err := os.MkdirTemp("", "perigee-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	r := &trialRun{Trial: t, sample: filepath.Join(folder, "sample.ndjson"), began: began}
	if err := r.writeSample(); err != nil {
		return nil, err
	}
	measured, err := r.measureAll(ctx)
	if err != nil {
		return nil, err
	}
	n := len(t.Plan.Goroutines)
	for _, column := range measured[:n] {
		report.Pools = append(report.Pools, column...)
	}
	report.Cores, report.Batches, report.Slice = measured[n], measured[n+1], r.slice
	report.Took = time.Since(began)
	report.Advice = advise(report)
	return report, nil
}

// examineScript passes the sample through the script once, and records what the compiler
// does with it.
func (t *Trial) examineScript(ctx context.Context, report *Report) error {
	loaded, err := t.Program.load(ctx, t.Language, pool.New(pool.Settings{}))
	if err != nil {
		return err
	}
	defer func() { _ = loaded.Close() }()
	report.Version = loaded.String()
	one, err := t.Sample.runScript(ctx, loaded, len(t.Program.Sinks)+1, t.Budget/20)
	if err != nil {
		return err
	}
	t.Plan.limitBatches(one)
	if t.Compile == nil {
		return nil
	}
	const events = 20_000 // after which all hot code has been compiled
	batch := t.Sample.batches(min(t.Sample.Events, 1000))[0]
	if report.Compilation, err = t.Compile(ctx, batch, max(events/batch.Len(), 1), max(t.Budget/20, compileMin)); err != nil {
		return err
	}
	report.Compilation.addSource(t.Program.Name, t.Program.Text)
	return nil
}

// A trialRun is a trial in progress.
type trialRun struct {
	*Trial
	sample      string // path
	began       time.Time
	slice       time.Duration
	done, total int

	starting time.Duration // total time that children took to start
	started  int           // children
}

func (r *trialRun) writeSample() error {
	file, err := os.Create(r.sample)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return r.Sample.writeTo(file)
}

// measureAll measures one group of setups after the other.
func (r *trialRun) measureAll(ctx context.Context) ([][]Measurement, error) {
	columns := r.Plan.columns()
	setups := 0
	for _, column := range columns {
		setups += len(column)
	}
	r.total = setups * (r.Plan.Rounds + 1)
	var measured [][]Measurement
	for _, column := range columns {
		r.setSlice(setups)
		setups -= len(column)
		one, err := r.measureColumn(ctx, column)
		if err != nil {
			return nil, err
		}
		measured = append(measured, one)
	}
	return measured, nil
}

// setSlice divides the remaining time among the rounds of the remaining setups. A round
// takes a quarter longer than the slice that counts.
func (r *trialRun) setSlice(setups int) {
	begin := startTime
	if r.started > 0 {
		begin = r.starting / time.Duration(r.started)
	}
	left := r.Budget - time.Since(r.began) - time.Duration(setups)*begin
	r.slice = max(left*4/5/time.Duration(r.total-r.done), sliceMin)
}

// measureColumn measures a group of setups in turn. It skips rounds when the script is so
// slow that they take too long.
func (r *trialRun) measureColumn(ctx context.Context, setups []Setup) ([]Measurement, error) {
	measured := make([]Measurement, len(setups))
	children := make([]*child, len(setups))
	last := r.done + len(setups)*(r.Plan.Rounds+1)
	for i, setup := range setups {
		measured[i].Setup = setup
		r.reportProgress(setup)
		began := time.Now()
		c, err := r.startChild(ctx, setup)
		if err != nil {
			return nil, err
		}
		defer c.stop()
		r.starting += max(time.Since(began)-r.slice*5/4, 0)
		r.started++
		children[i] = c
	}
	for round := 0; round < r.Plan.Rounds && (round == 0 || !r.isLate(last)); round++ {
		for i := range children {
			if round%2 == 1 {
				i = len(children) - 1 - i
			}
			r.reportProgress(setups[i])
			reading, err := children[i].measure()
			if err != nil {
				return nil, fmt.Errorf("measure pool %s with %d goroutines: %w", setups[i].Pool, setups[i].Goroutines, err)
			}
			measured[i].Rounds = append(measured[i].Rounds, reading)
		}
	}
	r.done = last
	for i := range measured {
		measured[i].summarize()
	}
	return measured, nil
}

func (r *trialRun) reportProgress(next Setup) {
	if r.Progress != nil {
		r.Progress(r.done, r.total, fmt.Sprintf("pool %s, %d goroutines, %d cores, batches of %d", next.Pool, next.Goroutines, next.Cores, next.Batch))
	}
	r.done++
}

// isLate reports whether the time until step last is exceeded by a quarter. Later groups
// can make up for less.
func (r *trialRun) isLate(last int) bool {
	return time.Since(r.began) > r.Budget*time.Duration(4*last+r.total)/time.Duration(4*r.total)
}

// A child is a process that measures one setup.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	errors bytes.Buffer
}

// startChild starts a child and waits until it has warmed up.
func (r *trialRun) startChild(ctx context.Context, setup Setup) (*child, error) {
	cmd, err := r.Child(ctx)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: cmd}
	cmd.Env = append(cmd.Environ(), fmt.Sprint("GOMAXPROCS=", setup.Cores))
	cmd.Stderr = &c.errors
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start measuring process: %w", err)
	}
	j := job{Program: r.Program, Settings: setup.Settings, Setup: setup, Sample: r.sample, Slice: r.slice}
	if err := json.NewEncoder(c.in).Encode(j); err != nil {
		return nil, c.stopWithError(err)
	}
	var ready string
	if err := c.out.Decode(&ready); err != nil {
		return nil, c.stopWithError(err)
	}
	return c, nil
}

func (c *child) measure() (reading Reading, err error) {
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		return reading, c.stopWithError(err)
	}
	if err := c.out.Decode(&reading); err != nil {
		return reading, c.stopWithError(err)
	}
	var ready string
	if err := c.out.Decode(&ready); err != nil {
		return reading, c.stopWithError(err)
	}
	return reading, nil
}

// stopWithError stops a child and returns an error with what it wrote to standard error. A child
// that has closed its pipes is ending: it may still say why.
func (c *child) stopWithError(err error) error {
	late := time.AfterFunc(5*time.Second, func() { _ = c.cmd.Process.Kill() })
	_ = c.in.Close()
	_ = c.cmd.Wait()
	late.Stop()
	if text := strings.TrimSpace(c.errors.String()); text != "" {
		return fmt.Errorf("measuring process failed: %s", text)
	}
	return fmt.Errorf("measuring process failed: %w", err)
}

func (c *child) stop() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
