// Command formats measures what it costs that events are lines of text or CSV: the engine
// reads files of the same size, one of NDJSON and one of each format, in turns, through a
// script that returns the event, as text seldom goes anywhere without a script.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/perigeedb/perigee/bench/rounds"
)

// kinds are the formats, with a record whose size is about that of the others.
var kinds = []struct {
	name   string
	header string
	record func(i int) string
}{
	{"json", "", func(i int) string {
		return fmt.Sprintf(`{"id":%d,"name":"ada lovelace","at":"2026-01-02T03:04:05Z","path":"/a/page/%d","status":200}`, i, i%1000)
	}},
	{"lines", "", func(i int) string {
		return fmt.Sprintf(`10.0.0.%d - - [02/Jan/2026:03:04:05 +0000] "GET /a/page/%d HTTP/1.1" 200 %d "-" "curl/8.5.0"`, i%256, i%1000, i)
	}},
	{"csv", "id,name,at,path,status,agent\n", func(i int) string {
		return fmt.Sprintf(`%d,"ada lovelace",2026-01-02T03:04:05Z,/a/page/%d,200,Mozilla/5.0 X11 Linux x86_64 and so on`, i, i%1000)
	}},
}

func main() {
	perigee := flag.String("perigee", "../bin/perigee", "the program")
	count := flag.Int("rounds", 7, "rounds")
	size := flag.Int("mb", 96, "size of each file")
	flag.Parse()
	program, err := filepath.Abs(*perigee)
	must(err)
	folder, err := os.MkdirTemp("", "formats-")
	must(err)
	defer os.RemoveAll(folder)
	times := map[string][]float64{}
	for _, kind := range kinds {
		var text bytes.Buffer
		text.WriteString(kind.header)
		for i := 0; text.Len() < *size<<20; i++ {
			text.WriteString(kind.record(i) + "\n")
		}
		must(os.WriteFile(filepath.Join(folder, kind.name), text.Bytes(), 0o600))
		must(os.WriteFile(filepath.Join(folder, kind.name+".yaml"), fmt.Appendf(nil,
			"http: off\npipelines: {p: {source: {file: {path: %s, format: %[1]s}}, script: {lua: function main(event) return event end}, sink: {stdout: {}}}}\n", kind.name), 0o600))
	}
	for range *count {
		for _, kind := range kinds {
			times[kind.name] = append(times[kind.name], run(program, folder, kind.name).Seconds())
		}
	}
	for _, kind := range kinds {
		fmt.Printf("%-5s %6.0f MB/s\n", kind.name, float64(*size)/rounds.Median(times[kind.name]))
	}
	for _, kind := range kinds[1:] {
		var ratios []float64
		for i, seconds := range times[kind.name] {
			ratios = append(ratios, times["json"][i]/seconds)
		}
		fmt.Printf("figure %s_vs_ndjson %.2f\n", kind.name, rounds.Median(ratios))
	}
}

// run returns the time of a run over one file.
func run(program, folder, name string) time.Duration {
	cmd := exec.Command(program, "run", filepath.Join(folder, name+".yaml"), "--data", filepath.Join(folder, "data"))
	var log bytes.Buffer
	cmd.Stderr = &log // standard output is discarded
	began := time.Now()
	if err := cmd.Run(); err != nil {
		must(fmt.Errorf("%w\n%s", err, &log))
	}
	return time.Since(began)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "formats:", err)
		os.Exit(1)
	}
}
