//go:build !cgo

package main

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// noStore says why nothing about the event store works in this build.
func noStore() error {
	return event.WithHint(errors.New("this perigee has no event store: it was built without cgo"), "build it with CGO_ENABLED=1")
}

// An eventStore is never there without cgo.
type eventStore struct{}

func newEventStore(string) *eventStore { return &eventStore{} }

func (*eventStore) close() error { return nil }

func (*eventStore) lend(*deadletter.Store) {}

func (*eventStore) handler() http.Handler {
	return answering(func(io.Writer, *http.Request) error { return noStore() })
}

func queryStore(context.Context, string, string, string, io.Writer) error { return noStore() }

func storedIDs(context.Context, string, string, string, func(uint64)) error { return noStore() }
