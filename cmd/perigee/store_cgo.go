//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/perigeedb/perigee/eventstore"
)

// storeName is the event store's folder in the data folder.
const storeName = "events"

// An eventStore is the event store of a data folder, opened when it is first
// needed: an engine that does not write to it does not pay for it. It is safe
// for concurrent use.
type eventStore struct {
	folder string

	mu     sync.Mutex
	opened *eventstore.Store
}

// noStore says why there is no event store in this build: there is one.
func noStore() error { return nil }

func newEventStore(data string) *eventStore {
	return &eventStore{folder: filepath.Join(data, storeName)}
}

func (s *eventStore) open() (*eventstore.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == nil {
		opened, err := eventstore.Open(s.folder, eventstore.Options{})
		if err != nil {
			return nil, err
		}
		s.opened = opened
	}
	return s.opened, nil
}

// read opens the store, but makes none where none is.
func (s *eventStore) read() (*eventstore.Store, error) {
	if _, err := os.Stat(s.folder); err != nil {
		return nil, withHint(fmt.Errorf("no event store: %w", err),
			"name the engine's data folder with --data, or its configuration with --config")
	}
	return s.open()
}

func (s *eventStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == nil {
		return nil
	}
	err := s.opened.Close()
	s.opened = nil
	return err
}

// handler answers "perigee query" beside a running engine.
func (s *eventStore) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		store, err := s.read()
		if err != nil {
			answering(func(io.Writer, *http.Request) error { return err }).ServeHTTP(w, r)
			return
		}
		eventstore.Handler(store).ServeHTTP(w, r)
	})
}

// withStore opens the store of a data folder in which no engine runs.
func withStore(data string, use func(*eventstore.Store) error) error {
	s := newEventStore(data)
	if _, err := os.Stat(s.folder); err == nil {
		lock, err := own(data)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	store, err := s.read()
	if err != nil {
		return err
	}
	return errors.Join(use(store), s.close())
}

func queryStore(ctx context.Context, data, sql, format string, out io.Writer) error {
	return withStore(data, func(store *eventstore.Store) error {
		rows, err := store.Query(ctx, sql)
		if q, ok := errors.AsType[*eventstore.QueryError](err); ok {
			return &failure{q.Message, q.Hint, q.Line, q.Column}
		}
		if err != nil {
			return err
		}
		defer rows.Close()
		return eventstore.Encode(out, rows, eventstore.Format(format), 0)
	})
}

// storedIDs calls each with the id of every row of the table events.
func storedIDs(ctx context.Context, data string, each func(id uint64)) error {
	return withStore(data, func(store *eventstore.Store) error {
		rows, err := store.Query(ctx, "SELECT id FROM events")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			id, ok := rows.Row()[0].(int64)
			if !ok {
				return fmt.Errorf("a row has %v for an id", rows.Row()[0])
			}
			each(uint64(id))
		}
		return rows.Err()
	})
}
