package lua

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A worker is a process that runs test/processes/worker.lua.
type worker struct {
	name    string
	command *exec.Cmd
	durable atomic.Int64 // the last entry reported as durable
	ready   chan struct{}
	output  bytes.Buffer // all output except progress
	ended   chan error
}

func startWorker(t *testing.T, i interpreter, store string, seconds int) *worker {
	t.Helper()
	w := &worker{name: i.command, ready: make(chan struct{}), ended: make(chan error, 1)}
	w.command = exec.Command(i.command, "test/processes/worker.lua", store, w.name, strconv.Itoa(seconds))
	w.command.Env = i.environment(t)
	w.command.Stderr = os.Stderr
	output, err := w.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			number, isProgress := strings.CutPrefix(lines.Text(), "durable ")
			switch n, err := strconv.ParseInt(number, 10, 64); {
			case isProgress && err == nil:
				w.durable.Store(n)
			case lines.Text() == "ready":
				close(w.ready)
			default:
				fmt.Fprintln(&w.output, lines.Text())
			}
		}
		w.ended <- w.command.Wait()
	}()
	t.Cleanup(func() { w.command.Process.Kill() })
	return w
}

func (w *worker) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.command.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v: %v; it said: %s", w.name, s, err, w.output.String())
	}
}

// waitForProgress fails the test unless the worker makes something durable.
func (w *worker) waitForProgress(t *testing.T, while string) {
	t.Helper()
	before := w.durable.Load()
	for deadline := time.Now().Add(30 * time.Second); w.durable.Load() == before; {
		if time.Now().After(deadline) {
			t.Fatalf("%s: no progress %s", w.name, while)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestProcesses changes one store from Lua 5.4 and LuaJIT. It stops one process and lets it
// continue, and kills the other. NODEDB_SECONDS is the duration; the default is short.
func TestProcesses(t *testing.T) {
	seconds := 10
	if text := os.Getenv("NODEDB_SECONDS"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 10 {
			t.Fatalf("NODEDB_SECONDS=%s: it must be a number from 10 on", text)
		}
	} else if testing.Short() {
		t.Skip("takes 10 s")
	}
	store := filepath.Join(t.TempDir(), "store")
	luajit, lua54 := interpreters[0], interpreters[4]
	stopped := startWorker(t, luajit, store, seconds)
	killed := startWorker(t, lua54, store, seconds)
	part := time.Duration(seconds) * time.Second / 5
	for _, w := range []*worker{stopped, killed} {
		select {
		case <-w.ready:
		case err := <-w.ended:
			t.Fatalf("%s: %v: %s", w.name, err, w.output.String())
		case <-time.After(30 * time.Second):
			t.Fatalf("%s does not start", w.name)
		}
	}
	time.Sleep(part)
	stopped.waitForProgress(t, "beside the other process")
	killed.waitForProgress(t, "beside the other process")

	// The other one takes over after 3 s, unless the process was stopped during a commit: then the
	// other waits until it continues.
	stopped.signal(t, syscall.SIGSTOP)
	before := killed.durable.Load()
	time.Sleep(max(part, 4*time.Second))
	t.Logf("%s made %d transactions durable while %s was stopped", killed.name, killed.durable.Load()-before, stopped.name)
	stopped.signal(t, syscall.SIGCONT)
	stopped.waitForProgress(t, "after it was stopped")
	killed.waitForProgress(t, "after the other process was stopped")

	killed.signal(t, syscall.SIGKILL)
	<-killed.ended
	stopped.waitForProgress(t, "after the other process was killed")
	if err := <-stopped.ended; err != nil || !strings.HasPrefix(stopped.output.String(), "done ") {
		t.Fatalf("%s: %v: %s", stopped.name, err, stopped.output.String())
	}
	t.Log(stopped.name, strings.TrimSpace(stopped.output.String()))
	if killed.output.Len() > 0 {
		t.Fatalf("%s: %s", killed.name, killed.output.String())
	}

	output, err := lua54.run(t, "test/processes/verify.lua", store,
		stopped.name, strconv.FormatInt(stopped.durable.Load(), 10),
		killed.name, strconv.FormatInt(killed.durable.Load(), 10))
	if err != nil || output != "consistent\n" {
		t.Fatalf("%v: %s", err, output)
	}
}
