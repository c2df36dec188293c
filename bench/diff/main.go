// Command diff measures "perigee diff" of two versions of a script, with a report, compared with one
// "perigee eval" of the same events, and a pipeline with a shadow on a tenth of its events, compared with
// one without. All read a file of a million events, in turns.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/bench/rounds"
)

const before = `function main(event)
  if event.event_name == "spam" then return nil end
  event.domain = event.email:match("@(.+)$")
  return event
end
`

// after has other results for one event in fifty: other values, dead letters, and dropped events.
const after = `-- the new version
function main(event)
  if event.event_name == "spam" or event.id % 5000 == 1 then return nil end
  event.domain = event.email:match("@(.+)$")
  if event.id % 50 == 0 then event.domain = event.domain:upper() end
  if event.id % 250000 == 3 then return missing(event) end
  return event
end
`

func main() {
	perigee := flag.String("perigee", "../bin/perigee", "the program")
	count := flag.Int("rounds", 7, "rounds")
	events := flag.Int("events", 1_000_000, "events")
	flag.Parse()
	program, err := filepath.Abs(*perigee)
	must(err)
	folder, err := os.MkdirTemp("", "diff-")
	must(err)
	defer os.RemoveAll(folder)
	must(os.Chdir(folder))
	must(os.WriteFile("old.lua", []byte(before), 0o600))
	must(os.WriteFile("new.lua", []byte(after), 0o600))
	must(writeEvents(*events))

	var evals, diffs, ratios, shadows []float64
	peak := int64(0)
	for range *count {
		eval, _ := run(0, program, "eval", "old.lua")
		diff, memory := run(1, program, "diff", "old.lua", "new.lua", "-")
		evals, diffs, ratios = append(evals, eval.Seconds()), append(diffs, diff.Seconds()), append(ratios, diff.Seconds()/eval.Seconds())
		peak = max(peak, memory)
		none, shadow := runPipeline(program, ""), runPipeline(program, "    shadow: {script: new.lua, sample: 10%}\n")
		shadows = append(shadows, none.Seconds()/shadow.Seconds())
	}
	fmt.Printf("eval %.2f s, diff %.2f s for %d events\n", rounds.Median(evals), rounds.Median(diffs), *events)
	fmt.Printf("figure diff_vs_eval %.2f\n", rounds.Median(ratios))
	fmt.Printf("figure diff_memory_mb %d\n", peak>>20)
	fmt.Printf("figure shadow_10_vs_none %.2f\n", rounds.Median(shadows))
}

// runPipeline runs a pipeline on the events, with further settings, and returns its time.
func runPipeline(program, settings string) time.Duration {
	must(os.RemoveAll("data"))
	must(os.WriteFile("pipeline.yaml", []byte("data: data\nhttp: off\npipelines:\n  a:\n    source: {file: {path: events.ndjson}}\n"+
		"    script: old.lua\n"+settings+"    sink: {stdout: {}}\n"), 0o600))
	took, _ := run(0, program, "run", "pipeline.yaml")
	return took
}

func writeEvents(n int) error {
	file, err := os.Create("events.ndjson")
	if err != nil {
		return err
	}
	text := bufio.NewWriter(file)
	for i := range n {
		fmt.Fprintf(text, `{"id":%d,"event_name":"%s","email":"user%d@example%d.com","time":"2026-11-22T10:%02d:%02dZ","amount":%d.5,"url":"/a/page/%d"}`+"\n",
			i, []string{"open", "click", "spam"}[i%3], i%5000, i%100, i/60%60, i%60, i%1000, i%1000)
	}
	return errors.Join(text.Flush(), file.Close())
}

// run runs the program on the events, with an exit code, and returns its time and the greatest
// number of bytes of its memory. Its output is discarded.
func run(code int, program string, args ...string) (time.Duration, int64) {
	in, err := os.Open("events.ndjson")
	must(err)
	defer in.Close()
	var faults strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, io.Discard, &faults
	began := time.Now()
	err = cmd.Run()
	took := time.Since(began)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = nil
		if exit.ExitCode() != code {
			err = exit
		}
	} else if err == nil && code != 0 {
		err = errors.New("no event differs")
	}
	if err != nil {
		must(fmt.Errorf("%v: %w\n%s", args, err, &faults))
	}
	return took, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10 // Linux counts KiB
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "diff:", err)
		os.Exit(1)
	}
}
