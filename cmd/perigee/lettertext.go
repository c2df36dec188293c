package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// A letter is a dead letter as json and ndjson show it.
type letter struct {
	ID        string    `json:"id"`
	Pipeline  string    `json:"pipeline"`
	Partition string    `json:"partition"`
	Position  uint64    `json:"position"`
	Sink      string    `json:"sink,omitempty"`
	Number    uint32    `json:"number"`
	First     time.Time `json:"first"`
	Time      time.Time `json:"time"`
	Retried   int       `json:"retried"`
	Unsettled bool      `json:"unsettled"`
	Stage     string    `json:"stage"`
	Error     string    `json:"error"`
	Traceback string    `json:"traceback,omitempty"`
	Script    string    `json:"script,omitempty"`
	Original  string    `json:"original,omitempty"`
	Bytes     []byte    `json:"original_base64,omitempty"` // where the event is not UTF-8
}

func newLetter(l deadletter.Letter) letter {
	shown := letter{
		l.ID(), l.Pipeline, l.Partition, l.Position, l.Sink, l.Number, l.First, l.Time, l.Retried, l.Uncommitted,
		l.Stage, l.Error, l.Traceback, l.Script, string(l.Original), nil,
	}
	if !utf8.Valid(l.Original) {
		shown.Original, shown.Bytes = "", l.Original
	}
	return shown
}

const timeLayout = "2006-01-02 15:04:05"

// letterTable prints at most as many letters as a person reads, and counts all.
func letterTable(w io.Writer, store *deadletter.Store, filter deadletter.Filter) error {
	const rowsMax = 1000
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"id", "pipeline", "position", "last kept (UTC)", "stage", "sink", "error", "event"})
	t.SuppressEmptyColumns()
	var sum tally
	for l, err := range store.List(filter) {
		if err != nil {
			return err
		}
		if sum.add(l); sum.all <= rowsMax {
			t.AppendRow(table.Row{
				l.ID(), l.Pipeline, l.Position, l.Time.UTC().Format(timeLayout), l.Stage, l.Sink,
				firstLine(l.Error, 60), firstLine(string(l.Original), 60),
			})
		}
	}
	if sum.all > 0 {
		fmt.Fprintln(w, t.Render())
	}
	if sum.all > rowsMax {
		fmt.Fprintf(w, "the first %d are shown; --format ndjson shows all\n", rowsMax)
	}
	queued, err := store.Queued()
	if err != nil {
		return err
	}
	return sum.print(w, queued)
}

// A tally counts letters.
type tally struct {
	all, unsettled int
	stages         map[string]map[string]int // by pipeline
}

func (s *tally) add(l deadletter.Letter) {
	s.all++
	if l.Uncommitted {
		s.unsettled++
	}
	if s.stages == nil {
		s.stages = map[string]map[string]int{}
	}
	if s.stages[l.Pipeline] == nil {
		s.stages[l.Pipeline] = map[string]int{}
	}
	s.stages[l.Pipeline][l.Stage]++
}

func (s *tally) print(w io.Writer, queued map[string]int) error {
	_, err := fmt.Fprintln(w, counted(s.all, "dead letter"))
	for _, pipeline := range slices.Sorted(maps.Keys(s.stages)) {
		var parts []string
		for _, stage := range slices.Sorted(maps.Keys(s.stages[pipeline])) {
			parts = append(parts, fmt.Sprintf("%d %s", s.stages[pipeline][stage], stage))
		}
		fmt.Fprintf(w, "  %s: %s\n", pipeline, strings.Join(parts, ", "))
	}
	if s.unsettled > 0 {
		fmt.Fprintf(w, "%d of them belong to batches that are not committed yet\n", s.unsettled)
	}
	for _, pipeline := range slices.Sorted(maps.Keys(queued)) {
		fmt.Fprintf(w, "%d more of %s wait to be tried again\n", queued[pipeline], pipeline)
	}
	return err
}

// describeLetter prints everything about a letter for a person.
func describeLetter(w io.Writer, l deadletter.Letter) error {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-11s %s\n", name, strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", 12)))
		}
	}
	line("id", l.ID())
	line("pipeline", l.Pipeline)
	line("event", fmt.Sprintf("position %d of partition %s", l.Position, l.Partition))
	line("stage", l.Stage)
	if l.Sink != "" {
		line("sink", fmt.Sprintf("%s lacks row %d of the event, counted from 0", l.Sink, l.Number))
	}
	line("error", l.Error)
	line("script", l.Script)
	line("first kept", l.First.UTC().Format(timeLayout)+" UTC")
	line("last kept", l.Time.UTC().Format(timeLayout)+" UTC, after "+counted(l.Retried+1, "attempt"))
	if l.Uncommitted {
		line("state", "its batch is not committed yet, so that the event may be read again")
	}
	if l.Traceback != "" {
		fmt.Fprintf(&b, "\ntraceback\n%s\n", strings.TrimRight(l.Traceback, "\n"))
	}
	fmt.Fprintf(&b, "\nevent, %s\n%s\n", counted(len(l.Original), "byte"), legible(l.Original))
	_, err := io.WriteString(w, b.String())
	return err
}

// legible shows an event as a person reads it best: JSON over several lines, other
// text as it is, and quoted what a terminal would not show.
func legible(event []byte) string {
	var shown bytes.Buffer
	if json.Indent(&shown, event, "", "  ") == nil {
		event = shown.Bytes()
	}
	unseen := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if !utf8.Valid(event) || bytes.ContainsFunc(event, unseen) {
		return fmt.Sprintf("%q", event)
	}
	return string(event)
}
