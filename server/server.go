// Package server serves HTTP for a running engine: on a loopback port for monitors,
// and on a socket in the data folder for the command line.
//
//	/livez, /ping    200 while the process serves
//	/readyz, /ready  200 when every pipeline is connected and running, else 503 with the reasons
//	/metrics         Prometheus
//
// The socket has further routes, because only the owner of the folder can open it: those
// of package admin, those of the engine's services, and the profiles below /debug/pprof/.
//
// A Server is safe for concurrent use.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/httpserver"
	"github.com/perigeedb/perigee/pipeline"
)

// Config says where to serve what.
type Config struct {
	Address   string                      // of the port, as 127.0.0.1:4290; "" means none
	Optional  bool                        // if another program has the port, go on without it
	Folder    string                      // the data folder, for the socket; "" means none
	Pipelines func() []*pipeline.Pipeline // those of the moment; nil means none
	// Handlers are further routes of the socket, by pattern as http.ServeMux has them
	// ("POST /query").
	Handlers map[string]http.Handler
	// PortHandlers are further routes of the port.
	PortHandlers map[string]http.Handler
	Metrics      []prometheus.Collector // besides those of the pipelines
	Log          *slog.Logger
}

// A Server serves until it is closed.
type Server struct {
	log     *slog.Logger
	servers []*http.Server
	port    net.Addr
	serving sync.WaitGroup
}

// Start listens on the port and the socket and serves in the background. If it cannot
// listen on one of them, it returns an error and serves nothing, unless the port is
// optional and taken: the log has a warning then.
func Start(c Config) (*Server, error) {
	if c.Pipelines == nil {
		c.Pipelines = func() []*pipeline.Pipeline { return nil }
	}
	s := &Server{log: c.Log}
	port, socket, err := c.listen()
	if err != nil {
		return nil, err
	}
	if port != nil {
		s.port = port.Addr()
		s.serve(port, c.routes(false))
	}
	if socket != nil {
		s.serve(socket, c.routes(true))
	}
	return s, nil
}

func (c *Config) listen() (port, socket net.Listener, err error) {
	if c.Address != "" {
		port, err = net.Listen("tcp", c.Address)
		switch {
		case c.Optional && errors.Is(err, syscall.EADDRINUSE):
			c.Log.Warn("running without http: another program listens on the default address; set http to another address, or to off",
				"address", c.Address)
		case err != nil:
			return nil, nil, fmt.Errorf("listen for http on %s: %w", c.Address, err)
		}
	}
	if c.Folder != "" {
		path := filepath.Join(c.Folder, datafolder.SocketName)
		if socket, err = listenSocket(path); err != nil {
			if port != nil {
				port.Close()
			}
			return nil, nil, fmt.Errorf("listen on socket %s: %w", path, err)
		}
	}
	return port, socket, nil
}

// Address returns the address of the port, with the number that the system chose for
// port 0. It returns nil if there is no port.
func (s *Server) Address() net.Addr { return s.port }

// Close stops listening, and lets requests finish until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	var errs []error
	for _, h := range s.servers {
		err := h.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = h.Close()
		}
		errs = append(errs, err)
	}
	s.serving.Wait()
	return errors.Join(errs...)
}

func (s *Server) serve(l net.Listener, routes http.Handler) {
	h := httpserver.New(routes, s.log)
	s.servers = append(s.servers, h)
	s.serving.Go(func() {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("serving http ended", "address", l.Addr().String(), "error", err)
		}
	})
}
