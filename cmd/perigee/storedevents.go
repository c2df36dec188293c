package main

import (
	"context"
	"errors"
	"io"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/inspect"
	"github.com/perigeedb/perigee/source"
)

// storedEvents locate events for diff and replay.
type storedEvents struct {
	File        string `arg:"" name:"events" optional:"" help:"File with one JSON object per line, or with one JSON array; also gzip or zstd. - is standard input."`
	Source      string `placeholder:"URL" help:"Use the events that wait in a source, such as redis://127.0.0.1:6379/LIST, and leave them there."`
	Waiting     bool   `help:"Use the events that wait in the source of the pipeline, and leave them there."`
	DeadLetters bool   `help:"Use the dead letters of the pipeline."`
	Table       string `placeholder:"NAME" help:"Use the rows of a table of the event store."`
	Limit       uint64 `name:"events" placeholder:"N" help:"End after this number of events (default: all)."`
	Last        uint64 `placeholder:"N" help:"Use only the last N events; of a table, the last by its time."`
}

func (e *storedEvents) check() error {
	given := 0
	for _, is := range []bool{e.File != "", e.Source != "", e.Waiting, e.DeadLetters, e.Table != ""} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		return event.WithHint(usageError("no events are named"), "name a file, - for standard input, --source URL, --waiting, --dead-letters or --table NAME")
	case given > 1:
		return usageError("a file, --source, --waiting, --dead-letters and --table exclude each other: use one of them")
	case e.Limit > 0 && e.Last > 0:
		return usageError("--events and --last exclude each other: use one of them")
	}
	return nil
}

// read passes on the events, those of --events or --last only.
func (e *storedEvents) read(c *console, conf *config.Config, pipeline string, add func([]byte) error) error {
	switch {
	case e.Limit > 0:
		return e.readAll(c, conf, pipeline, limited(e.Limit, add))
	case e.Last > 0 && e.Table == "":
		kept := inspect.NewLast(e.Last)
		if err := e.readAll(c, conf, pipeline, kept.Add); err != nil {
			return err
		}
		return kept.Each(add)
	}
	return e.readAll(c, conf, pipeline, add)
}

// limited returns add for at most n events.
func limited(n uint64, add func([]byte) error) func([]byte) error {
	return func(event []byte) error {
		if err := add(event); err != nil {
			return err
		}
		if n--; n == 0 {
			return errLimitReached
		}
		return nil
	}
}

// readAll passes on all events.
func (e *storedEvents) readAll(c *console, conf *config.Config, pipeline string, add func([]byte) error) error {
	switch {
	case e.File != "":
		return readEvents(c, e.File, add)
	case e.DeadLetters:
		return e.readDeadLetters(conf, pipeline, add)
	case e.Table != "":
		return e.readTable(conf.Data, add)
	}
	var s source.Source
	var err error
	if e.Waiting {
		s, err = newPipelineSource(c, conf, pipeline)
	} else {
		s, err = newURLSource(c, e.Source)
	}
	if err != nil {
		return err
	}
	return readWaiting(c, s, e.Limit, add)
}

// readDeadLetters passes on the events of dead letters, those of several rows once.
func (e *storedEvents) readDeadLetters(conf *config.Config, pipeline string, add func([]byte) error) (err error) {
	filter := admin.Filter{Pipeline: pipeline}
	if conf.File == "" {
		filter = admin.Filter{} // of all pipelines of the data folder
	}
	a, err := admin.Open(conf.Data, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	var before admin.DeadLetter
	for letter, err := range a.DeadLetters(context.Background(), filter) {
		if err != nil {
			return err
		}
		same := letter.Pipeline == before.Pipeline && letter.Partition == before.Partition && letter.Position == before.Position
		if before.ID != "" && same {
			continue
		}
		before = letter
		if err := add(letter.Event()); err != nil {
			return err
		}
	}
	return nil
}

// readTable passes on the rows of a table as documents.
func (e *storedEvents) readTable(data string, add func([]byte) error) error {
	t, err := findTable(data, e.Table)
	if err != nil {
		return err
	}
	query := eventservice.RowQuery{Table: t, First: e.Limit, Last: e.Last, Time: exportTime}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rows, written := io.Pipe()
	go func() {
		written.CloseWithError(eventservice.WriteRows(ctx, data, query, written))
	}()
	err = inspect.Read(rows, add)
	rows.CloseWithError(errLimitReached)
	return err
}
