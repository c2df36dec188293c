package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/e2e"
)

const configuration = `
data: %s
http: %s
pipelines:
  hostile:
    source:
      http: {listen: "%s", max_body: 4MiB}
    sink:
      eventstore: {table: events}
  load:
    source:
      generate: {events: 100000000, rate: 2000}
    sink:
      eventstore: {table: load}
`

// A target is a live engine with an HTTP source and the event store.
type target struct {
	folder  string
	source  string // address that takes events
	metrics string // address of metrics
	socket  string // path of the engine's socket
	engine  *e2e.Process
	started time.Time
}

func startTarget(binary string) (t *target, err error) {
	t = &target{}
	if t.folder, err = os.MkdirTemp("", "hostile"); err != nil {
		return nil, err
	}
	for _, address := range []*string{&t.source, &t.metrics} {
		if *address, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(t.folder, "data")
	t.socket = filepath.Join(data, "perigee.sock")
	config := filepath.Join(t.folder, "pipeline.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, data, t.metrics, t.source), 0o600); err != nil {
		return nil, err
	}
	if t.engine, err = e2e.StartProcess(binary, config, t.logPath()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := t.engine.WaitReady(ctx, t.metrics); err != nil {
		t.printLog(os.Stderr)
		return nil, err
	}
	t.started = time.Now()
	return t, t.fill(ctx)
}

// fill posts the events that statements read, and waits until they are in the table.
func (t *target) fill(ctx context.Context) error {
	var body bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&body, `{"id":%d,"name":"name %d","tags":["a","b"],"nested":{"x":%d}}`+"\n", i, i%100, i)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if err := t.post(ctx, client, body.String()); err != nil {
		return err
	}
	sql := t.socketClient()
	defer sql.CloseIdleConnections()
	for {
		answer, _ := query(ctx, sql, "SELECT count(*) >= 5000 AS filled FROM events")
		if strings.Contains(answer, "true") {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the table was not filled: %s", answer)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// loaded returns how many events the pipeline load has committed, or 0 if that is not known.
func (t *target) loaded() (events float64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.metrics+"/metrics", nil)
	if err != nil {
		return 0
	}
	text, _ := do(http.DefaultClient, request)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, `perigee_events_committed_total{pipeline="load"} `); ok {
			events, _ = strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return events
}

func (t *target) logPath() string { return filepath.Join(t.folder, "log") }

func (t *target) printLog(w io.Writer) {
	log, _ := os.ReadFile(t.logPath())
	w.Write(log[:min(len(log), 2000)])
}

func (t *target) isAlive() bool {
	select {
	case <-t.engine.Done():
		return false
	default:
		return true
	}
}

func (t *target) stop() {
	if t != nil {
		t.engine.Kill()
		os.RemoveAll(t.folder)
	}
}

func (t *target) socketClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", t.socket)
	}}}
}

func (t *target) post(ctx context.Context, client *http.Client, body string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.source+"/", strings.NewReader(body))
	if err != nil {
		return err
	}
	_, err = do(client, request)
	return err
}

// query asks over the socket and returns the answer.
func query(ctx context.Context, client *http.Client, sql string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/query", strings.NewReader(sql))
	if err != nil {
		return "", err
	}
	return do(client, request)
}

func do(client *http.Client, request *http.Request) (string, error) {
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return string(text), err
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
