//go:build linux && cgo

package eventservice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/eventstore"
)

// A handleFunc adds a route to the engine's socket.
type handleFunc = func(pattern string, h http.Handler)

// handleOperations adds the routes of all operations other than queries.
func (s *Store) handleOperations(handle handleFunc) {
	s.handleChanges(handle)
	handle("POST /tables", handleJSON(s, listTables))
	handle("POST /tables/delete", handleJSON(s, deleteRows))
	handle("POST /tables/deleted", handleJSON(s, waitDeleted))
	handle("POST /tables/delete/cancel", handleJSON(s, cancelDelete))
	handle("POST /tables/recompute/cancel", handleJSON(s, cancelRecompute))
	handle("POST /tables/recompute", handleJSON(s, recomputeColumn))
	handle("POST /tables/recomputed", handleJSON(s, recomputeState))
	handle("POST /tail", admin.Handler(s.serveTail))
	handle("POST /import", admin.Handler(s.serveImport))
	handle("POST /import/rows", admin.Handler(s.serveRows))
	s.handleWriters(handle)
	handle("POST /backup", admin.Handler(func(w io.Writer, r *http.Request) error {
		store, err := s.openExisting()
		if err != nil {
			return err
		}
		return store.Backup(r.Context(), w)
	}))
}

// An operation acts on an open store. Its argument and result encode as JSON.
type operation[In, Out any] func(ctx context.Context, s *eventstore.Store, in In) (Out, error)

// handleJSON returns a handler for an operation.
func handleJSON[In, Out any](s *Store, operate operation[In, Out]) http.Handler {
	return admin.Handler(func(w io.Writer, r *http.Request) error {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return fmt.Errorf("decode the request: %w", err)
		}
		store, err := s.openExisting()
		if err != nil {
			return err
		}
		out, err := operate(r.Context(), store, in)
		if e, ok := errors.AsType[*eventstore.QueryError](err); ok {
			return &admin.Error{Message: e.Message, Hint: e.Hint, Line: e.Line, Column: e.Column}
		}
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(out)
	})
}

// do sends an operation to the engine that runs in a data folder, or runs it in this process
// if no engine runs.
func do[In, Out any](ctx context.Context, data, path string, in In, operate operation[In, Out]) (out Out, err error) {
	request, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	var answer bytes.Buffer
	err = admin.Post(ctx, data, path, nil, bytes.NewReader(request), &answer)
	if err == nil {
		return out, json.Unmarshal(answer.Bytes(), &out)
	}
	if !errors.Is(err, admin.ErrNoEngine) {
		return out, err
	}
	err = withStore(data, func(s *Store) error {
		store, err := s.openExisting()
		if err == nil {
			out, err = operate(ctx, store, in)
		}
		return err
	})
	return out, err
}
