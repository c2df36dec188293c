//go:build cgo

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// storeName is the event store's folder in the data folder.
const storeName = "events"

// An eventStore is the event store of a data folder, opened when it is first
// needed: an engine that does not write to it does not pay for it. It is safe
// for concurrent use.
type eventStore struct {
	folder  string
	letters *deadletter.Store // lent to queries; nil when there are none

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
		opened, err := eventstore.Open(s.folder, s.options())
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
		return nil, event.WithHint(fmt.Errorf("no event store: %w", err),
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
		var sql bytes.Buffer // what is too long stays in the body, and is refused with it
		io.Copy(&sql, io.LimitReader(r.Body, 1<<20))
		r.Body = io.NopCloser(io.MultiReader(&sql, r.Body))
		store, done, err := s.asked(sql.String())
		if err != nil {
			answering(func(io.Writer, *http.Request) error { return err }).ServeHTTP(w, r)
			return
		}
		defer done()
		eventstore.Handler(store).ServeHTTP(w, r)
	})
}

// asked opens the store for a query. Where there is no event store, one that is
// empty can still answer about dead letters.
func (s *eventStore) asked(sql string) (store *eventstore.Store, done func() error, err error) {
	_, absent := os.Stat(s.folder)
	if absent == nil || s.letters == nil || !namesLetters(sql) {
		store, err = s.read()
		return store, func() error { return nil }, err
	}
	folder, err := os.MkdirTemp("", "perigee-query-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder for the query: %w", err)
	}
	store, err = eventstore.Open(folder, s.options())
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	return store, func() error { return errors.Join(store.Close(), os.RemoveAll(folder)) }, nil
}

// here lends a store to use, and the dead letters with it, in a data folder in which
// no engine runs.
func here(data string, use func(*eventStore) error) (err error) {
	s := newEventStore(data)
	_, noEvents := os.Stat(s.folder)
	_, noLetters := os.Stat(filepath.Join(data, deadletter.FileName))
	if noEvents == nil || noLetters == nil {
		lock, err := own(data)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	if noLetters == nil {
		if s.letters, err = deadletter.Open(data); err != nil {
			return err
		}
		defer s.letters.Close()
	}
	return errors.Join(use(s), s.close())
}

func queryStore(ctx context.Context, data, sql, format string, out io.Writer) error {
	return here(data, func(s *eventStore) error {
		store, done, err := s.asked(sql)
		if err != nil {
			return err
		}
		return errors.Join(encodeQuery(ctx, store, sql, format, out), done())
	})
}

func encodeQuery(ctx context.Context, store *eventstore.Store, sql, format string, out io.Writer) error {
	rows, err := store.Query(ctx, sql)
	if q, ok := errors.AsType[*eventstore.QueryError](err); ok {
		return &failure{q.Message, q.Hint, q.Line, q.Column}
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	return eventstore.Encode(out, rows, eventstore.Format(format), 0)
}

// storedIDs calls each with the number in a column of every row of a table.
func storedIDs(ctx context.Context, data, table, column string, each func(id uint64)) error {
	return here(data, func(s *eventStore) error {
		store, err := s.read()
		if err != nil {
			return err
		}
		rows, err := store.Query(ctx, fmt.Sprintf("SELECT %q FROM %q", column, table))
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
