//go:build linux && cgo

package eventservice

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

// An operation acts on the open store of s. Its request and answer are JSON.
type operation func(ctx context.Context, s *Store, store *eventstore.Store, request []byte) (answer []byte, err error)

// operationOf returns an operation whose request and answer are of Go types.
func operationOf[In, Out any](operate func(context.Context, *Store, *eventstore.Store, In) (Out, error)) operation {
	return func(ctx context.Context, s *Store, store *eventstore.Store, request []byte) ([]byte, error) {
		var in In
		if err := json.Unmarshal(request, &in); err != nil {
			return nil, fmt.Errorf("decode the request: %w", err)
		}
		out, err := operate(ctx, s, store, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
}

// operations holds the operations by their routes.
var operations = map[string]operation{
	listPath:            operationOf(listTables),
	deletePath:          operationOf(deleteRows),
	waitDeletedPath:     operationOf(waitDeleted),
	cancelDeletePath:    operationOf(cancelDelete),
	recomputePath:       operationOf(recomputeColumn),
	recomputedPath:      operationOf(recomputeState),
	cancelRecomputePath: operationOf(cancelRecompute),
	widenPath:           operationOf(widenInLake),
	cancelWidenPath:     operationOf(cancelWidenInLake),
	dropPath:            operationOf(dropTable),
	renamePath:          operationOf(changeTable((*Store).refuseRename, renameTable)),
	setTimePath:         operationOf(changeTable((*Store).refuseSetTime, setTableTime)),
	waitDividedPath:     operationOf(waitDivided),
	dropColumnPath:      operationOf(changeTable((*Store).refuseDropColumn, dropColumn)),
}

// perform performs an operation.
func (s *Store) perform(ctx context.Context, path string, request []byte) ([]byte, error) {
	store, err := s.openExisting()
	if err != nil {
		return nil, err
	}
	return operations[path](ctx, s, store, request)
}

// A handleFunc adds a route to the engine's socket.
type handleFunc = func(pattern string, h http.Handler)

// handleOperations adds the routes of all operations other than queries.
func (s *Store) handleOperations(handle handleFunc) {
	for path := range operations {
		handle("POST "+path, admin.Handle(func(ctx context.Context, request json.RawMessage) (json.RawMessage, error) {
			return s.perform(ctx, path, request)
		}))
	}
	handle("POST "+tailPath, admin.Handler(s.serveTail))
	handle("POST "+importPath, admin.Handle(s.beginImport))
	handle("POST "+importRowsPath, admin.Handler(s.serveRows))
	s.handleWriters(handle)
	handle("POST /backup", admin.Handler(func(w io.Writer, r *http.Request) error { return s.backup(r.Context(), w) }))
}

func (s *Store) backup(ctx context.Context, out io.Writer) error {
	store, err := s.openExisting()
	if err != nil {
		return err
	}
	return store.Backup(ctx, out)
}

func listTables(_ context.Context, _ *Store, store *eventstore.Store, _ struct{}) ([]catalog.Table, error) {
	return store.Tables()
}

func deleteRows(ctx context.Context, _ *Store, store *eventstore.Store, d catalog.Delete) (catalog.Delete, error) {
	return store.Delete(ctx, d.Table, d.Where)
}

func waitDeleted(ctx context.Context, _ *Store, store *eventstore.Store, d catalog.Delete) (struct{}, error) {
	return struct{}{}, store.WaitDeleted(ctx, d)
}

func cancelDelete(_ context.Context, _ *Store, store *eventstore.Store, d catalog.Delete) (int, error) {
	return store.CancelDelete(d.Table, d.Number)
}

func recomputeColumn(ctx context.Context, _ *Store, store *eventstore.Store, r catalog.Recompute) (catalog.Recompute, error) {
	return store.Recompute(ctx, r.Table, r.Column)
}

func recomputeState(_ context.Context, _ *Store, store *eventstore.Store, r catalog.Recompute) (catalog.Recompute, error) {
	all, err := store.Recomputes(r.Table)
	for _, one := range all {
		if strings.EqualFold(one.Column, r.Column) {
			return one, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("no recompute of column %s of table %s was requested", r.Column, r.Table)
	}
	return r, err
}

func cancelRecompute(_ context.Context, _ *Store, store *eventstore.Store, r catalog.Recompute) (catalog.Recompute, error) {
	return store.CancelRecompute(r.Table, r.Column)
}

func widenInLake(_ context.Context, _ *Store, store *eventstore.Store, c TableChange) (catalog.LakeState, error) {
	return store.WidenInLake(c.Table, c.Column)
}

func cancelWidenInLake(_ context.Context, _ *Store, store *eventstore.Store, c TableChange) (catalog.LakeState, error) {
	return store.CancelWidenInLake(c.Table, c.Column)
}

func waitDivided(ctx context.Context, _ *Store, store *eventstore.Store, c TableChange) (struct{}, error) {
	return struct{}{}, store.WaitDivided(ctx, c.Table)
}

func renameTable(ctx context.Context, store *eventstore.Store, c TableChange) error {
	return store.RenameTable(ctx, c.Table, c.To, c.Release)
}

func setTableTime(ctx context.Context, store *eventstore.Store, c TableChange) error {
	column := eventstore.TimeColumn{Name: c.Column, Unit: unit(c.Unit)}
	if c.Type != "" {
		column.Type, _ = event.ParseType(c.Type)
	}
	return store.SetTime(ctx, c.Table, column)
}

func dropColumn(ctx context.Context, store *eventstore.Store, c TableChange) error {
	return store.DropColumn(ctx, c.Table, c.Column)
}
