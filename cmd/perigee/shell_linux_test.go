package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/engine/eventservice"
)

// A keyboard is one end of a terminal. A program has the other end.
type keyboard struct {
	t     *testing.T
	end   *os.File
	mu    sync.Mutex
	shown strings.Builder
}

// openKeyboard returns a keyboard, and the program's end of its terminal.
func openKeyboard(t *testing.T) (k *keyboard, program *os.File) {
	t.Helper()
	program, master := openPTY(t)
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200}); err != nil {
		t.Fatal(err)
	}
	k = &keyboard{t: t, end: master}
	go func() {
		for part := make([]byte, 4096); ; {
			n, err := master.Read(part)
			if err != nil {
				return
			}
			k.mu.Lock()
			k.shown.Write(part[:n])
			k.mu.Unlock()
		}
	}()
	return k, program
}

// screen returns what the terminal has shown from a place on.
func (k *keyboard) screen(from int) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shown.String()[from:]
}

// awaits waits until the terminal has shown a prompt behind a place, and returns the place
// behind that.
func (k *keyboard) awaits(prompt string, from int) int {
	k.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if i := strings.Index(k.screen(from), prompt); i >= 0 {
			return from + i + len(prompt)
		}
		if time.Now().After(end) {
			k.t.Fatalf("the terminal does not show %q:\n%q", prompt, k.screen(from))
		}
	}
}

// TestShell enters statements on a terminal: over several lines, with completion, with a
// mistake, and again from the history.
func TestShell(t *testing.T) {
	if eventservice.Available() != nil {
		t.Skip("the event store needs cgo")
	}
	data := shortDir(t)
	file := write(t, "few.yaml", `
data: ${DATA}
http: off
pipelines:
  few:
    source: {generate: {events: 10}}
    sink: {eventstore: {table: events}}
`)
	runEngine(t, file, "DATA="+data).ends(0)
	state := t.TempDir()
	lookup := func(name string) (string, bool) { return state, name == "XDG_STATE_HOME" }
	type entry struct{ prompt, keys, answer string }
	enter := func(entries ...entry) {
		t.Helper()
		keyboard, program := openKeyboard(t)
		ended := make(chan int, 1)
		go func() {
			ended <- perigee([]string{"query", "--data", data}, console{in: program, out: program, err: program, lookup: lookup})
		}()
		at := 0
		for _, e := range entries {
			at = keyboard.awaits(e.prompt, at)
			if _, err := io.WriteString(keyboard.end, e.keys); err != nil {
				t.Fatal(err)
			}
			if e.answer != "" {
				at = keyboard.awaits(e.answer, at)
			}
		}
		select {
		case code := <-ended:
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the shell does not end:\n%q", keyboard.screen(0))
		}
	}
	enter(
		entry{shellPrompt, "SELECT count(*) * 1000\r", ""},
		entry{shellContinue, "AS many FRO\tevents;\r", "10000"},
		entry{shellPrompt, "SELECT nowhere\r", ""},
		entry{shellContinue, ";\r", "perigee: error: "},
		entry{shellPrompt, "SELECT 1\r", ""},
		entry{shellContinue, "half a line\x1b[D\x03", ""}, // discards the entered statement
		entry{shellPrompt, "\x03", ""},
		entry{shellPrompt, "SELECT * FROM range(1000);\r", "│    19 │\r\n│     · │\r\n│   980 │"},
		entry{"", "", "│   999 │"},
		entry{"", "", "(1000 rows, 40 shown)"},
		entry{shellPrompt, "SELECT * FROM range(40);\r", "(40 rows)"},
		entry{shellPrompt, ".maxrows 1\r", "use \\maxrows with a number from 2 to 10000"},
		entry{shellPrompt, ".maxrows 1000\r", ""},
		entry{shellPrompt, "SELECT * FROM range(1000);\r", "(1000 rows)"},
		entry{shellPrompt, "\\format csv\r", ""},
		entry{shellPrompt, "\\format no\r", "use \\format with table"},
		entry{shellPrompt, "SELECT 6 * 7 AS answer;\r", "answer\r\n42\r\n"},
		entry{shellPrompt, "\\help\r", "End a statement with a semicolon"},
		entry{shellPrompt, "\x04", ""},
	)
	piped, err := exec.Command("perigee", "query", "--data", data, "SELECT * FROM range(1000)").Output()
	if lines := strings.Count(string(piped), "\n"); err != nil || lines != 1005 {
		t.Errorf("a pipe gets %d lines (%v), want the 1000 rows, 4 lines around them and their number", lines, err)
	}
	history, err := os.ReadFile(filepath.Join(state, "perigee", "query-history"))
	if lines := strings.Split(string(history), "\n"); err != nil || !slices.Contains(lines, "AS many FROM events;") || !slices.Contains(lines, "SELECT 6 * 7 AS answer;") {
		t.Errorf("%v: the history is %q", err, history)
	}
	enter(
		entry{shellPrompt, "\x1b[A\x1b[A\r", "42"}, // \help, then the line before it
		entry{shellPrompt, "\\quit\r", ""},
	)
	// Commands of the shells of other databases.
	for _, quit := range []string{"exit", "QUIT;", ".exit"} {
		enter(
			entry{shellPrompt, "help\r", "End a statement with a semicolon"},
			entry{shellPrompt, ".help\r", "End a statement with a semicolon"},
			entry{shellPrompt, ".tables\r", "(1 row)"},
			entry{shellPrompt, ".schema events\r", "id"},
			entry{shellPrompt, ".schema\r", "column_name"},
			entry{shellPrompt, quit + "\r", ""},
		)
	}
}
