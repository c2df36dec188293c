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

// A Trial is a script to measure, and how.
type Trial struct {
	Program  Program
	Language script.Language
	Sample   *Sample
	Plan     Plan
	Budget   time.Duration // for the whole of it
	// Child returns the command that calls Serve in a process of its own.
	Child func(ctx context.Context) (*exec.Cmd, error)
	// Compile tells what the compiler does with a batch that is run so often, if that does
	// not take longer; nil where there is no compiler.
	Compile func(ctx context.Context, b *event.Batch, times int, long time.Duration) (*Compilation, error)
	// Progress is told before each step how many are done, of how many, and what is next.
	Progress func(done, total int, next string)
}

// What a child is taken to cost before it works, until that is known, and the shortest round that means anything.
const (
	startTime  = 80 * time.Millisecond
	sliceMin   = 10 * time.Millisecond
	compileMin = 200 * time.Millisecond // for the compiler to get to the end
)

// Run measures everything. The report lacks only what is about the machine.
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

// examineScript passes the sample through the script once, and through a compiler that is
// listened to.
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
	const events = 20_000 // until all that is compiled has been
	batch := t.Sample.batches(min(t.Sample.Events, 1000))[0]
	if report.Compilation, err = t.Compile(ctx, batch, max(events/batch.Len(), 1), max(t.Budget/20, compileMin)); err != nil {
		return err
	}
	report.Compilation.addSource(t.Program.Name, t.Program.Text)
	return nil
}

// trialRun are the measurements of a trial under way.
type trialRun struct {
	*Trial
	sample      string // path
	began       time.Time
	slice       time.Duration
	done, total int

	starting time.Duration // of all children that were started, without their first round
	started  int
}

func (r *trialRun) writeSample() error {
	file, err := os.Create(r.sample)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return r.Sample.writeTo(file)
}

// measureAll measures the columns, one after the other.
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

// setSlice divides the time that is left among the rounds of so many setups. A round is
// a quarter longer than the slice of it that counts.
func (r *trialRun) setSlice(setups int) {
	begin := startTime
	if r.started > 0 {
		begin = r.starting / time.Duration(r.started)
	}
	left := r.Budget - time.Since(r.began) - time.Duration(setups)*begin
	r.slice = max(left*4/5/time.Duration(r.total-r.done), sliceMin)
}

// measureColumn measures setups in turn. It leaves rounds out when the script is so slow that
// they last longer than they should.
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

// isLate tells whether the time until step last is used up, and a quarter more; later
// columns can make up for less.
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

// startChild returns a child that is warm.
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
		return nil, fmt.Errorf("start a process to measure in: %w", err)
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

// stopWithError ends a child, and says what it said itself.
func (c *child) stopWithError(err error) error {
	c.stop()
	if said := strings.TrimSpace(c.errors.String()); said != "" {
		return fmt.Errorf("the process that measures ended: %s", said)
	}
	return fmt.Errorf("the process that measures ended: %w", err)
}

func (c *child) stop() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
