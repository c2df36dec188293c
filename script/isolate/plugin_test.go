//go:build linux && cgo

package isolate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/goplugin"
)

func pluginLanguages() []script.Language { return []script.Language{goplugin.Language()} }

// pluginFolder is the folder of the plugins that buildPlugin has built.
var pluginFolder string

// hostile builds the plugin in testdata/hostile, once for all tests.
var hostile = sync.OnceValues(func() (string, error) { return buildPlugin("hostile") })

// buildPlugin builds a plugin in testdata into a folder that is removed after all tests.
func buildPlugin(name string) (path string, err error) {
	if pluginFolder == "" {
		if pluginFolder, err = os.MkdirTemp("", "perigee-test-"); err != nil {
			return "", err
		}
	}
	path = filepath.Join(pluginFolder, name+".so")
	return path, goplugin.Build(context.Background(), "testdata/"+name, path)
}

func removePlugins() {
	if pluginFolder != "" {
		os.RemoveAll(pluginFolder)
	}
}

var quick = script.Limits{EventTime: 50 * time.Millisecond, BatchTime: 2 * time.Second, Memory: 16 << 20, Output: 1 << 20}

func loadHostile(t *testing.T, limits script.Limits) script.Script {
	t.Helper()
	path, err := hostile()
	if err != nil {
		t.Fatal(err)
	}
	return load(t, goplugin.Language(), script.Code{Name: path}, script.Options{Limits: limits})
}

// TestHostilePlugin runs an event that attacks its process between good ones.
func TestHostilePlugin(t *testing.T) {
	for _, c := range []struct {
		do, dead string
		trace    string // part of the process's output
	}{
		{"exit", "exit code 3", ""},
		{"segv", "SIGSEGV", ""},
		{"panic elsewhere", "exit code 2", "in another goroutine"},
		{"overflow", "exit code 2", "stack"},
		{"spin", "time limit", ""},
		{"memory", "exit code 2", "out of memory"},
		{"frames", "invalid frame", ""},
		{"dial", "operation not permitted", ""},
		{"listen", "operation not permitted", ""},
		{"create", "operation not permitted", ""},
		{"read", "operation not permitted", ""},
		{"exec", "operation not permitted", ""},
		{"fork", "operation not permitted", ""},
		{"kill parent", "operation not permitted", ""},
		{"ptrace parent", "operation not permitted", ""},
		{"raise limits", "operation not permitted", ""},
		{"shrink memory", "operation not permitted", ""},
	} {
		t.Run(c.do, func(t *testing.T) {
			if c.do == "memory" && raceDetector {
				t.Skip("the race detector runs out of memory first, with an error of its own")
			}
			t.Parallel()
			s := loadHostile(t, quick)
			var docs []string
			for i := range 20 {
				docs = append(docs, fmt.Sprintf(`{"n":%d}`, i))
			}
			docs[7] = fmt.Sprintf(`{"do":%q}`, c.do)
			res := runDocs(t, s, docs...)
			if len(res.Dead) != 1 || res.Dead[0].Position != firstPosition+7 {
				t.Fatalf("dead letters are %v, want that of event 7", res.Dead)
			}
			dead := res.Dead[0]
			if dead.Stage != "script" || !strings.Contains(dead.Error, c.dead) || !strings.Contains(dead.Traceback, c.trace) {
				t.Errorf("dead letter is %v with %s, want %q and %q", &dead, dead.Traceback, c.dead, c.trace)
			}
			if res.Outputs[0].Len() != 19 {
				t.Errorf("%d good events came out, want 19", res.Outputs[0].Len())
			}
			t.Log(&dead)
		})
	}
}

// TestSleepingPlugin checks that the wall clock ends a process that waits.
func TestSleepingPlugin(t *testing.T) {
	s := loadHostile(t, script.Limits{EventTime: time.Millisecond, BatchTime: 2 * time.Millisecond})
	res := runDocs(t, s, `{"do":"sleep"}`)
	if len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, "time limit") {
		t.Errorf("dead letters are %v", res.Dead)
	}
}

// TestNoSecrets checks that a worker has neither the environment nor the files of its parent.
func TestNoSecrets(t *testing.T) {
	if _, err := hostile(); err != nil { // built for all tests, not in the folder of this one
		t.Fatal(err)
	}
	t.Setenv("PERIGEE_TEST_SECRET", "secret")
	t.Setenv("TZ", "UTC")
	t.Setenv("TMPDIR", t.TempDir())
	file, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := loadHostile(t, script.Limits{})
	pid := s.(*isolatedScript).first.process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil && os.Geteuid() == 0 { // only root can look into a worker
		t.Fatal(err)
	}
	for _, entry := range open {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, entry.Name()))
		if err != nil || strings.HasPrefix(name, "/") && name != os.DevNull && !strings.HasPrefix(name, "/sys/fs/cgroup/") && !strings.HasPrefix(name, "/memfd:perigee-script") {
			t.Errorf("the worker has %s open: %v", name, err)
		}
		t.Log(name)
	}
	res := runDocs(t, s, `{"do":"environ"}`, `{"do":"init"}`)
	const refused = `"operation not permitted"`
	if got, want := outLines(res), `{"environ":""} {"init":["dial tcp 127.0.0.1:1: socket: operation not permitted",`+refused+","+refused+","+refused+"]}"; got != want {
		t.Errorf("the worker has %s, want %s", got, want)
	}
}

// TestManyHostile runs batches in which events keep ending their processes: each batch ends at its
// time limit, and each run makes progress.
func TestManyHostile(t *testing.T) {
	s := loadHostile(t, script.Limits{BatchTime: 50 * time.Millisecond})
	const events = 20 // each ends a process
	docs := strings.Split(strings.Repeat(`{"do":"exit"}|`, events), "|")[:events]
	in, res := batchOf(docs...), resultOf()
	err := s.Run(t.Context(), in, res)
	limit, ok := errors.AsType[*script.LimitError](err)
	if !ok || res.Ran < 1 || res.Ran >= events || len(res.Dead) != res.Ran {
		t.Fatalf("%d ran, %d dead, error %v; want some and a limit", res.Ran, len(res.Dead), err)
	}
	t.Log(limit, res.Ran)
	var all int
	err = script.RunAll(t.Context(), s, batchOf(docs...), resultOf(), 0, func(_ *event.Batch, _ *script.LimitError) error { all++; return nil })
	if err != nil {
		t.Error(err)
	}
}

// TestMemoryOfWorker checks that a worker that hoards memory ends before it exceeds its limit.
func TestMemoryOfWorker(t *testing.T) {
	s := loadHostile(t, quick).(*isolatedScript)
	p, err := s.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	in := batchOf(`{"do":"memory"}`)
	p.memory.writePieces(in, part{0, 1}, 0, 1)
	_, err = p.ask(t.Context(), &request{message: message{kind: doRun, a: 1}, budget: budget{time.Minute, "the script"}, serve: s.serve(t.Context())})
	died, ok := errors.AsType[*exitError](err)
	if !ok {
		t.Fatalf("error is %v, want that the process ended", err)
	}
	const limit = 16<<20 + heapSlack + 96<<20 // including the program itself
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Fatal(err)
	}
	if own.Maxrss<<10 > limit { // the kernel may count the parent's 400 MiB: 435 MiB for a worker that has 157
		t.Skipf("the kernel counts the %d MiB of this process as the worker's, too, until that executes the program", own.Maxrss>>10)
	}
	if peak := died.state.SysUsage().(*syscall.Rusage).Maxrss << 10; peak > limit {
		t.Errorf("the worker had %d MiB, want at most %d", peak>>20, limit>>20)
	} else {
		t.Logf("peak %d MiB: %v", peak>>20, died)
	}
}

// TestChatter checks that a worker's output neither fills the memory of its parent nor blocks it.
func TestChatter(t *testing.T) {
	s := loadHostile(t, script.Limits{EventTime: 20 * time.Second, BatchTime: 20 * time.Second})
	if res := runDocs(t, s, `{"do":"chatter"}`, `{"n":1}`); res.Outputs[0].Len() != 2 {
		t.Errorf("dead letters are %v", res.Dead)
	}
}

// TestSpoiledMemory checks that a worker that overwrites the shared memory while it is read only
// affects its own events.
func TestSpoiledMemory(t *testing.T) {
	s := loadHostile(t, script.Limits{Memory: 16 << 20})
	good := loadHostile(t, script.Limits{Memory: 16 << 20})
	docs := []string{`{"do":"spoil rows"}`}
	for i := range 600 {
		docs = append(docs, fmt.Sprintf(`{"n":%d}`, i))
	}
	for range 20 {
		res := resultOf()
		_ = script.RunAll(t.Context(), s, batchOf(docs...), res, 0, func(*event.Batch, *script.LimitError) error {
			for i := range res.Outputs[0].Len() {
				if doc := res.Outputs[0].Doc(i); !json.Valid(doc) {
					t.Errorf("came out: %q", doc)
				}
			}
			return nil
		})
		if res := runDocs(t, good, docs[1:]...); len(res.Dead) > 0 {
			t.Fatalf("the neighbour has dead letters: %v", &res.Dead[0])
		}
	}
}

// TestFlood checks that an event with more output than a batch may have becomes a dead letter, and
// no other event.
func TestFlood(t *testing.T) {
	s := loadHostile(t, script.Limits{EventTime: 20 * time.Second, BatchTime: 20 * time.Second, Memory: 1 << 30, Output: 1 << 20})
	res := runDocs(t, s, `{"do":"flood"}`, `{"n":1}`)
	if len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, "output limit") || res.Outputs[0].Len() != 1 {
		t.Errorf("%d rows, dead letters %v", res.Outputs[0].Len(), res.Dead)
	}
}

// TestCloseOfProcess checks that closing a process closes its socket.
func TestCloseOfProcess(t *testing.T) {
	s := loadHostile(t, quick).(*isolatedScript)
	p, err := s.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := p.process.Socket.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("its socket after Close: %v", err)
	}
}

// TestProgress checks the count of a process's runs, and whether one is in progress.
func TestProgress(t *testing.T) {
	var p process
	for run := range uint32(3) {
		for _, running := range []bool{true, true, false, false} {
			before := run
			if running {
				before++
			}
			if running && p.progress.Load()&1 == 1 {
				continue // it runs already
			}
			p.setRunning(running)
			if runs, now := p.Progress(); runs != max(before, run+1) || now != running {
				t.Errorf("run %d: %d runs, running %v", run, runs, now)
			}
		}
	}
}

// TestLayout checks that the areas of the shared memory consist of whole pages and are large enough
// for the limits.
func TestLayout(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: pageBytes, pageBytes - 1: pageBytes, pageBytes: pageBytes, pageBytes + 1: 2 * pageBytes} {
		if got := roundUp(n); got != want {
			t.Errorf("%d bytes are rounded to %d", n, got)
		}
	}
	for _, output := range []int{1, 1000, 1 << 20, 1<<20 + 1, 1<<32 + 5} {
		l := newLayout(script.Limits{Output: output})
		if l.data < min(output, 1<<32-1-pageBytes) || l.data%pageBytes != 0 || l.data > 1<<32-1 || l.rows < 1<<16 || l.size() < l.request+l.data+16*l.rows+l.text {
			t.Errorf("%d bytes of output: %v", output, l)
		}
		if again, err := parseLayout(l.String()); err != nil || again != l {
			t.Errorf("%v is read as %v, %v", l, again, err)
		}
	}
}
