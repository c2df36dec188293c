package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/pipeline/deadletter"
)

type dlqCommand struct {
	List dlqListCommand `cmd:"" help:"List dead letters."`
}

type dlqListCommand struct {
	storeFlags
	Pipeline string `help:"Only those of this pipeline."`
	Stage    string `enum:"parse,script,column,sink," default:"" help:"Only those that failed there: parse, script, column or sink."`
	Format   string `enum:"table,json,ndjson" default:"table" help:"table, json or ndjson."`
}

func (dlqListCommand) Help() string {
	return `A dead letter is an event that could not be processed, with its position in the source, the stage and
the error that stopped it, and the bytes as they were read. json and ndjson hold all of it, the
script's traceback too. Works beside a running engine.

Examples:
  perigee dlq list
  perigee dlq list --config pipeline.yaml --pipeline emails --stage script
  perigee dlq list --format ndjson | jq -r .original`
}

func (l *dlqListCommand) Run(c *console) error {
	data, err := l.folder(c)
	if err != nil {
		return err
	}
	filter := deadletter.Filter{Pipeline: l.Pipeline, Stage: l.Stage}
	asked, err := askEngine(data, "GET", "/dlq", url.Values{
		"pipeline": {l.Pipeline}, "stage": {l.Stage}, "format": {l.Format},
	}, nil, c.out)
	if asked || err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(data, deadletter.FileName)); err != nil {
		return withHint(fmt.Errorf("no dead letters are kept: %w", err), "name the engine's data folder with --data, or its configuration with --config")
	}
	lock, err := own(data)
	if err != nil {
		return err
	}
	defer lock.Close()
	store, err := deadletter.Open(data)
	if err != nil {
		return err
	}
	defer store.Close()
	return printLetters(c.out, store, filter, l.Format)
}

// lettersHandler answers "perigee dlq list" beside a running engine.
func lettersHandler(store *deadletter.Store) http.Handler {
	return answering(func(w io.Writer, r *http.Request) error {
		q := r.URL.Query()
		return printLetters(w, store, deadletter.Filter{Pipeline: q.Get("pipeline"), Stage: q.Get("stage")}, q.Get("format"))
	})
}

// A letter is a dead letter as json and ndjson show it.
type letter struct {
	Pipeline  string    `json:"pipeline"`
	Partition string    `json:"partition"`
	Position  uint64    `json:"position"`
	Number    uint32    `json:"number"`
	Time      time.Time `json:"time"`
	Stage     string    `json:"stage"`
	Error     string    `json:"error"`
	Traceback string    `json:"traceback,omitempty"`
	Script    string    `json:"script,omitempty"`
	Original  string    `json:"original,omitempty"`
	Bytes     []byte    `json:"original_base64,omitempty"` // where the event is not UTF-8
}

func newLetter(l deadletter.Letter) letter {
	shown := letter{
		l.Pipeline, l.Partition, l.Position, l.Number, l.Time, l.Stage, l.Error, l.Traceback, l.Script, string(l.Original), nil,
	}
	if !utf8.Valid(l.Original) {
		shown.Original, shown.Bytes = "", l.Original
	}
	return shown
}

func printLetters(w io.Writer, store *deadletter.Store, filter deadletter.Filter, format string) error {
	if format == "table" {
		return letterTable(w, store, filter)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	separator, end := "", ""
	if format == "json" {
		separator, end = "[", "]\n"
	}
	for l, err := range store.List(filter) {
		if err != nil {
			return err
		}
		if format == "json" {
			fmt.Fprint(w, separator)
			separator = ","
		}
		if err := encoder.Encode(newLetter(l)); err != nil {
			return err
		}
	}
	if separator == "[" {
		end = "[]\n"
	}
	_, err := fmt.Fprint(w, end)
	return err
}

// letterTable prints at most as many letters as a person reads.
func letterTable(w io.Writer, store *deadletter.Store, filter deadletter.Filter) error {
	const rowsMax = 1000
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"pipeline", "partition", "position", "stage", "error", "event"})
	rows := 0
	for l, err := range store.List(filter) {
		if err != nil {
			return err
		}
		if rows++; rows <= rowsMax {
			t.AppendRow(table.Row{l.Pipeline, l.Partition, l.Position, l.Stage, firstLine(l.Error, 60), firstLine(string(l.Original), 60)})
		}
	}
	if rows > 0 {
		fmt.Fprintln(w, t.Render())
	}
	if rows > rowsMax {
		fmt.Fprintf(w, "the first %d are shown; --format ndjson shows all\n", rowsMax)
	}
	_, err := fmt.Fprintf(w, "%d dead letters\n", rows)
	return err
}
