package redis_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
	"github.com/perigeedb/perigee/source/sourcetest"
)

// TestContractOverTLS runs the suite over encrypted connections.
func TestContractOverTLS(t *testing.T) {
	server, address, ca := testserver.RedisWithTLS(t)
	client := connect(t, server)
	places := 0
	sourcetest.Run(t, func(t *testing.T, events int) sourcetest.Place {
		places++
		key := fmt.Sprint("list", places)
		items := numbered("event", 0, events)
		push(t, client, key, items...)
		open := func(untilEmpty bool) func(*testing.T, source.Limits) source.Source {
			return func(t *testing.T, limits source.Limits) source.Source {
				return newSource(t, redis.Config{Address: address, TLS: true, CA: ca, List: key, UntilEmpty: untilEmpty}, limits)
			}
		}
		return sourcetest.Place{Events: items, Open: open(true), Wait: open(false)}
	})
}

// TestRestartOverTLS has Redis die while a worker reads over TLS, and another worker claim
// and drain the list after that.
func TestRestartOverTLS(t *testing.T) {
	server, address, ca := testserver.RedisWithTLS(t, "--appendonly", "yes", "--appendfsync", "always")
	client := connect(t, server)
	items := numbered("event", 0, 2000)
	push(t, client, listQueue, items...)
	config := redis.Config{Address: address, TLS: true, CA: ca, List: listQueue, UntilEmpty: true}
	old := newRun(t, config)
	old.mustOpen()
	for range 4 {
		b := old.mustRead()
		old.commit(b)
		old.ack(b)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil { // what had already arrived
		var b event.Batch
		if b, err = old.read(); err == nil {
			old.commit(b)
			old.ack(b)
		}
	}
	transient(t, err)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client = connect(t, server)
	unacked := old.mustRead()
	next := newRun(t, config)
	next.committed, next.landed = old.committed, old.landed
	next.mustOpen()
	next.drain()
	later := numbered("later", 0, 300)
	push(t, client, listQueue, later...)
	old.ack(unacked)
	for err = nil; err == nil; { // what had already arrived
		_, err = old.read()
	}
	if !errors.Is(err, source.ErrMoved) {
		t.Errorf("the worker that lost the list reads on: %v", err)
	}
	old.close()
	next.drain()
	next.close()
	next.once(items, later)
	if n := length(t, client, listQueue); n != 0 {
		t.Errorf("%d events stay in the list", n)
	}
}

// TestUntrustedServer reads from no server whose certificate is of an unknown authority or
// for another host. The error is transient: a server gets another certificate while a
// pipeline runs.
func TestUntrustedServer(t *testing.T) {
	_, address, ca := testserver.RedisWithTLS(t)
	other, _ := testserver.WriteCertificate(t, t.TempDir())
	open := func(address, ca string) error {
		err := newRun(t, redis.Config{Address: address, TLS: true, CA: ca, List: listQueue}).open()
		transient(t, err)
		return err
	}
	for _, ca := range []string{"", other} {
		if err := open(address, ca); !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Errorf("an unknown authority is refused with %v", err)
		}
	}
	_, port, _ := net.SplitHostPort(address)
	if err := open(net.JoinHostPort("localhost", port), ca); !errors.As(err, new(x509.HostnameError)) {
		t.Errorf("another host is refused with %v", err)
	}
}
