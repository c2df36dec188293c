package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/sqltext"
	"github.com/perigeedb/perigee/internal/terminal"
)

const (
	shellPrompt   = "perigee> "
	shellContinue = "     ..> "
	shellHelp     = `End a statement with a semicolon. Ctrl-C discards the entered statement, or cancels a running one; Ctrl-D quits.

  SHOW TABLES;         list the tables; also .tables
  DESCRIBE events;     list the columns of a table; also .schema events, or .schema for all tables
  SHOW QUERIES;        list the running queries; KILL 7; ends query 7
  \maxrows N           show N rows of a longer table, half from its end (default 40)
  \format FORMAT       write rows as table, json, ndjson or csv
  \help                show this text; also help and .help
  \quit                quit; also quit, exit and .quit
`
	// maxRowsMax is the maximum number of rows of a table.
	maxRowsMax = 10_000
	// candidatesMax is the maximum number of names that Tab lists.
	candidatesMax = 60
	// namesTimeout bounds the query for names to complete.
	namesTimeout = 2 * time.Second
)

// A shell reads statements from a terminal and runs them.
type shell struct {
	console *console
	in      *os.File
	data    string
	base    eventservice.Request
	keys    *keyReader
	term    *term.Terminal
	names   []string // names that Tab completes, sorted
}

func newShell(c *console, in *os.File, data string, base eventservice.Request) *shell {
	s := &shell{console: c, in: in, data: data, base: base}
	screen := c.out
	if w, ok := screen.(interface{ Unwrap() io.Writer }); ok {
		screen = w.Unwrap() // the terminal package moves the cursor
	}
	s.keys = &keyReader{in: in}
	s.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{s.keys, screen}, shellPrompt)
	s.term.AutoCompleteCallback = s.complete
	return s
}

// run reads and runs statements until the end of the input.
func (s *shell) run() error {
	history := openHistory(s.console.lookup)
	defer history.close()
	s.term.History = history
	fmt.Fprintf(s.console.out, "Perigee SQL. \\help shows help.\n")
	s.loadNames()
	text := ""
	for {
		line, err := s.readLine(text != "")
		switch {
		case err == io.EOF:
			fmt.Fprintln(s.console.out)
			return nil
		case err != nil:
			return fmt.Errorf("read from the terminal: %w", err)
		case s.keys.wasInterrupted(): // discard the entered statement
			text = ""
			continue
		}
		if words := commandWords(line); text == "" && words != nil {
			if s.runCommand(words) {
				return nil
			}
			continue
		}
		if text += line + "\n"; strings.TrimSpace(text) == "" {
			text = ""
		}
		if sqltext.Ends(text) {
			s.execute(text)
			text = ""
		}
	}
}

// readLine reads a line. The terminal is raw meanwhile, so that Ctrl-C does not end the shell.
func (s *shell) readLine(begun bool) (string, error) {
	before, err := term.MakeRaw(int(s.in.Fd()))
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(int(s.in.Fd()), before) }()
	if width, height, err := term.GetSize(int(s.in.Fd())); err == nil && width > 0 {
		_ = s.term.SetSize(width, height)
	}
	s.term.SetPrompt(shellPrompt)
	if begun {
		s.term.SetPrompt(shellContinue)
	}
	line, err := s.term.ReadLine()
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return line, err
}

// A keyReader reads keys, and turns Ctrl-C into an empty line. A term.Terminal would treat
// Ctrl-C as the end of the input, for all later lines too.
type keyReader struct {
	in          io.Reader
	emptyLine   []byte // unread rest of the empty line
	interrupted bool
}

func (r *keyReader) Read(p []byte) (int, error) {
	if len(r.emptyLine) == 0 {
		n, err := r.in.Read(p)
		const ctrlC = 3
		at := bytes.IndexByte(p[:n], ctrlC)
		if at < 0 {
			return n, err
		}
		r.interrupted, r.emptyLine = true, []byte("\x15\x0b\r") // deletes before and behind the cursor
		if at > 0 {
			return at, nil
		}
	}
	n := copy(p, r.emptyLine)
	r.emptyLine = r.emptyLine[n:]
	return n, nil
}

// wasInterrupted reports whether Ctrl-C ended the last line.
func (r *keyReader) wasInterrupted() bool {
	interrupted := r.interrupted
	r.interrupted = false
	return interrupted
}

// commandWords returns the words of a command of the shell itself, or nil for SQL. Like other
// SQL shells, it accepts commands that begin with a dot, and a few bare words.
func commandWords(line string) []string {
	line = strings.TrimSpace(strings.TrimRight(strings.TrimSpace(line), ";"))
	switch words := strings.Fields(line); {
	case len(words) == 0:
		return nil
	case words[0][0] == '\\' || words[0][0] == '.':
		return append([]string{`\` + words[0][1:]}, words[1:]...)
	case len(words) == 1 && slices.Contains([]string{"help", "quit", "exit"}, strings.ToLower(words[0])):
		return []string{`\` + strings.ToLower(words[0])}
	}
	return nil
}

// runCommand runs a command of the shell itself. It reports whether the shell ends.
func (s *shell) runCommand(words []string) (end bool) {
	switch {
	case slices.Contains([]string{`\q`, `\quit`, `\exit`}, words[0]):
		return true
	case words[0] == `\tables`:
		s.executeAll("SHOW TABLES")
	case words[0] == `\schema` && len(words) == 1:
		s.executeAll("SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'main' ORDER BY table_name, ordinal_position")
	case words[0] == `\schema`:
		s.executeAll(`DESCRIBE "` + strings.ReplaceAll(strings.Trim(words[1], `"`), `"`, `""`) + `"`)
	case words[0] == `\maxrows`:
		s.setMaxRows(words[1:])
	case words[0] == `\format` && len(words) == 2 && slices.Contains(strings.Split(eventservice.Formats, ","), words[1]) && !eventservice.IsBinary(words[1]):
		s.base.Format = words[1]
	case words[0] == `\format`:
		fmt.Fprintln(s.console.out, "use \\format with table, json, ndjson or csv")
	default:
		fmt.Fprint(s.console.out, shellHelp)
	}
	return false
}

// setMaxRows sets the number of rows that are shown of a longer table.
func (s *shell) setMaxRows(words []string) {
	n := 0
	if len(words) == 1 {
		n, _ = strconv.Atoi(words[0])
	}
	if n < 2 || n > maxRowsMax {
		fmt.Fprintf(s.console.out, "use \\maxrows with a number from 2 to %d, such as \\maxrows 100\n", maxRowsMax)
		return
	}
	s.base.Shown = n
}

// executeAll runs a statement and shows all of its rows.
func (s *shell) executeAll(text string) {
	shown := s.base.Shown
	s.base.Shown = 0
	s.execute(text)
	s.base.Shown = shown
}

// execute runs the statements of a text and prints the time that they took.
func (s *shell) execute(text string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	begin := time.Now()
	err := runStatements(ctx, s.console.out, s.data, "SQL", text, s.base)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		printError(s.console.err, err, "")
		return
	}
	if s.base.Format == "table" {
		fmt.Fprintf(s.console.out, "%v\n", time.Since(begin).Round(time.Millisecond))
	}
}

// sqlWords are the keywords that Tab completes, in addition to names.
var sqlWords = strings.Fields(`SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET HAVING QUALIFY WITH AS DISTINCT ALL AND OR NOT NULL IS IN LIKE ILIKE BETWEEN
	CASE WHEN THEN ELSE END JOIN LEFT RIGHT FULL INNER OUTER CROSS ON USING UNION EXCEPT INTERSECT VALUES OVER PARTITION WINDOW INTERVAL TIMESTAMP
	DESCRIBE SHOW TABLES QUERIES SUMMARIZE EXPLAIN ANALYZE KILL DESC ASC CAST FILTER`)

// loadNames queries the names that Tab completes. The shell also works without them.
func (s *shell) loadNames() {
	names := slices.Clone(sqlWords)
	for _, g := range eventservice.Functions() {
		if g.Name != "operators" {
			names = append(names, g.Names...)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), namesTimeout)
	defer stop()
	var out bytes.Buffer
	err := eventservice.Query(ctx, s.data, eventservice.Request{
		SQL:    "SELECT DISTINCT unnest([table_name, column_name]) AS name FROM information_schema.columns WHERE table_schema = 'main'",
		Format: "ndjson", Time: namesTimeout,
	}, &out)
	for decoder := json.NewDecoder(&out); err == nil; {
		var row struct{ Name string }
		if err = decoder.Decode(&row); err == nil && terminal.EscapeLine(row.Name) == row.Name {
			names = append(names, row.Name)
		}
	}
	slices.Sort(names)
	s.names = slices.Compact(names)
}

// complete completes the word before the cursor when Tab is pressed. If several names match,
// it completes their common prefix, or lists them.
func (s *shell) complete(line string, at int, key rune) (string, int, bool) {
	if key != '\t' {
		return "", 0, false
	}
	begin := at
	for begin > 0 && isNameByte(line[begin-1]) {
		begin--
	}
	word := line[begin:at]
	if word == "" {
		return "", 0, false
	}
	found := candidates(s.names, word)
	if len(found) == 0 {
		return "", 0, false
	}
	completed := commonPrefix(found)
	if len(found) == 1 {
		completed += " "
	} else if len(completed) <= len(word) {
		shown := found[:min(len(found), candidatesMax)]
		more := ""
		if len(shown) < len(found) {
			more = fmt.Sprintf(" … and %d more", len(found)-len(shown))
		}
		fmt.Fprintf(s.term, "%s%s\n", strings.Join(shown, "  "), more)
		return line, at, true
	}
	return line[:begin] + completed + line[at:], begin + len(completed), true
}

func isNameByte(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// candidates returns the names that begin with a word. It ignores case only if no name matches
// exactly.
func candidates(names []string, word string) (found []string) {
	for _, n := range names {
		if strings.HasPrefix(n, word) {
			found = append(found, n)
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, n := range names {
		if len(n) >= len(word) && strings.EqualFold(n[:len(word)], word) {
			found = append(found, n)
		}
	}
	return found
}

func commonPrefix(names []string) string {
	prefix := names[0]
	for _, n := range names[1:] {
		for !strings.HasPrefix(n, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return strings.ToValidUTF8(prefix, "")
}

// historyMax is the number of lines that a history keeps.
const historyMax = 1000

// A history contains the lines entered in this shell and in earlier ones.
type history struct {
	lines []string // oldest first
	file  *os.File // nil if the file cannot be opened
}

// openHistory reads the history of the user, $XDG_STATE_HOME/perigee/query-history.
func openHistory(lookup func(string) (string, bool)) *history {
	h := &history{}
	folder, _ := lookup("XDG_STATE_HOME")
	if folder == "" {
		home, _ := lookup("HOME")
		if home == "" {
			return h
		}
		folder = filepath.Join(home, ".local", "state")
	}
	folder = filepath.Join(folder, "perigee")
	path := filepath.Join(folder, "query-history")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return h
	}
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		h.lines = append(h.lines, strings.TrimSuffix(line, "\n"))
	}
	if len(h.lines) > 2*historyMax {
		h.lines = h.lines[len(h.lines)-historyMax:]
		_ = os.WriteFile(path, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600)
	}
	h.file, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return h
}

// Add implements term.History.
func (h *history) Add(line string) {
	if strings.TrimSpace(line) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if h.file != nil {
		_, _ = io.WriteString(h.file, strings.ReplaceAll(line, "\n", " ")+"\n")
	}
}

// Len implements term.History.
func (h *history) Len() int { return len(h.lines) }

// At implements term.History.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

func (h *history) close() {
	if h.file != nil {
		_ = h.file.Close()
	}
}
