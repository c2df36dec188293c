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
	for _, sink := range []struct {
		figure, title string
		script.Sink
	}{
		{"isolated_vs_in_process", "documents", script.Sink{}},
		{"isolated_columns_vs_in_process", "columns of a table", script.Sink{Columns: tableColumns(), ColumnsOnly: true}},
	} {
		results := rounds.MeasureEqually([]rounds.Contestant{
			contestant(inProcess, lua.Language(), code, sink.Sink),
			contestant(isolated, launcher.Language(lua.Language()), code, sink.Sink),
		}, *count, *slice)
		rounds.Print(os.Stdout, fmt.Sprintf("email script into %s, per batch of %d events", sink.title, batchEvents), results, inProcess)
		fmt.Printf("figure %s %.2f\n", sink.figure, rounds.Ratio(results, isolated, inProcess))
	}
	start := measureStart(launcher.Language(lua.Language()), code)
	fmt.Printf("figure child_start_ms %.1f\n", start)
}

// tableColumns are the columns of the table of examples/email.
func tableColumns() []event.Column {
	columns := []event.Column{
		{Name: "id", Type: event.Int64, Required: true},
		{Name: "event_name", Type: event.String, Required: true},
		{Name: "email", Type: event.String, Required: true},
		{Name: "domain", Type: event.String},
		{Name: "class", Type: event.String},
		{Name: "topic", Type: event.String},
		{Name: "campaign_number", Type: event.Int32},
		{Name: "time", Type: event.Timestamp, Required: true},
	}
	for i := range columns {
		columns[i].Path = []string{columns[i].Name}
	}
	return columns
}

// contestant runs the script on the same batches again and again.
func contestant(name string, lang script.Language, code script.Code, sink script.Sink) rounds.Contestant {
	s, err := lang.Load(context.Background(), code, script.Options{Sinks: []script.Sink{sink}})
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
