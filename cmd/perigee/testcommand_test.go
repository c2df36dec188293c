package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/engine/suite"
	"github.com/perigeedb/perigee/internal/terminal"
)

// TestWatch edits a script in another folder, and the tests, while they are watched.
func TestWatch(t *testing.T) {
	folder, library := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script, tests := filepath.Join(library, "a.lua"), filepath.Join(folder, "a_test.yaml")
	write(filepath.Join(folder, "pipeline.yaml"), "pipelines:\n  a:\n    source: {generate: {events: 1}}\n    script: "+script+"\n    sink: {stdout: {}}\n")
	write(script, "function main(event) event.n = 1 return event end")
	write(tests, "cases:\n  - {name: counts, events: [{}], rows: [{n: 2}]}\n")
	cmd := exec.Command("perigee", "test", "--watch", folder)
	out, err := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	await := func(prefix string) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case line, more := <-lines:
				if !more {
					t.Fatalf("the command ended before %q", prefix)
				}
				if strings.HasPrefix(line, prefix) {
					return
				}
			case <-deadline:
				_ = cmd.Process.Kill()
				t.Fatalf("no line %q", prefix)
			}
		}
	}
	await("FAIL " + tests + ": ")
	await("waiting for changes")
	write(script, "function main(event) event.n = 2 return event end -- repaired")
	await("ok ")
	write(tests, "cases: []\n")
	await("FAIL ")
	write(tests, "cases:\n  - {name: counts, events: [{}], rows: [{n: 2}]}\n")
	await("ok ")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for range lines {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("an interrupted watch ended with %v", err)
	}
}

// TestColours writes a report to a terminal, which gets colours of ours and none of the events'.
func TestColours(t *testing.T) {
	report := &suite.Report{File: "a_test.yaml", Results: []suite.Result{{Name: "a", Differences: []suite.Difference{{What: "rows", Want: "x", Got: "\x1b[2Jy"}}}}}
	for _, test := range []struct {
		name, format string
		noColour     bool
		want         bool
	}{{"text", "text", false, true}, {"NO_COLOR", "text", true, false}, {"TAP", "tap", false, false}} {
		var out bytes.Buffer
		c := &console{out: terminal.NewWriter(&out), lookup: func(name string) (string, bool) { return "1", test.noColour && name == "NO_COLOR" }}
		w := (&testCommand{Format: test.format}).newWriter(c)
		if err := w.Report(report); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "\x1b[32m+ "); got != test.want {
			t.Errorf("%s: colours %t, want %t: %q", test.name, got, test.want, out.String())
		}
		if strings.Contains(out.String(), "\x1b[2J") {
			t.Errorf("%s: an event clears the terminal: %q", test.name, out.String())
		}
	}
}
