package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/bench/process"
)

// An engine moves lists into a table, with or without a state.
type engine struct {
	*bench
	database string // also names its data folder
	from     *redis.Client
	load     load
	script   string
	state    bool
}

func (b *bench) newEngine(database string, from *redis.Client, l load) *engine {
	return &engine{bench: b, database: database, from: from, load: l}
}

func (e *engine) data() string { return dataFolder(e.folder, e.database) }

func dataFolder(folder, name string) string { return filepath.Join(folder, "data-"+name) }

// configure writes script and configuration, and returns the path of the latter.
func (e *engine) configure() (string, error) {
	script, err := e.write("script.lua", e.script)
	if err != nil {
		return "", err
	}
	lists, settings := "list: "+listName(0), ""
	if e.load.lists > 1 {
		lists = `lists: "events*"`
	}
	if e.state {
		settings = "    state: {name: users}\n"
	}
	return e.write("pipeline.yaml", fmt.Sprintf(`data: %s
http: off
pipelines:
  p:
    source: {redis: {address: %q, db: %d, %s}}
    script: %s
%s    sink: {mysql: {address: %q, user: root, database: %s, table: events, columns: %s}}
`, e.data(), e.redis.Address(), e.from.Options().DB, lists, script, settings, e.maria.Address(), e.database, columns))
}

// drainLists runs the engine until the lists are empty. Its time ends then; CPU and disk also have what
// the engine does before it exits.
func (e *engine) drainLists(ctx context.Context) (*result, error) {
	config, err := e.configure()
	if err != nil {
		return nil, err
	}
	servers := startUsage(e.redis.PID(), e.maria.PID())
	before, err := e.received(ctx)
	if err != nil {
		return nil, err
	}
	run, err := startEngine(ctx, e.program, config, e.data(), "mysql")
	if err != nil {
		return nil, err
	}
	r, total := &result{}, int64(-1)
	for waiting := int64(1); waiting > 0; {
		if waiting, err = left(ctx, e.from, e.load.lists); err == nil {
			err = run.sleep(20 * time.Millisecond)
		}
		if err != nil {
			return nil, run.fail(err)
		}
		total = max(total, waiting)
		if e.state && r.noteBytes == 0 && waiting < total/2 {
			if r.noteBytes, err = e.readNoteBytes(ctx, config); err != nil {
				return nil, run.fail(err)
			}
		}
	}
	took := time.Since(run.began)
	if err := run.stop(r, e.load.events); err != nil {
		return nil, err
	}
	r.rate = float64(e.load.events) / took.Seconds()
	r.source, r.database = servers.perEvent(0, e.load.events), servers.perEvent(1, e.load.events)
	after, err := e.received(ctx)
	r.diskBytes = float64(run.written-(after-before)) / float64(e.load.events)
	return r, err
}

// eventsOfBatch is the default of batch.events.
const eventsOfBatch = 1000

// readNoteBytes returns the bytes of the notes that the home keeps, by event. Batches are full.
func (e *engine) readNoteBytes(ctx context.Context, config string) (float64, error) {
	out, err := exec.CommandContext(ctx, e.program, "state", "list", config, "--format", "json").Output()
	if err != nil {
		return 0, fmt.Errorf("list the state: %w", err)
	}
	var units []struct {
		First uint64 `json:"first_note"`
		Last  uint64 `json:"last_note"`
		Bytes uint64 `json:"note_bytes"`
	}
	if err := json.Unmarshal(out, &units); err != nil {
		return 0, fmt.Errorf("list the state: %w", err)
	}
	var notes, bytes uint64
	for _, u := range units {
		notes += u.Last - u.First + 1
		bytes += u.Bytes
	}
	return float64(bytes) / float64(notes) / eventsOfBatch, nil
}

// An engineRun is a running engine.
type engineRun struct {
	command *exec.Cmd
	began   time.Time
	log     strings.Builder
	home    string // sink whose commits are measured
	ended   chan error
	client  *http.Client // of its socket
	memory  func() int64 // stops watching
	written int64        // bytes, once it has ended
}

func startEngine(ctx context.Context, program, config, data, home string) (*engineRun, error) {
	run := &engineRun{command: exec.CommandContext(ctx, program, "run", config), home: home, began: time.Now(), ended: make(chan error, 1)}
	run.command.Stderr = &run.log
	run.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(data, "perigee.sock"))
	}}}
	if err := run.command.Start(); err != nil {
		return nil, err
	}
	run.memory = watchMemory(run.command.Process.Pid)
	go func() {
		pid := run.command.Process.Pid
		// The kernel has its figures until Wait.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		run.written = process.Written(pid)
		run.ended <- errors.Join(err, run.command.Wait())
	}()
	return run, nil
}

// watchMemory samples the memory of a process, without mapped files, until the function that it returns
// is called, which returns the peak.
func watchMemory(pid int) (peak func() int64) {
	stop, result := make(chan struct{}), make(chan int64)
	go func() {
		var peak int64
		for {
			peak = max(peak, process.MemoryOf(pid, process.ResidentAnonymous))
			select {
			case <-stop:
				result <- peak
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(stop); return <-result }
}

// sleep returns early, with an error, if the engine ends.
func (run *engineRun) sleep(d time.Duration) error {
	select {
	case err := <-run.ended:
		run.ended <- err
		return fmt.Errorf("the engine ended early: %w\n%s", errors.Join(err, errors.New("events were left")), &run.log)
	case <-time.After(d):
		return nil
	}
}

// fail stops the engine, and returns err.
func (run *engineRun) fail(err error) error {
	_ = run.command.Process.Kill()
	<-run.ended
	return err
}

// stop reads the metrics, stops the engine, and adds what it took to the result.
func (run *engineRun) stop(r *result, events int) error {
	metrics, err := run.readMetrics()
	if err != nil {
		return run.fail(err)
	}
	r.p50, r.p99 = metrics.commitTime(run.home, .5), metrics.commitTime(run.home, .99)
	r.resident = float64(process.MemoryOf(run.command.Process.Pid, process.PeakResident)) / 1e6
	if err := run.command.Process.Signal(syscall.SIGTERM); err != nil {
		return run.fail(err)
	}
	if err := <-run.ended; err != nil {
		return fmt.Errorf("the engine failed to stop: %w\n%s", err, &run.log)
	}
	if strings.Contains(run.log.String(), "dead letters") {
		return fmt.Errorf("events became dead letters:\n%s", &run.log)
	}
	r.memory = float64(run.memory()) / 1e6
	state := run.command.ProcessState
	r.program = perEvent(state.UserTime()+state.SystemTime(), events)
	return nil
}

// metrics are those of the engine, by name and labels.
type metrics map[string]float64

func (run *engineRun) readMetrics() (metrics, error) {
	response, err := run.client.Get("http://engine/metrics")
	if err != nil {
		return nil, fmt.Errorf("read the engine's metrics: %w", err)
	}
	defer response.Body.Close()
	return parseMetrics(response.Body)
}

func parseMetrics(from io.Reader) (metrics, error) {
	m := metrics{}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && found {
			m[name] = n
		}
	}
	return m, lines.Err()
}

// commitTime returns a quantile of the time of a commit in a sink, between the bounds of its bucket.
func (m metrics) commitTime(sink string, quantile float64) time.Duration {
	type bucket struct{ bound, count float64 }
	var buckets []bucket
	for name, count := range m {
		labels, isBucket := strings.CutPrefix(name, "perigee_sink_commit_seconds_bucket{")
		_, after, hasBound := strings.Cut(labels, `le="`)
		bound, err := strconv.ParseFloat(strings.TrimSuffix(after, `"}`), 64)
		if isBucket && hasBound && err == nil && strings.Contains(labels, `sink="`+sink+`"`) {
			buckets = append(buckets, bucket{bound, count})
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	if len(buckets) == 0 || buckets[len(buckets)-1].count == 0 {
		return 0
	}
	var below bucket
	want := quantile * buckets[len(buckets)-1].count
	for _, above := range buckets {
		if math.IsInf(above.bound, 1) {
			break
		}
		if above.count >= want {
			part := (want - below.count) / (above.count - below.count)
			return time.Duration((below.bound + part*(above.bound-below.bound)) * float64(time.Second))
		}
		below = above
	}
	return time.Duration(below.bound * float64(time.Second))
}
