//go:build linux && cgo

package eventservice

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lakecatalog"
	"github.com/perigeedb/perigee/internal/httpserver"
)

// closeTime bounds unfinished answers when the engine ends.
const closeTime = 3 * time.Second

// A listener answers POST /query, GET /state/… and GET /iceberg/… on a port.
type listener struct {
	address net.Addr
	http    *http.Server
	serving sync.WaitGroup
}

// listen serves SQL, nodes of states, and the catalog of lake tables, at the address of the configuration.
func listen(q config.Query, query, states, lakes http.Handler, log *slog.Logger) (*listener, error) {
	access := q.Access()
	certificates, err := access.LoadCertificates()
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: "check cert and key below query"}
	}
	port, err := access.Open(certificates)
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: "choose another address for listen below query, or stop the program that uses this one"}
	}
	// A ServeMux would clean the paths of nodes.
	routes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler := query
		switch {
		case strings.HasPrefix(r.URL.Path, admin.StatePrefix):
			handler = states
		case strings.HasPrefix(r.URL.Path, lakecatalog.Prefix):
			handler = lakes
		case r.URL.Path != "/query":
			http.NotFound(w, r)
			return
		}
		if access.Authorized(w, r) {
			handler.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, lakecatalog.Prefix) {
			lakecatalog.WriteError(w, r, http.StatusUnauthorized, "NotAuthorizedException", httpserver.ErrUnauthorized.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		json.NewEncoder(w).Encode(event.FaultOf(httpserver.ErrUnauthorized)) // the client may be gone
	})
	l := &listener{address: port.Addr(), http: httpserver.New(routes, log)}
	l.serving.Go(func() { _ = l.http.Serve(port) })
	log.Info("answering SQL over HTTP", "address", l.address.String(), "path", "/query")
	return l, nil
}

func (l *listener) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := l.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = l.http.Close()
	}
	l.serving.Wait()
	return err
}
