package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dropper is a script that lets the first event through, calls the second dead
// and drops the rest.
type dropper struct{}

func (dropper) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	out := &res.Outputs[0]
	out.Reset()
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], 0, in.Len()
	for i := range in.Len() {
		switch position := in.Range.First + uint64(i); position {
		case 0:
			out.Data = append(out.Data, in.Doc(i)...)
			out.Ends, out.From = append(out.Ends, uint32(len(out.Data))), append(out.From, uint32(i))
		case 1:
			res.Dead = append(res.Dead, event.DeadLetter{Position: position, Stage: "script", Error: "no"})
		default:
			res.Dropped++
		}
	}
	return nil
}

func (dropper) String() string { return "dropper" }
func (dropper) Close() error   { return nil }

// newPipeline makes one that reads ten events at once and further ones slowly.
func newPipeline(t *testing.T, name string) *pipeline.Pipeline {
	t.Helper()
	log, limits := slog.New(slog.DiscardHandler), source.Limits{Events: 10, Bytes: 1 << 20}
	src, err := generate.New(source.Env{Pipeline: name, Log: log, Limits: limits}, generate.Config{Events: 1e9, Rate: 100})
	if err != nil {
		t.Fatal(err)
	}
	letters, err := deadletter.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { letters.Close() })
	return pipeline.New(pipeline.Config{
		Name: name, Source: src, Script: dropper{}, DeadLetters: letters, Limits: limits, Log: log,
		Sinks: []pipeline.Sink{{Name: "stdout", Sink: stdout.New(io.Discard)}},
	})
}

// run runs p until the test ends.
func run(t *testing.T, p *pipeline.Pipeline) {
	t.Helper()
	ended := make(chan error)
	go func() { ended <- p.Run(context.Background()) }()
	t.Cleanup(func() {
		p.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func pipelines(all ...*pipeline.Pipeline) func() []*pipeline.Pipeline {
	return func() []*pipeline.Pipeline { return all }
}

func start(t *testing.T, c Config) *Server {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

func closeServer(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// get asks over one connection, so that no idle one outlives the test.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func overTCP(s *Server) (*http.Client, string) {
	return &http.Client{Transport: &http.Transport{}}, "http://" + s.Address().String()
}

func overSocket(folder string) (*http.Client, string) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(folder, datafolder.SocketName))
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}}, "http://perigee"
}

// shortFolder is a folder whose name fits into a socket's.
func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

func TestRoutes(t *testing.T) {
	folder := shortFolder(t)
	query := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "rows") })
	s := start(t, Config{Address: "127.0.0.1:0", Folder: folder, Handlers: map[string]http.Handler{"GET /query": query}})
	tcp, port := overTCP(s)
	unix, socket := overSocket(folder)
	for _, test := range []struct {
		client *http.Client
		url    string
		status int
		body   string
	}{
		{tcp, port + "/ping", 200, "pong\n"},
		{unix, socket + "/ping", 200, "pong\n"},
		{tcp, port + "/livez", 200, "pong\n"},
		{tcp, port + "/debug/pprof/cmdline", 404, "404 page not found\n"},
		{tcp, port + "/ready", 200, ""},
		{tcp, port + "/readyz", 200, ""},
		{unix, socket + "/query", 200, "rows"},
		{tcp, port + "/query", 404, "404 page not found\n"},
		{tcp, port + "/", 404, "404 page not found\n"},
	} {
		if status, body := get(t, test.client, test.url); status != test.status || body != test.body {
			t.Errorf("%s: %d %q", test.url, status, body)
		}
	}
	if status, body := get(t, unix, socket+"/debug/pprof/heap?debug=1"); status != 200 || !strings.Contains(body, "heap profile") {
		t.Errorf("the heap profile: %d %.100q", status, body)
	}
}

func TestReady(t *testing.T) {
	a, b := newPipeline(t, "a"), newPipeline(t, "b")
	s := start(t, Config{Address: "127.0.0.1:0", Pipelines: pipelines(a, b)})
	client, url := overTCP(s)
	expect := func(status int, body string) {
		t.Helper()
		if gotStatus, got := get(t, client, url+"/ready"); gotStatus != status || got != body {
			t.Errorf("got %d %q, want %d %q", gotStatus, got, status, body)
		}
	}
	expect(503, "a: starting\nb: starting\n")
	run(t, a)
	waitFor(t, func() bool { return a.Ready() == nil })
	expect(503, "a: ready\nb: starting\n")
	run(t, b)
	waitFor(t, func() bool { return b.Ready() == nil })
	expect(200, "a: ready\nb: ready\n")
	b.Drain()
	waitFor(t, func() bool { return b.Stats().State == pipeline.Stopped })
	expect(503, "a: ready\nb: stopped\n")
	if status, _ := get(t, client, url+"/ping"); status != 200 {
		t.Errorf("ping is %d", status)
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited for too long")
		}
	}
}

func TestMetrics(t *testing.T) {
	p := newPipeline(t, "emails")
	s := start(t, Config{Address: "127.0.0.1:0", Pipelines: pipelines(p)})
	run(t, p)
	waitFor(t, func() bool { // batches are settled in any order
		stats := p.Stats()
		return stats.Committed > 2 && stats.Dead["script"] == 1 && stats.Sinks[0].Rows == 1
	})
	client, url := overTCP(s)
	status, text := get(t, client, url+"/metrics")
	if status != 200 {
		t.Fatalf("%d: %s", status, text)
	}
	for _, line := range []string{
		`perigee_rows_written_total{pipeline="emails",sink="stdout"} 1`,
		`perigee_dead_letters_total{pipeline="emails",stage="script"} 1`,
		`perigee_events_dead_total{pipeline="emails"} 1`,
		`perigee_pipeline_state{pipeline="emails",state="running"} 1`,
		`perigee_pipeline_state{pipeline="emails",state="stopped"} 0`,
		`perigee_source_retries_total{pipeline="emails"} 0`,
		`perigee_dead_letter_store_retries_total{pipeline="emails"} 0`,
		`perigee_circuit_open{pipeline="emails"} 0`,
		`perigee_partitions{pipeline="emails",state="open"} 1`,
		`perigee_workers{pipeline="emails"} 0`,
		`perigee_events_replayed_total{pipeline="emails"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, name := range []string{"perigee_events_read_total", "perigee_read_bytes_total", "perigee_source_lag_events",
		"perigee_script_seconds_total", "perigee_sink_seconds_total", "process_resident_memory_bytes", "go_goroutines", "perigee_c_allocator_bytes"} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("no metric %s", name)
		}
	}
	for _, m := range Metrics() { // the reference names what is exposed
		if !strings.Contains(m.Name, "NAME") && !strings.HasPrefix(m.Name, "perigee_vms_") && !strings.HasPrefix(m.Name, "perigee_stats_") &&
			!strings.Contains(text, "# TYPE "+m.Name+" "+m.Type+"\n") {
			t.Errorf("no metric %s of type %s", m.Name, m.Type)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, "perigee_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestStartRefuses(t *testing.T) {
	folder := shortFolder(t)
	s := start(t, Config{Address: "127.0.0.1:0", Folder: folder})
	long := filepath.Join(folder, strings.Repeat("x", 120))
	for name, test := range map[string]struct {
		config Config
		want   string
	}{
		"a port in use":         {Config{Address: s.Address().String()}, "address already in use"},
		"not a port":            {Config{Address: "127.0.0.1:http?"}, "listen for http on 127.0.0.1:http?"},
		"a socket in use":       {Config{Folder: folder}, "another engine is running in this data folder"},
		"a long path":           {Config{Folder: long}, "choose a shorter data folder"},
		"no folder":             {Config{Folder: filepath.Join(folder, "none")}, "no such file"},
		"a port, but no socket": {Config{Address: "127.0.0.1:0", Folder: folder}, "another engine"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Start(test.config)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("started with %v", err)
			}
		})
	}
}

func TestSocket(t *testing.T) {
	folder := shortFolder(t)
	path := filepath.Join(folder, datafolder.SocketName)
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false) // as a kill leaves it
	stale.Close()

	s := start(t, Config{Folder: folder})
	if s.Address() != nil {
		t.Errorf("listens on %v without being told to", s.Address())
	}
	client, url := overSocket(folder)
	if status, _ := get(t, client, url+"/ping"); status != 200 {
		t.Errorf("ping is %d", status)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode is %o", mode)
	}
	closeServer(t, s)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A file that is no socket is not ours to remove.
func TestSocketSparesFiles(t *testing.T) {
	folder := shortFolder(t)
	path := filepath.Join(folder, datafolder.SocketName)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Config{Folder: folder}); err == nil {
		t.Error("started over a file")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func TestCloseLetsRequestsFinish(t *testing.T) {
	folder := shortFolder(t)
	began := make(chan bool)
	slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		began <- true
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // until nothing listens any more
			conn, err := net.Dial("unix", filepath.Join(folder, datafolder.SocketName))
			if err != nil {
				break
			}
			conn.Close()
			if time.Now().After(end) {
				t.Error("the server still takes connections a minute after it began to close")
				break
			}
		}
		fmt.Fprint(w, "whole")
	})
	s := start(t, Config{Folder: folder, Handlers: map[string]http.Handler{"GET /slow": slow}})
	closed := make(chan error)
	go func() {
		<-began
		closed <- s.Close(context.Background())
	}()
	client, url := overSocket(folder)
	if _, body := get(t, client, url+"/slow"); body != "whole" {
		t.Errorf("got %q", body)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestCloseCutsRequestsOff(t *testing.T) {
	folder := shortFolder(t)
	began := make(chan bool)
	stuck := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- true
		<-r.Context().Done()
	})
	s := start(t, Config{Folder: folder, Handlers: map[string]http.Handler{"GET /stuck": stuck}})
	closed := make(chan error)
	go func() {
		<-began
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		closed <- s.Close(ctx)
	}()
	client, url := overSocket(folder)
	if res, err := client.Get(url + "/stuck"); err == nil {
		res.Body.Close()
		t.Error("the request was answered")
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
