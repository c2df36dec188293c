package postgres

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestEncryptedConnections writes to a server with TLS, encrypted with and without a check
// of its certificate.
func TestEncryptedConnections(t *testing.T) {
	server, ca := testserver.PostgreSQLWithTLS(t, "-c", "fsync=off")
	newPlace := func(t *testing.T, tls sqlsink.TLS, params map[string]string) *place {
		g := on(t, server)
		g.config.Columns, g.config.Create, g.config.TLS, g.config.Params = named(20), true, tls, params
		return g
	}
	for _, test := range []struct {
		tls    sqlsink.TLS
		params map[string]string
	}{{sqlsink.RequireTLS, nil}, {sqlsink.VerifyTLS, map[string]string{"sslrootcert": ca}}} {
		t.Run(string(test.tls), func(t *testing.T) {
			for name, check := range map[string]func(*testing.T, *place){
				"lanes": writesFromLanes, "rejected row": namesRejectedRow, "takeover": fencesOldWriter,
				"lost connection": survivesLostConnections, "cancelled write": survivesCancelledWrite,
			} {
				t.Run(name, func(t *testing.T) { check(t, newPlace(t, test.tls, test.params)) })
			}
		})
	}
	t.Run("unknown authority", func(t *testing.T) {
		g := newPlace(t, sqlsink.VerifyTLS, nil)
		g.refusesConnection(func(err error) bool { return errors.As(err, new(x509.UnknownAuthorityError)) })
	})
	t.Run("other host", func(t *testing.T) {
		g := newPlace(t, sqlsink.VerifyTLS, map[string]string{"sslrootcert": ca})
		g.config.Address = strings.Replace(g.config.Address, "127.0.0.1", "localhost", 1)
		g.refusesConnection(func(err error) bool { return errors.As(err, new(x509.HostnameError)) })
	})
}

// TestServerWithoutTLS refuses a server that offers no encryption.
func TestServerWithoutTLS(t *testing.T) {
	for _, tls := range []sqlsink.TLS{sqlsink.RequireTLS, sqlsink.VerifyTLS} {
		g := newPlace(t, named(20)...)
		g.config.TLS = tls
		g.refusesConnection(func(err error) bool { return strings.Contains(err.Error(), "server refused TLS") })
	}
}

// refusesConnection holds that the sink neither opens nor checks its table, that the cause
// is found in the error, and that nothing was created by another connection. The error is
// transient: a server gets another certificate while a pipeline runs.
func (g *place) refusesConnection(isCause func(error) bool) {
	t := g.t.(*testing.T)
	t.Helper()
	s := g.sink("p")
	defer s.Close()
	_, _, opening := s.Open(t.Context(), "a")
	for _, err := range []error{opening, s.Traits().Check(t.Context())} {
		sinktest.ExpectClass(t, err, sinktest.Transient)
		if !isCause(err) {
			t.Errorf("refused with %v", err)
		}
	}
	if found := g.text("SELECT to_regclass('events') IS NULL"); found[0] != "t" {
		t.Error("the table was created over another connection")
	}
}

// encrypted fails the test unless the idle connections of a sink, at least one, are
// encrypted.
func (g *place) encrypted(s *Sink) {
	g.t.Helper()
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if len(s.pool.idle) == 0 {
		g.t.Error("the sink has no connection")
	}
	for _, c := range s.pool.idle {
		if got := g.text(fmt.Sprintf("SELECT ssl, version LIKE 'TLSv1._' FROM pg_stat_ssl WHERE pid = %d", c.PID())); len(got) != 1 || got[0] != "t|t" {
			g.t.Errorf("the server says of a connection: %v", got)
		}
	}
}

// writesFromLanes writes outputs of several TLS records at the same time, and reads back
// what is committed.
func writesFromLanes(t *testing.T, g *place) {
	const lanes, rows = 4, 5000
	w := g.open()
	var group sync.WaitGroup
	for lane := range uint64(lanes) {
		group.Go(func() {
			if err := w.Write(t.Context(), span(w, lane*rows, rows)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	g.encrypted(w.sink)
	g.once(lanes * rows)
	if done := g.open().done; len(done) != 1 || done[0].First != 0 || done[0].Count != lanes*rows {
		t.Errorf("a new owner is told %v", done)
	}
}

func namesRejectedRow(t *testing.T, g *place) {
	w := g.open()
	out := sinktest.NewOutputBuilder(w.sink.columns)
	for i := range int64(100) {
		out.Add(i, strings.Repeat("x", 20+int(i)/99))
	}
	if rejected := g.rejected(w, out.Output(0)); len(rejected) != 1 || rejected[0].Row != 99 {
		t.Errorf("rejected %v", rejected)
	}
	g.write(w, span(w, 0, 100))
	g.once(100)
}

func fencesOldWriter(t *testing.T, g *place) {
	old := g.open()
	g.write(old, span(old, 0, 10))
	fresh := g.open()
	if err := old.Write(t.Context(), span(old, 10, 10)); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("the old owner's write returned %v, want ErrFenced", err)
	}
	g.write(fresh, span(fresh, 10, 10))
	g.once(20)
}

// survivesLostConnections has the server end the connections between writes and inside one.
func survivesLostConnections(t *testing.T, g *place) {
	const end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perigee'"
	w := g.open()
	g.write(w, span(w, 0, 1000))
	g.text(end)
	if err := w.Write(t.Context(), span(w, 1000, 1000)); err != nil {
		sinktest.ExpectClass(t, err, sinktest.Transient)
		g.write(w, span(w, 1000, 1000))
	}
	hanging, release := g.stall(t)
	written := make(chan error, 1)
	go func() { written <- w.Write(t.Context(), span(w, 2000, 1000)) }()
	hanging()
	g.text(end)
	release()
	if err := <-written; err != nil { // or it tried again by itself
		sinktest.ExpectClass(t, err, sinktest.Transient)
	}
	g.write(w, span(w, 2000, 1000))
	g.once(3000)
	g.encrypted(w.sink)
}

// survivesCancelledWrite cancels a write that waits inside its transaction.
func survivesCancelledWrite(t *testing.T, g *place) {
	w := g.open()
	hanging, release := g.stall(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	written := make(chan error, 1)
	go func() { written <- w.Write(ctx, span(w, 0, 1000)) }()
	hanging()
	cancel()
	if err := <-written; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled write returned %v", err)
	}
	release()
	g.write(w, span(w, 0, 1000))
	g.once(1000)
	g.encrypted(w.sink)
}
