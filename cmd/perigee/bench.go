package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/internal/release"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/tuning"
)

type benchCommand struct {
	Script     string                   `arg:"" optional:"" help:"File with the script."`
	Events     string                   `placeholder:"FILE" help:"File with a sample of events, one JSON document per line; - is standard input."`
	Quick      bool                     `help:"Take 15 seconds: fewer pools, goroutines and rounds."`
	Time       time.Duration            `placeholder:"DURATION" help:"Approximate duration; 90s, or 15s with --quick."`
	Goroutines []int                    `placeholder:"N,…" help:"Numbers of goroutines that run batches concurrently."`
	Cores      []int                    `placeholder:"N,…" help:"Numbers of cores that they may use."`
	Batch      int                      `placeholder:"N" help:"Events in a batch (default 100)."`
	Sinks      []string                 `name:"sink" placeholder:"NAME" help:"Sink that the script may route to; may be repeated."`
	Functions  map[string]time.Duration `name:"function" placeholder:"MODULE.NAME=DURATION" help:"Replace a Go function that the script calls by one that waits this long and returns its arguments; may be repeated."`
	Out        string                   `default:"perigee-bench.html" placeholder:"FILE" help:"HTML page to write (default ${default})."`
	Markdown   string                   `placeholder:"FILE" help:"Also write the tables as Markdown."`
	Child      bool                     `hidden:""`
}

func (benchCommand) Help() string {
	return `Measures the script on your events with several pools of VMs, numbers of goroutines and cores, and batch
sizes. It prints a table, and writes a page with plots, with the lines that LuaJIT could not compile, and
with recommended lines of configuration.

Each setup runs in a separate process, in several rounds; figures are medians. Run nothing else on the
machine meanwhile.

A script that uses the state of a pipeline is refused: its runs follow each other, whatever the pool.

Examples:
  perigee bench email.lua --events sample.ndjson
  zcat events.ndjson.gz | head -50000 | perigee bench email.lua --events - --quick
  perigee bench enrich.lua --events sample.ndjson --function directory.lookup=1ms --markdown bench.md`
}

// Default durations of a benchmark.
const (
	benchTime      = 90 * time.Second
	benchTimeQuick = 12 * time.Second
)

func (b *benchCommand) Run(c *console) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if b.Child {
		return tuning.Serve(ctx, languages()[0], c.in, c.out)
	}
	t, err := b.trial(c)
	if err != nil {
		return err
	}
	display := newDisplay(c.err)
	report, err := b.measure(ctx, t, display)
	if ctx.Err() != nil {
		return errors.New("interrupted; nothing was written")
	}
	if err != nil {
		return engine.ScriptError(err, script.Code{Name: t.Program.Name, Text: t.Program.Text})
	}
	report.Machine = tuning.ThisMachine(append([]string{"perigee " + release.Build()}, engineVersions()...))
	report.Command = b.command()
	if err := report.Print(c.out); err != nil {
		return err
	}
	return b.write(c, report)
}

// trial returns the trial of the command line.
func (b *benchCommand) trial(c *console) (*tuning.Trial, error) {
	switch {
	case b.Script == "":
		return nil, usageError("no script is given: name a file")
	case b.Events == "":
		return nil, usageError("no events are given: name a file with --events; - is standard input")
	}
	for _, n := range slices.Concat(b.Goroutines, b.Cores) {
		if n < 1 {
			return nil, usageError(fmt.Sprintf("invalid number of goroutines or cores %d: use 1 or more", n))
		}
	}
	text, err := os.ReadFile(b.Script)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	sample, err := b.sample(c.in)
	if err != nil {
		return nil, err
	}
	folder, err := filepath.Abs(filepath.Dir(b.Script))
	if err != nil {
		return nil, err
	}
	t := &tuning.Trial{
		Program:  tuning.Program{Name: b.Script, Text: text, Folder: folder, Sinks: b.Sinks, Waits: b.Functions},
		Language: languages()[0], Sample: sample, Plan: b.plan(), Budget: b.budget(), Child: benchChild,
	}
	t.Compile = compilerOf(&t.Program)
	return t, nil
}

func (b *benchCommand) sample(in io.Reader) (*tuning.Sample, error) {
	if b.Events == "-" {
		return tuning.ReadSample("standard input", in)
	}
	file, err := os.Open(b.Events)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer file.Close()
	return tuning.ReadSample(b.Events, file)
}

func (b *benchCommand) plan() tuning.Plan {
	plan := tuning.FullPlan(runtime.NumCPU())
	if b.Quick {
		plan = tuning.QuickPlan(runtime.NumCPU())
	}
	if len(b.Goroutines) > 0 {
		plan.Goroutines = sorted(b.Goroutines)
	}
	if len(b.Cores) > 0 {
		plan.Cores = sorted(b.Cores)
	}
	plan.Batch = cmp.Or(b.Batch, plan.Batch)
	return plan
}

func sorted(numbers []int) []int { return slices.Compact(slices.Sorted(slices.Values(numbers))) }

func (b *benchCommand) budget() time.Duration {
	if b.Quick {
		return cmp.Or(b.Time, benchTimeQuick)
	}
	return cmp.Or(b.Time, benchTime)
}

// benchChild returns a command that runs this program as a measuring process.
func benchChild(ctx context.Context) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return exec.CommandContext(ctx, self, "bench", "--child"), nil
}

func (b *benchCommand) measure(ctx context.Context, t *tuning.Trial, display *display) (*tuning.Report, error) {
	var p benchProgress
	t.Progress = p.set
	end := display.show(p.line)
	defer end()
	return t.Run(ctx)
}

// benchProgress is the progress of a trial. It is safe for concurrent use.
type benchProgress struct {
	mu          sync.Mutex
	done, total int
	next        string
	began       time.Time
}

func (p *benchProgress) set(done, total int, next string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total, p.next = done, total, next
	if p.began.IsZero() {
		p.began = time.Now()
	}
}

func (p *benchProgress) line(time.Duration) string {
	const width = 30
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == 0 {
		return "compiling the script"
	}
	full, left := width*p.done/p.total, "…"
	if p.done > 0 {
		left = (time.Since(p.began) / time.Duration(p.done) * time.Duration(p.total-p.done)).Round(time.Second).String()
	}
	return fmt.Sprintf("[%s%s] %s left  %s", strings.Repeat("#", full), strings.Repeat(".", width-full), left, p.next)
}

// command returns the command line that runs the same benchmark again.
func (b *benchCommand) command() string {
	words := []string{"perigee bench", b.Script, "--events", b.Events}
	if b.Quick {
		words = append(words, "--quick")
	}
	if b.Time > 0 {
		words = append(words, "--time "+b.Time.String())
	}
	list := func(flag string, numbers []int) {
		if len(numbers) > 0 {
			words = append(words, flag, strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]"))
		}
	}
	list("--goroutines", b.Goroutines)
	list("--cores", b.Cores)
	if b.Batch > 0 {
		words = append(words, fmt.Sprint("--batch ", b.Batch))
	}
	for _, sink := range b.Sinks {
		words = append(words, "--sink "+sink)
	}
	for _, name := range slices.Sorted(maps.Keys(b.Functions)) {
		words = append(words, fmt.Sprintf("--function %s=%v", name, b.Functions[name]))
	}
	return strings.Join(words, " ")
}

// write writes the page and the Markdown.
func (b *benchCommand) write(c *console, report *tuning.Report) error {
	files := []struct {
		name  string
		write func(io.Writer) error
	}{{b.Out, report.WritePage}, {b.Markdown, report.WriteMarkdown}}
	for _, file := range files {
		if file.name == "" {
			continue
		}
		var text strings.Builder
		if err := file.write(&text); err != nil {
			return fmt.Errorf("write %s: %w", file.name, err)
		}
		if err := os.WriteFile(file.name, []byte(text.String()), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "written: %s\n", file.name)
	}
	return nil
}
