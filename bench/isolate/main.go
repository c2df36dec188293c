// Command isolate measures what "isolate: process" costs: the email script of the examples
// on batches of a thousand events, in this process and in a child process, in turns, and
// the time in which a child starts and loads the script.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/isolate"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/source/generate"
)

const (
	inProcess = "in process"
	isolated  = "isolate: process"

	batchEvents = 1000
	batches     = 16
	starts      = 21
)

func main() {
	launcher := isolate.Init(lua.Language()) // first: this process may be a script worker
	examples := flag.String("examples", "../examples", "the folder of the examples")
	count := flag.Int("rounds", 15, "rounds")
	slice := flag.Duration("slice", 300*time.Millisecond, "time of each contestant in each round")
	flag.Parse()
	text, err := os.ReadFile(filepath.Join(*examples, "email", "email.lua"))
	must(err)
	code := script.Code{Name: "email.lua", Text: text}
	results := rounds.MeasureEqually([]rounds.Contestant{
		contestant(inProcess, lua.Language(), code),
		contestant(isolated, launcher.Language(lua.Language()), code),
	}, *count, *slice)
	rounds.Print(os.Stdout, fmt.Sprintf("email script, per batch of %d events", batchEvents), results, inProcess)
	start := measureStart(launcher.Language(lua.Language()), code)
	fmt.Printf("figure isolated_vs_in_process %.2f\n", rounds.Ratio(results, isolated, inProcess))
	fmt.Printf("figure child_start_ms %.1f\n", start)
}

// contestant runs the script on the same batches again and again.
func contestant(name string, lang script.Language, code script.Code) rounds.Contestant {
	s, err := lang.Load(context.Background(), code, script.Options{Sinks: []script.Sink{{}}})
	must(err)
	in := make([]event.Batch, batches)
	for i := range in {
		first := uint64(i) * batchEvents
		for n := range uint64(batchEvents) {
			in[i].Append(generate.Append(nil, 1, first+n))
		}
		in[i].Range = event.Range{First: first, Count: batchEvents}
	}
	res := &event.Result{Outputs: make([]event.Output, 1)}
	return rounds.Contestant{Name: name, Run: func(n int) {
		for i := range n {
			must(s.Run(context.Background(), &in[i%batches], res))
		}
	}}
}

// measureStart returns the median time in milliseconds in which a child has loaded the code.
func measureStart(lang script.Language, code script.Code) float64 {
	var times []float64
	for range starts {
		began := time.Now()
		s, err := lang.Load(context.Background(), code, script.Options{Sinks: []script.Sink{{}}})
		must(err)
		times = append(times, float64(time.Since(began).Microseconds())/1000)
		must(s.Close())
	}
	return rounds.Median(times)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolate:", err)
		os.Exit(1)
	}
}
