package kafka_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// TestBrokerIsAway has nothing listen where the broker should.
func TestBrokerIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := (&topic{t: t, address: address, name: "events"}).source(t, usual)
	defer s.Close()
	expectAway(t, s.Traits().Check, address)
	expectAway(t, func(ctx context.Context) error { _, err := s.Partitions(ctx); return err }, address)
	expectNoOffsets(t, s, "events/0@AAAAAAAAAAAAAAAAAAAAAA", address)
}

// expectNoOffsets fails the test unless a source whose broker is away opens nothing. For
// some seconds it still knows what partitions there were.
func expectNoOffsets(t *testing.T, s source.Source, partition, address string) {
	t.Helper()
	expectAway(t, func(ctx context.Context) error { _, err := s.Traits().Bounds(ctx); return err }, address)
	expectAway(t, func(ctx context.Context) error {
		_, err := s.Open(ctx, partition, event.Ranges{{Count: 10}})
		return err
	}, address)
}

// expectAway fails the test unless a call returns a transient error that names the broker,
// without being told to stop.
func expectAway(t *testing.T, call func(context.Context) error, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := call(ctx)
	switch {
	case ctx.Err() != nil:
		t.Errorf("it does not return by itself: %v", err)
	case err == nil || event.IsPermanent(err) || errors.Is(err, source.ErrMoved) || errors.Is(err, io.EOF):
		t.Errorf("got %v, want an error after which the pipeline retries", err)
	case !strings.Contains(err.Error(), address):
		t.Errorf("got %v, which does not name %s", err, address)
	}
}
