//go:build linux && cgo

package eventservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
)

// A Filter evaluates an SQL condition over events, in a process of its own that has no tables. It
// is for one goroutine.
type Filter struct {
	folder string
	store  *eventstore.Store
	where  string
}

// filterSQL numbers the events of a JSON array for which the condition below it is true.
const filterSQL = `SELECT number FROM (SELECT CAST(key AS INTEGER) AS number, CAST(value ->> 'time' AS TIMESTAMPTZ) AS time, ` +
	`value ->> 'point' AS point, value ->> 'sink' AS sink, value ->> 'partition' AS partition, CAST(value ->> 'position' AS UBIGINT) AS position, ` +
	`CASE WHEN json_valid(value ->> 'text') THEN CAST(value ->> 'text' AS JSON) END AS event, ` +
	`CASE WHEN NOT json_valid(value ->> 'text') THEN value ->> 'text' END AS text, value ->> 'stage' AS stage, value ->> 'error' AS error FROM json_each($events)) WHERE (
%s
) ORDER BY number`

// NewFilter returns the filter of a condition over the columns of a tapped event: time, point, sink,
// partition, position, event (JSON), text, stage and error. The caller closes it.
func NewFilter(ctx context.Context, where string) (*Filter, error) {
	folder, err := os.MkdirTemp("", "perigee-filter-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the filter: %w", err)
	}
	f := &Filter{folder: folder, where: where}
	f.store, err = eventstore.Open(filepath.Join(folder, folderName), eventstore.Options{Queries: 1, Threads: 1, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = f.Pass(ctx, []byte("[]"))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Pass returns the indexes, in order, of the events for which the condition is true. events is a
// JSON array of objects with the keys of a tap.Event, whose documents are in text: SQL refuses some
// that JSON allows, and the column event is NULL for those.
func (f *Filter) Pass(ctx context.Context, events []byte) (passed []int, err error) {
	rows, err := f.store.Query(ctx, fmt.Sprintf(filterSQL, f.where), eventstore.Param{Name: "events", Value: string(events)})
	if err != nil {
		return nil, f.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		number, ok := rows.Row()[0].(int64)
		if !ok {
			return nil, fmt.Errorf("the filter returned %T", rows.Row()[0])
		}
		passed = append(passed, int(number))
	}
	return passed, f.explain(rows.Err())
}

// explain adds the place in the condition to an error.
func (f *Filter) explain(err error) error {
	fault, ok := errors.AsType[*event.Fault](err)
	if !ok {
		return err
	}
	if fault.Line > 1 {
		fault.Line = min(fault.Line-1, strings.Count(f.where, "\n")+1)
	} else {
		fault.Line = 0
	}
	if fault.Hint == "" && strings.Contains(fault.Message, "onver") { // Conversion Error, could not convert
		fault.Hint = "TRY_CAST is NULL for a value that does not convert"
	}
	return explainWhere(f.where, fault)
}

// Close ends the process.
func (f *Filter) Close() error {
	var err error
	if f.store != nil {
		err = f.store.Close()
	}
	return errors.Join(err, os.RemoveAll(f.folder))
}
