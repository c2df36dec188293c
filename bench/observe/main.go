// Command observe measures what it costs to look at a running engine: a reader of a tap that is slow,
// traces of one batch in a hundred, and a console that is open, compared with an engine that nobody looks at. All read the same
// events from their standard input, in turns.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/source/generate"
)

const script = `function main(event)
  if event.event_name == "spam" then return nil end
  event.domain = event.email:match("@(.+)$")
  return event
end
`

// An observer looks at an engine while it works.
type observer struct {
	name     string
	figure   string // of its speed, compared with that of an engine nobody looks at
	settings string // of the configuration
	// attach looks at the running engine. detach ends that, and seen returns how many bytes it has
	// seen, once the engine has ended.
	attach func() (detach func(), seen func() uint64)
}

func main() {
	perigee := flag.String("perigee", "../bin/perigee", "the program")
	count := flag.Int("rounds", 9, "rounds")
	events := flag.Uint64("events", 1_000_000, "events of a turn")
	flag.Parse()
	program, err := filepath.Abs(*perigee)
	must(err)
	folder, err := os.MkdirTemp("", "observe-")
	must(err)
	defer os.RemoveAll(folder)
	must(os.Chdir(folder))
	must(os.WriteFile("script.lua", []byte(script), 0o600))
	must(writeEvents(*events))

	receiver := newReceiver()
	defer receiver.Close()
	observers := []observer{
		{name: "nobody", settings: "http: off\n", attach: func() (func(), func() uint64) { return func() {}, func() uint64 { return 0 } }},
		{name: "slow reader of a tap", figure: "tap_vs_none", settings: "http: off\n", attach: tapSlowly},
		{name: "traces of 1 %", figure: "traces_1pct_vs_none",
			settings: "traces: {endpoint: \"" + receiver.URL + "\", sample: 1%}\nhttp: off\n", attach: receiver.attach},
		{name: "open console", figure: "console_open_vs_none", settings: "http: " + consoleAddress + "\n", attach: openConsole},
	}
	times, ratios, seen := make([][]float64, len(observers)), make([][]float64, len(observers)), make([]uint64, len(observers))
	for round := range *count {
		took := make([]float64, len(observers))
		for i := range observers {
			if round%2 == 1 {
				i = len(observers) - 1 - i
			}
			var n uint64
			took[i], n = turn(program, &observers[i])
			seen[i] += n
		}
		for i := range observers {
			times[i], ratios[i] = append(times[i], took[i]), append(ratios[i], took[0]/took[i])
		}
	}
	for i, o := range observers {
		fmt.Printf("%-22s %.2f s for %d events, %.0f kB seen in a turn\n", o.name, rounds.Median(times[i]), *events, float64(seen[i])/float64(*count)/1000)
		if o.figure != "" && seen[i] == 0 {
			must(fmt.Errorf("%s saw nothing", o.name))
		}
	}
	for i, o := range observers[1:] {
		fmt.Printf("figure %s %.3f\n", o.figure, rounds.Median(ratios[i+1]))
	}
}

func writeEvents(n uint64) error {
	var text []byte
	for i := range n {
		text = append(generate.Append(text, 1, i), '\n')
	}
	return os.WriteFile("events.ndjson", text, 0o600)
}

// turn runs an engine on all events, and returns the seconds from the first event to the end of its
// pipeline, and the bytes that the observer has seen. It leaves out how long the engine waits, up to a
// second, for the observer's request to end.
func turn(program string, o *observer) (seconds float64, seen uint64) {
	must(os.RemoveAll("data"))
	must(os.WriteFile("pipeline.yaml", []byte("data: data\n"+o.settings+
		"pipelines:\n  a:\n    source: {file: {path: \"-\"}}\n    script: script.lua\n    sink: {stdout: {}}\n"), 0o600))
	in, out, err := os.Pipe()
	must(err)
	log := newEndLog()
	cmd := exec.Command(program, "run", "pipeline.yaml")
	cmd.Stdin, cmd.Stderr = in, log
	must(cmd.Start())
	in.Close()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat("data/perigee.sock"); err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			must(fmt.Errorf("the engine does not start:\n%s", &log.text))
		}
	}
	detach, bytesSeen := o.attach()
	file, err := os.Open("events.ndjson")
	must(err)
	defer file.Close()
	began := time.Now()
	_, err = io.Copy(out, file)
	must(err)
	must(out.Close())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-log.ended:
		seconds = time.Since(began).Seconds()
	case err := <-ended:
		must(fmt.Errorf("the engine has ended without its pipeline: %w\n%s", err, &log.text))
	}
	detach()
	if err := <-ended; err != nil {
		must(fmt.Errorf("%w\n%s", err, &log.text))
	}
	return seconds, bytesSeen()
}

// An endLog keeps what an engine logs, and tells when its pipeline has ended.
type endLog struct {
	text  bytes.Buffer
	ended chan struct{}
}

func newEndLog() *endLog { return &endLog{ended: make(chan struct{})} }

// Write implements io.Writer. Each call has whole lines.
func (l *endLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("pipeline ended")) {
		close(l.ended)
	}
	return l.text.Write(p)
}

// tapSlowly reads all points of the pipeline as fast as a tap allows, through the engine's socket, but
// takes no more than 80 kB in a second.
func tapSlowly() (detach func(), seen func() uint64) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", "data/perigee.sock")
	}}}
	answer, err := client.Post("http://engine/admin/tap", "application/json", strings.NewReader(`{"pipeline":"a"}`))
	for i := 0; err != nil && i < 200; i++ { // the engine listens soon
		time.Sleep(5 * time.Millisecond)
		answer, err = client.Post("http://engine/admin/tap", "application/json", strings.NewReader(`{"pipeline":"a"}`))
	}
	must(err)
	if answer.StatusCode != http.StatusOK {
		must(fmt.Errorf("the tap answered %s", answer.Status))
	}
	var count atomic.Uint64
	go func() {
		some := make([]byte, 4<<10)
		for {
			n, err := answer.Body.Read(some)
			count.Add(uint64(n))
			if err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return func() {
		answer.Body.Close()
		client.CloseIdleConnections()
	}, count.Load
}

const consoleAddress = "127.0.0.1:42917"

// openConsole asks for what the first page of the console shows, once a second as that page does.
func openConsole() (detach func(), seen func() uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	var count atomic.Uint64
	go func() {
		for ctx.Err() == nil {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+consoleAddress+"/console/api/pipelines", strings.NewReader("{}"))
			must(err)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Perigee-Console", "1")
			if answer, err := http.DefaultClient.Do(request); err == nil {
				n, _ := io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					must(fmt.Errorf("the console answered %s", answer.Status))
				}
				count.Add(uint64(n))
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); http.DefaultClient.CloseIdleConnections() }, count.Load
}

// A receiver takes traces, and counts their bytes.
type receiver struct {
	*httptest.Server
	bytes atomic.Uint64
}

func newReceiver() *receiver {
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		n, _ := io.Copy(io.Discard, q.Body)
		r.bytes.Add(uint64(n))
	}))
	return r
}

func (r *receiver) attach() (detach func(), seen func() uint64) {
	before := r.bytes.Load()
	return func() {}, func() uint64 { return r.bytes.Load() - before }
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "observe:", err)
		os.Exit(1)
	}
}
