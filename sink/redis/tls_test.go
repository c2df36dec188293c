package redis_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink/redis"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestContractOverTLS runs the suite over encrypted connections, which no proxy can read.
func TestContractOverTLS(t *testing.T) {
	t.Parallel()
	server, address, ca := testserver.RedisWithTLS(t)
	sinktest.RunVariant(t, places(t, targets()[0], server, func(c redis.Config, _ string) redis.Config {
		c.Address, c.TLS, c.CA = address, true, ca
		return c
	}, nil))
}

// TestServerKilledOverTLS has Redis die and come back between writes over TLS, and one of
// them larger than a TLS record.
func TestServerKilledOverTLS(t *testing.T) {
	t.Parallel()
	server, address, ca := testserver.RedisWithTLS(t, "--appendonly", "yes", "--appendfsync", "always")
	w := open(t, redis.Config{Address: address, TLS: true, CA: ca, List: "out"})
	var want []string
	for i := range uint64(3) {
		doc := fmt.Sprintf("%0*d", 1+100_000*int(i%2), i)
		want = append(want, doc)
		if err := w.Write(t.Context(), sinktest.Docs(i, doc)); err != nil {
			t.Fatal(err)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		sinktest.ExpectClass(t, w.Write(t.Context(), sinktest.Docs(i+1, "later")), sinktest.Transient)
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, texts(do(t, dial(t, server.Address()), "LRANGE", "out", "0", "-1"))); diff != "" {
		t.Error(diff)
	}
}

// TestUntrustedServer connects to no server whose certificate is of an unknown authority or
// for another host. The error is transient: a server gets another certificate while a
// pipeline runs.
func TestUntrustedServer(t *testing.T) {
	t.Parallel()
	_, address, ca := testserver.RedisWithTLS(t)
	other, _ := testserver.WriteCertificate(t, t.TempDir())
	for _, ca := range []string{"", other} {
		err := refused(t, redis.Config{Address: address, TLS: true, CA: ca, List: "out"})
		if !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Errorf("an unknown authority is refused with %v", err)
		}
	}
	_, port, _ := net.SplitHostPort(address)
	err := refused(t, redis.Config{Address: net.JoinHostPort("localhost", port), TLS: true, CA: ca, List: "out"})
	if !errors.As(err, new(x509.HostnameError)) {
		t.Errorf("another host is refused with %v", err)
	}
}

// refused returns the error with which a sink opens and checks.
func refused(t *testing.T, c redis.Config) error {
	t.Helper()
	s := newSink(t, "p", c)
	defer s.Close()
	sinktest.ExpectClass(t, s.Traits().Check(t.Context()), sinktest.Transient)
	_, _, err := s.Open(t.Context(), "a")
	sinktest.ExpectClass(t, err, sinktest.Transient)
	return err
}
