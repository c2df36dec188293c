//go:build linux && cgo

package eventservice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/eventstore"
)

// Tables describes the tables of the event store in a data folder, sorted by name.
func Tables(ctx context.Context, data string) ([]Table, error) {
	return do(ctx, data, "/tables", struct{}{}, listTables)
}

func listTables(_ context.Context, s *eventstore.Store, _ struct{}) ([]Table, error) {
	stats, err := s.Stats()
	all := []Table{}
	for _, t := range stats {
		all = append(all, newTable(&t))
	}
	return all, err
}

func newTable(stats *eventstore.TableStats) Table {
	t := Table{
		Name: stats.Name, Event: stats.Event, Time: stats.Time, Schema: stats.Version, Rows: stats.LogRows, LogRows: stats.LogRows,
		Oldest: timeOrNil(stats.MinTime), Newest: timeOrNil(stats.MaxTime), Files: []File{}, Columns: []Column{}, Deletes: []Delete{},
	}
	if stats.Retention > 0 {
		t.Retention = stats.Retention.String()
	}
	if u := stats.Unique; u != nil {
		t.Unique = &Unique{Key: u.Key, Window: u.Window.String(), Keys: u.Keys, Bytes: u.Bytes, Memory: u.Memory, Repeated: u.Repeated}
	}
	for _, f := range stats.Files {
		t.Rows += f.Rows
		t.Bytes += f.Bytes
		t.Files = append(t.Files, File{Name: f.Name, Rows: f.Rows, Bytes: f.Bytes, Oldest: timeOrNil(f.MinTime), Newest: timeOrNil(f.MaxTime), Schema: f.Schema, Recomputing: f.Recomputing})
	}
	for _, c := range stats.Columns {
		t.Columns = append(t.Columns, Column{Name: c.Name, Type: c.Type})
	}
	for _, d := range stats.Deletions {
		t.Deletes = append(t.Deletes, newDelete(d))
	}
	for _, r := range stats.Recomputes {
		t.Recomputes = append(t.Recomputes, newRecompute(r))
	}
	return t
}

func newRecompute(r eventstore.Recompute) Recompute {
	return Recompute{
		Number: r.Number, Table: r.Table, Column: r.Column, RequestedAt: r.RequestedAt, Ended: timeOrNil(r.Ended), Rows: r.Rows, Failed: r.Failed, Error: r.Error, Stopped: r.Stopped,
		Files: r.Files, Done: r.Done, InLog: r.InLog, Idle: r.Idle,
	}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func newDelete(d eventstore.Deletion) Delete {
	return Delete{Number: d.Number, Table: d.Table, Where: d.Predicate, RequestedAt: d.RequestedAt}
}

// DeleteRows deletes the present rows of a table for which where, an SQL expression over the
// table's columns, is true. When it returns, they are removed from queries. WaitDeleted
// waits until they are removed from files.
func DeleteRows(ctx context.Context, data, table, where string) (Delete, error) {
	d, err := do(ctx, data, "/tables/delete", Delete{Table: table, Where: where}, deleteRows)
	return d, whereError(where, err)
}

func deleteRows(ctx context.Context, s *eventstore.Store, d Delete) (Delete, error) {
	deletion, err := s.Delete(ctx, d.Table, d.Where)
	return newDelete(deletion), err
}

// WaitDeleted returns once no file contains the rows of a delete.
func WaitDeleted(ctx context.Context, data string, d Delete) error {
	_, err := do(ctx, data, "/tables/deleted", d, waitDeleted)
	return err
}

func waitDeleted(ctx context.Context, s *eventstore.Store, d Delete) (struct{}, error) {
	return struct{}{}, s.WaitDeleted(ctx, eventstore.Deletion{Number: d.Number, Table: d.Table, Predicate: d.Where, RequestedAt: d.RequestedAt})
}

// CancelDelete ends an unfinished delete. Rows that files or the log still contain become
// visible again. It returns the number of files that were already rewritten without its rows.
func CancelDelete(ctx context.Context, data, table string, number uint64) (without int, err error) {
	return do(ctx, data, "/tables/delete/cancel", Delete{Table: table, Number: number}, cancelDelete)
}

func cancelDelete(_ context.Context, s *eventstore.Store, d Delete) (int, error) {
	return s.CancelDelete(d.Table, d.Number)
}

// RecomputeColumn starts to compute a column of the stored rows of a table, with the function
// in the configuration of the running engine. The engine continues in the background, and
// so does the next one.
func RecomputeColumn(ctx context.Context, data, table, column string) (Recompute, error) {
	return do(ctx, data, "/tables/recompute", Recompute{Table: table, Column: column}, recomputeColumn)
}

func recomputeColumn(ctx context.Context, s *eventstore.Store, r Recompute) (Recompute, error) {
	begun, err := s.Recompute(ctx, r.Table, r.Column)
	return newRecompute(begun), err
}

// CancelRecompute ends the running recompute of a column. Finished files keep their new values;
// a later recompute computes all files.
func CancelRecompute(ctx context.Context, data, table, column string) (Recompute, error) {
	return do(ctx, data, "/tables/recompute/cancel", Recompute{Table: table, Column: column}, cancelRecompute)
}

func cancelRecompute(_ context.Context, s *eventstore.Store, r Recompute) (Recompute, error) {
	canceled, err := s.CancelRecompute(r.Table, r.Column)
	return newRecompute(canceled), err
}

// RecomputeState returns the state of the last recompute of a column, which may be a later one
// than r.
func RecomputeState(ctx context.Context, data string, r Recompute) (Recompute, error) {
	return do(ctx, data, "/tables/recomputed", r, recomputeState)
}

func recomputeState(_ context.Context, s *eventstore.Store, r Recompute) (Recompute, error) {
	all, err := s.Recomputes(r.Table)
	for _, one := range all {
		if strings.EqualFold(one.Column, r.Column) {
			return newRecompute(one), nil
		}
	}
	if err == nil {
		err = fmt.Errorf("no recompute of column %s of table %s was requested", r.Column, r.Table)
	}
	return r, err
}

// whereError adds the line of the condition to an error with a place in it.
func whereError(where string, err error) error {
	q := Request{SQL: where}
	if e, ok := errors.AsType[*eventstore.QueryError](err); ok {
		return q.explain(e.Line, e.Column, e.Message, e.Hint, err)
	}
	if e, ok := errors.AsType[*admin.Error](err); ok {
		return q.explain(e.Line, e.Column, e.Message, e.Hint, err)
	}
	return err
}
