//go:build linux && cgo

package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/goplugin"
)

func pluginLanguages() []script.Language { return []script.Language{goplugin.Language()} }

// pluginFolder is where hostile has built its plugin.
var pluginFolder string

// hostile builds the plugin in testdata/hostile once for all tests.
var hostile = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "perigee-test-")
	if err != nil {
		return "", err
	}
	pluginFolder = folder
	path := filepath.Join(folder, "hostile.so")
	return path, goplugin.Build(context.Background(), "testdata/hostile", path)
})

func removePlugins() {
	if pluginFolder != "" {
		os.RemoveAll(pluginFolder)
	}
}

var quick = script.Limits{EventTime: 50 * time.Millisecond, BatchTime: 2 * time.Second, Memory: 16 << 20}

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
		trace    string // part of what the process said
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

// TestSleepingPlugin: a process that waits is ended by the clock.
func TestSleepingPlugin(t *testing.T) {
	s := loadHostile(t, script.Limits{EventTime: time.Millisecond, BatchTime: 2 * time.Millisecond})
	res := runDocs(t, s, `{"do":"sleep"}`)
	if len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, "time limit") {
		t.Errorf("dead letters are %v", res.Dead)
	}
}

// TestNoSecrets: a worker has no environment and no files of its parent.
func TestNoSecrets(t *testing.T) {
	t.Setenv("PERIGEE_TEST_SECRET", "secret")
	t.Setenv("TZ", "UTC")
	file, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := loadHostile(t, script.Limits{})
	pid := s.(*isolatedScript).first.process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
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
	if got, want := outLines(res), `{"environ":"TZ=UTC"} {"init":["dial tcp 127.0.0.1:1: socket: operation not permitted",`+refused+","+refused+","+refused+"]}"; got != want {
		t.Errorf("the worker has %s, want %s", got, want)
	}
}

// TestManyHostile: when events keep ending their processes, the batch ends after its time
// and each run makes progress.
func TestManyHostile(t *testing.T) {
	s := loadHostile(t, script.Limits{BatchTime: 50 * time.Millisecond})
	docs := strings.Split(strings.Repeat(`{"do":"exit"}|`, 50), "|")[:50]
	in, res := batchOf(docs...), resultOf()
	err := s.Run(t.Context(), in, res)
	limit, ok := errors.AsType[*script.LimitError](err)
	if !ok || res.Ran < 1 || res.Ran >= 50 || len(res.Dead) != res.Ran {
		t.Fatalf("%d ran, %d dead, error %v; want some and a limit", res.Ran, len(res.Dead), err)
	}
	t.Log(limit, res.Ran)
	var all int
	err = script.RunAll(t.Context(), s, batchOf(docs...), resultOf(), 0, func(_ *event.Batch, _ *script.LimitError) error { all++; return nil })
	if err != nil {
		t.Error(err)
	}
}
