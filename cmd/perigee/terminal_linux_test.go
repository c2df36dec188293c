package main

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// steering is what a terminal must not get: C0 but line ends, tabs and returns, DEL, C1
// and what turns text round. Colours of logs and the erasing of the progress line are our
// own.
var (
	steering = regexp.MustCompile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u0080-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
	ours     = regexp.MustCompile("\x1b\\[[0-9;]*[mK]")
)

const endMark = "<end>"

// openTerminal returns a terminal, and a function that returns its output so far.
func openTerminal(t *testing.T) (*os.File, func() string) {
	t.Helper()
	slave, master := openPTY(t)
	written := make(chan string, 1)
	go func() {
		var text strings.Builder
		for part := make([]byte, 4096); !strings.HasSuffix(text.String(), endMark); {
			n, err := master.Read(part)
			if text.Write(part[:n]); err != nil {
				break
			}
		}
		written <- strings.TrimSuffix(text.String(), endMark)
	}()
	return slave, func() string {
		io.WriteString(slave, endMark)
		select {
		case text := <-written:
			return text
		case <-time.After(10 * time.Second):
			t.Fatal("the terminal does not answer")
			return ""
		}
	}
}

// hostile steers a terminal in every way that there is; json is the same in JSON.
const (
	hostileText = "a\x1b[2J\x1b]0;title\x07\u009b31m\u202egnp\u2066\x7f\x08\r"
	hostileJSON = `a\u001b[2J\u001b]0;title\u0007\u009b31m\u202egnp\u2066\u007f\b\r`
)

// TestNothingSteersTheTerminal lets events, scripts, configurations and arguments put
// control characters into the output of commands.
func TestNothingSteersTheTerminal(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data := filepath.Join(folder, "data")
	events := write("events.ndjson", `{"a":"`+hostileJSON+"\"}\n{\"a\":\"\u202e\u009b\u007f\",\"die\":true}\n{\"\u202e\n")
	script := write("script.lua", "local log = require \"log\"\nfunction main(e) log.warn(e.a, {v = e.a}) if e.die then error(e.a) end return e end")
	changed := write("changed.lua", "function main(e) if e.die then error(e.a) end e[e.a] = e.a e.a = e.a .. e.a return e end")
	config := write("pipeline.yaml", "data: "+data+"\nhttp: 127.0.0.1:0\npipelines:\n  p:\n    source: {file: {path: "+events+"}}\n    script: script.lua\n    sink: {stdout: {}}\n")
	bad := write("bad.yaml", "data: x\npipelines:\n  p:\n    source: {file: {path: \""+hostileJSONForYAML+"\", nothing: \"\u009b\u202e\"}}\n    sink: {stdout: {}, \"\u202e\": 1}\n")
	for _, args := range [][]string{
		{"run", config}, {"run", config, "--log-format", "json"},
		{"dlq", "list", "--data", data}, {"dlq", "list", "--data", data, "--format", "json"}, {"dlq", "list", "--data", data, "--format", "ndjson"},
		{"query", "--data", data, "SELECT * FROM dead_letters"}, {"query", "--data", data, "--format", "csv", "SELECT * FROM dead_letters"},
		{"query", "--data", data, "--format", "ndjson", "SELECT * FROM dead_letters"}, {"query", "--data", data, "SELECT '" + hostileText + "' x FROM dead_letters"},
		{"query", "--data", data, "SELECT \"" + hostileText + "\" FROM dead_letters"}, {"query", "--data", data, hostileText},
		{"position", "show", config}, {"status", "--data", data}, {"status", "--data", hostileText},
		{"check", bad}, {"check", hostileText}, {"run", bad}, {"list", hostileText}, {hostileText}, {"dlq", "show", hostileText, "--data", data},
		{"inspect", events}, {"inspect", events, "--format", "json"}, {"inspect", hostileText}, {"inspect", "--source", hostileText}, {"inspect", "--pipeline", hostileText, "--config", config},
		{"diff", script, changed, events}, {"diff", script, changed, events, "--format", "json"}, {"diff", script, changed, events, "--format", "html"}, {"diff", hostileText, hostileText, events}, {"diff", script, "HEAD:" + hostileText, events}, {"diff", script, script, hostileText},
		{"eval", "-e", "require(\"log\").info(event.a) return event"}, {"eval", "-e", "error(event.a)"}, {"eval", "-e", hostileText},
		{"pause", hostileText, "--data", data, "--reason", hostileText}, {"resume", hostileText, "--data", data},
		{"dlq", "list", "--data", data, "--pipeline", hostileText}, {"dlq", "retry", hostileText, "--data", data},
	} {
		out, written := openTerminal(t)
		in, err := os.Open(events)
		if err != nil {
			t.Fatal(err)
		}
		standard := os.Stdout
		os.Stdout = out // for the sink
		perigee(args, console{in: in, out: out, err: out, lookup: os.LookupEnv})
		os.Stdout = standard
		in.Close()
		text := written()
		if args[0] != "list" && text == "" {
			t.Errorf("%q wrote nothing", args)
		}
		rest := strings.ReplaceAll(ours.ReplaceAllString(text, ""), "\r", "")
		if at := steering.FindStringIndex(rest); at != nil {
			t.Errorf("%q wrote %q", args, rest[max(0, at[0]-60):min(len(rest), at[1]+20)])
		}
	}
}

const hostileJSONForYAML = `\x1b[2J\x9b\u202e`

// TestLogsSteerNoTerminal logs control characters in every format, to a writer that is not a
// terminal.
func TestLogsSteerNoTerminal(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		log := logFlags{LogFormat: format, LogLevel: slog.LevelInfo}.newLogger(&console{err: &out, lookup: os.LookupEnv}, &out)
		log.Warn(hostileText, hostileText, hostileText, "error", os.PathError{Op: hostileText, Path: hostileText, Err: os.ErrNotExist})
		if at := steering.FindStringIndex(out.String()); at != nil {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}

// TestInitAsks answers the questions of init on a terminal: a default, a wrong kind, and a kind.
func TestInitAsks(t *testing.T) {
	t.Chdir(t.TempDir())
	in, master := openPTY(t)
	var out, questions strings.Builder
	if _, err := io.WriteString(master, "mails\n\n\nmysq\nmysql\n"); err != nil {
		t.Fatal(err)
	}
	if code := perigee([]string{"init"}, console{in: in, out: &out, err: &questions, lookup: os.LookupEnv}); code != 0 {
		t.Fatalf("init exits with %d: %s", code, questions.String())
	}
	for _, want := range []string{"Folder [.] ", "(empty: examples) [] ", "Source: file, generate, http, kafka, nats, redis [file] ", "mysql, postgres, redis, stdout ["} {
		if !strings.Contains(questions.String(), want) {
			t.Errorf("init does not ask %q:\n%s", want, questions.String())
		}
	}
	if asked := strings.Count(questions.String(), "Sink: "); asked != 2 {
		t.Errorf("init asks for the sink %d times, want 2", asked)
	}
	text, err := os.ReadFile("mails/pipeline.yaml")
	if err != nil || !strings.Contains(string(text), "file: {path: events.ndjson}") || !strings.Contains(string(text), "mysql:") {
		t.Errorf("pipeline.yaml is, %v:\n%s", err, text)
	}
}

// openPTY returns the program's end of a new terminal, and the other end.
func openPTY(t *testing.T) (program, master *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { program.Close() })
	return program, master
}
