//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/event"
	store "github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/sink"
)

// Config is the sink's part of a pipeline's configuration.
type Config struct {
	Table string `yaml:"table,required" example:"emails" help:"table of the event store, created on first use. Declare its columns, time column and retention below tables"`

	Time    struct{} `yaml:"time,moved" help:"declare the table at the top of the configuration: tables: {NAME: {time: COLUMN}}"`
	Columns struct{} `yaml:"columns,moved" help:"declare the table at the top of the configuration: tables: {NAME: {columns: […]}}"`
}

// Name is the name of the kind in configurations.
const Name = "eventstore"

// Kind returns the event store as a kind of sink. It calls open when the first partition is
// opened; open returns a table of the engine's store. It calls written, unless nil, with
// the first rows that a sink has written to its table.
func Kind(open func(table string) (*store.Table, error), written func(table string, out *event.Output)) sink.Kind {
	return sink.Kind{
		Name:      Name,
		Doc:       "Writes events to a table of the embedded event store, where you can query them with SQL at once.",
		Guarantee: sink.ExactlyOnce,
		Place:     &sink.Place{Keys: []string{"table"}, Identity: identity},
		Config:    &Config{},
		New: func(env sink.Env, decode func(any) error) (sink.Sink, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			s, err := newSink(env.Pipeline, c, open)
			if err == nil {
				s.data, s.written = env.Data, written
			}
			return s, err
		},
	}
}

// identity ignores case, as the store does.
func identity(_ sink.Env, table string) (string, error) { return strings.ToLower(table), nil }

type eventSink struct {
	pipeline string
	data     string // the engine's folder
	name     string
	open     func(table string) (*store.Table, error)
	written  func(table string, out *event.Output)
	first    sync.Once // calls written

	mu    sync.Mutex
	table *store.Table
}

func newSink(pipeline string, c Config, open func(table string) (*store.Table, error)) (*eventSink, error) {
	if c.Table == "" {
		return nil, errors.New("table is missing: name the table to write to")
	}
	if err := store.CheckTableName(c.Table); err != nil {
		return nil, err
	}
	return &eventSink{pipeline: pipeline, name: c.Table, open: open}, nil
}

func (s *eventSink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	table, err := s.connect()
	if err != nil {
		return nil, nil, sinkError(err)
	}
	p, done, err := table.TakeOver(ctx, s.pipeline, partition)
	if err != nil {
		return nil, nil, sinkError(err)
	}
	return writer{p, s}, done, nil
}

// Traits implements sink.Sink.
func (s *eventSink) Traits() sink.Traits {
	return sink.Traits{Order: sink.AnyOrder, Positions: s, Check: s.check}
}

// check does not open the store, because a running engine may hold its lock.
func (s *eventSink) check(ctx context.Context) error {
	if info, err := os.Stat(s.data); err == nil && !info.IsDir() {
		return &event.PermanentError{Err: fmt.Errorf("%s is not a folder", s.data), Hint: "set data to another folder in the configuration"}
	}
	return ctx.Err()
}

func (s *eventSink) connect() (*store.Table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil || s.table.IsGone(s.name) {
		table, err := s.open(s.name)
		if err != nil {
			return nil, err
		}
		s.table = table
	}
	return s.table, nil
}

// Close leaves the store open: other sinks share it, and the engine closes it.
func (s *eventSink) Close() error { return nil }

type writer struct {
	*store.Partition
	sink *eventSink
}

// Verify implements sink.Writer. This process owns the store, so nobody can restore it from
// a backup meanwhile.
func (writer) Verify(context.Context) error { return nil }

func (w writer) Write(ctx context.Context, out *event.Output) error {
	err := w.Append(ctx, out)
	if err == nil && out.Len() > 0 && w.sink.written != nil {
		w.sink.first.Do(func() { w.sink.written(w.sink.name, out) })
	}
	return sinkError(err)
}

// sinkError converts an error of the store to one of package sink.
func sinkError(err error) error {
	if rejected, ok := errors.AsType[*store.RejectedRows](err); ok {
		rows := make([]sink.RowError, len(rejected.Rows))
		for i, row := range rejected.Rows {
			rows[i] = sink.RowError{Row: row.Row, Err: errors.New(row.Reason)}
			if row.Column != "" {
				rows[i].Stage = sink.StageColumn
			}
		}
		return &sink.RowErrors{Rows: rows}
	}
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrDropped) { // Open then uses the present table of that name
		return sink.ErrFenced
	}
	return err
}
