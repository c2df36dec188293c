package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/internal/terminal"
)

func newEncoder(w io.Writer) *json.Encoder {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder
}

func printLetterLines(w io.Writer, letters iter.Seq2[admin.DeadLetter, error]) error {
	encoder := newEncoder(w)
	for letter, err := range letters {
		if err != nil {
			return err
		}
		if err := encoder.Encode(letter); err != nil {
			return err
		}
	}
	return nil
}

func printLetterArray(w io.Writer, letters iter.Seq2[admin.DeadLetter, error]) error {
	encoder, separator := newEncoder(w), "["
	for letter, err := range letters {
		if err != nil {
			return err
		}
		fmt.Fprint(w, separator)
		separator = ","
		if err := encoder.Encode(letter); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, strings.TrimPrefix(separator+"]", ","))
	return err
}

// printLetterTable prints the first dead letters and the total number.
func printLetterTable(w io.Writer, letters iter.Seq2[admin.DeadLetter, error], queue admin.Queue) error {
	const rowsMax = 1000
	t := newTable("id", "pipeline", "position", "last stored (UTC)", "stage", "sink", "error", "event")
	t.SuppressEmptyColumns()
	var sum letterCounts
	for letter, err := range letters {
		if err != nil {
			return err
		}
		if sum.add(&letter); sum.all <= rowsMax {
			t.AppendRow(table.Row{
				letter.ID, letter.Pipeline, letter.Position, letter.Time.UTC().Format(timeLayout), letter.Stage, letter.Sink,
				firstLine(letter.Error, 60), firstLine(string(letter.Event()), 60),
			})
		}
	}
	if sum.all > 0 {
		fmt.Fprintln(w, t.Render())
	}
	if sum.all > rowsMax {
		fmt.Fprintf(w, "Listed the first %d; --format ndjson lists all.\n", rowsMax)
	}
	return sum.print(w, queue)
}

// letterCounts counts dead letters.
type letterCounts struct {
	all, uncommitted int
	stages           map[string]map[string]int // by pipeline
}

func (s *letterCounts) add(l *admin.DeadLetter) {
	s.all++
	if l.Uncommitted {
		s.uncommitted++
	}
	if s.stages == nil {
		s.stages = map[string]map[string]int{}
	}
	if s.stages[l.Pipeline] == nil {
		s.stages[l.Pipeline] = map[string]int{}
	}
	s.stages[l.Pipeline][l.Stage]++
}

func (s *letterCounts) print(w io.Writer, queue admin.Queue) error {
	_, err := fmt.Fprintln(w, countOf(s.all, "dead letter"))
	for _, pipeline := range slices.Sorted(maps.Keys(s.stages)) {
		var parts []string
		for _, stage := range slices.Sorted(maps.Keys(s.stages[pipeline])) {
			parts = append(parts, fmt.Sprintf("%d %s", s.stages[pipeline][stage], stage))
		}
		fmt.Fprintf(w, "  %s: %s\n", pipeline, strings.Join(parts, ", "))
	}
	if s.uncommitted > 0 {
		fmt.Fprintf(w, "%d belong to batches that are not committed\n", s.uncommitted)
	}
	for _, pipeline := range slices.Sorted(maps.Keys(queue.Waiting)) {
		fmt.Fprintf(w, "%d more of pipeline %s wait for their retry\n", queue.Waiting[pipeline], pipeline)
	}
	return err
}

// printLetter prints a dead letter in full.
func printLetter(w io.Writer, l *admin.DeadLetter) error {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-12s %s\n", name, strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", 13)))
		}
	}
	line("id", l.ID)
	line("pipeline", l.Pipeline)
	line("event", fmt.Sprintf("position %d of partition %s", l.Position, l.Partition))
	line("stage", l.Stage)
	if l.Sink != "" {
		line("sink", fmt.Sprintf("%s rejected row %d of the event, counted from 0", l.Sink, l.Number))
	}
	line("error", l.Error)
	line("script", l.Script)
	line("first stored", l.First.UTC().Format(timeLayout)+" UTC")
	line("last stored", l.Time.UTC().Format(timeLayout)+" UTC, after "+countOf(l.Retried+1, "attempt"))
	if l.Uncommitted {
		line("state", "its batch is not committed: the event may be read again")
	}
	if l.Traceback != "" {
		fmt.Fprintf(&b, "\ntraceback\n%s\n", strings.TrimRight(l.Traceback, "\n"))
	}
	if l.Row != "" {
		fmt.Fprintf(&b, "\nrow (a retry continues from here without running the script)\n%s\n", indentJSON([]byte(l.Row)))
	}
	original := l.Event()
	fmt.Fprintf(&b, "\nevent, %s\n%s\n", countOf(len(original), "byte"), indentJSON(original))
	_, err := io.WriteString(w, terminal.Escape(b.String()))
	return err
}

// indentJSON spreads JSON over several lines, and returns other text unchanged.
func indentJSON(text []byte) []byte {
	var indented bytes.Buffer
	if json.Indent(&indented, text, "", "  ") != nil {
		return text
	}
	return indented.Bytes()
}

// printRetry prints the number of queued dead letters, and when they are retried.
func printRetry(w io.Writer, r *admin.RetryResult, engine bool) {
	fmt.Fprintf(w, "%s queued for retry\n", countOf(r.Queued, "dead letter"))
	if r.Uncommitted > 0 {
		fmt.Fprintf(w, "%s skipped: the batch is not committed, and its events may be read again\n", countOf(r.Uncommitted, "dead letter"))
	}
	if !engine && len(r.Waiting) > 0 {
		fmt.Fprintln(w, `no engine is running: the next "perigee run" retries them`)
	}
	for _, pipeline := range r.Orphans {
		fmt.Fprintf(w, "%s of pipeline %s wait: the running engine has no such pipeline\n", countOf(r.Waiting[pipeline], "dead letter"), pipeline)
	}
}
