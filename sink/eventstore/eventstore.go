//go:build cgo

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
	Table   string   `yaml:"table,required" help:"table of the event store; it is made if it is missing"`
	Time    string   `yaml:"time" help:"field with the event's time, RFC 3339 or Unix seconds, which every event must have; may be absent"`
	Columns []Column `yaml:"columns" help:"columns with a type of their own; all other fields are inferred"`
}

// A Column is declared instead of inferred.
type Column struct {
	Name     string `yaml:"name,required" help:"of the column"`
	Type     string `yaml:"type" help:"bool, int32, int64, float64, decimal, string, timestamp or json"`
	Field    string `yaml:"field" help:"field of the event, as user.email; default: the name"`
	Required bool   `yaml:"required" help:"an event without it is a dead letter"`
}

// Kind offers the event store to configurations. open is called when the first
// partition is opened, and returns the engine's one store.
func Kind(open func() (*store.Store, error)) sink.Kind {
	return sink.Kind{
		Name:      "eventstore",
		Doc:       "Writes events to a table of the embedded event store, where SQL finds them at once.",
		Guarantee: sink.ExactlyOnce,
		Config:    &Config{},
		New: func(env sink.Env, decode func(any) error) (sink.Sink, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			s, err := newSink(env.Pipeline, c, open)
			if err == nil {
				s.data = env.Data
			}
			return s, err
		},
	}
}

type eventSink struct {
	pipeline string
	data     string // the engine's folder
	name     string
	config   store.TableConfig
	open     func() (*store.Store, error)

	mu    sync.Mutex
	table *store.Table
}

func newSink(pipeline string, c Config, open func() (*store.Store, error)) (*eventSink, error) {
	if c.Table == "" {
		return nil, errors.New("table is missing: name the table that events go to")
	}
	s := &eventSink{pipeline: pipeline, name: c.Table, open: open, config: store.TableConfig{Time: c.Time}}
	for _, column := range c.Columns {
		kind, ok := event.ParseType(column.Type)
		if !ok {
			return nil, fmt.Errorf("column %s: unknown type %q: one of %s", column.Name, column.Type, strings.Join(event.TypeNames(), ", "))
		}
		field := column.Field
		if field == "" {
			field = column.Name
		}
		s.config.Columns = append(s.config.Columns, event.Column{
			Name: column.Name, Path: strings.Split(field, "."), Type: kind, Required: column.Required,
		})
	}
	return s, nil
}

func (s *eventSink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	table, err := s.connect()
	if err != nil {
		return nil, nil, classify(err)
	}
	p, done, err := table.Take(ctx, s.pipeline, partition)
	if err != nil {
		return nil, nil, classify(err)
	}
	return writer{p}, done, nil
}

// Traits implements sink.Sink.
func (s *eventSink) Traits() sink.Traits {
	return sink.Traits{Order: sink.AnyOrder, Positions: s, Check: s.check}
}

// check does not open the store: a running engine may have its lock.
func (s *eventSink) check(ctx context.Context) error {
	if info, err := os.Stat(s.data); err == nil && !info.IsDir() {
		return &event.PermanentError{Err: fmt.Errorf("%s is not a folder", s.data), Hint: "name another folder with data in the configuration"}
	}
	return ctx.Err()
}

func (s *eventSink) connect() (*store.Table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil {
		opened, err := s.open()
		if err != nil {
			return nil, err
		}
		if s.table, err = opened.Table(s.name, s.config); err != nil {
			return nil, err
		}
	}
	return s.table, nil
}

// Close leaves the store open: it is shared, and whoever opened it closes it.
func (s *eventSink) Close() error { return nil }

type writer struct{ *store.Partition }

// Verify implements sink.Writer. The store belongs to this process: nobody sets it back.
func (writer) Verify(context.Context) error { return nil }

func (w writer) Write(ctx context.Context, out *event.Output) error {
	return classify(w.Append(ctx, out))
}

// classify says what the pipeline makes of an error.
func classify(err error) error {
	if refused, ok := errors.AsType[*store.Refused](err); ok {
		rows := make([]sink.RowError, len(refused.Rows))
		for i, row := range refused.Rows {
			rows[i] = sink.RowError{Row: row.Row, Err: errors.New(row.Reason)}
		}
		return &sink.RowErrors{Rows: rows}
	}
	if errors.Is(err, store.ErrFenced) {
		return sink.ErrFenced
	}
	return err
}
