package server

import (
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/perigeedb/perigee/pipeline"
)

// routes returns those of the port, or those of the socket.
func (c *Config) routes(socket bool) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectPipelines(c.Pipelines),
		allocator{},
	)
	registry.MustRegister(c.Metrics...)
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/ping"} {
		mux.HandleFunc("GET "+path, ping)
	}
	for _, path := range []string{"/readyz", "/ready"} {
		mux.Handle("GET "+path, ready(c.Pipelines))
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, // a script may choose a name that is taken
	}))
	if !socket {
		for pattern, handler := range c.PortHandlers {
			mux.Handle(pattern, handler)
		}
		return mux
	}
	for pattern, handler := range c.Handlers {
		mux.Handle(pattern, handler)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func ping(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "pong") }

// ready answers with a line for each pipeline.
func ready(list func() []*pipeline.Pipeline) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		pipelines := list()
		lines, status := make([]string, len(pipelines)), http.StatusOK
		for i, p := range pipelines {
			lines[i] = p.Name() + ": ready"
			if err := p.Ready(); err != nil {
				lines[i], status = fmt.Sprintf("%s: %v", p.Name(), err), http.StatusServiceUnavailable
			}
		}
		w.WriteHeader(status)
		for _, line := range lines {
			fmt.Fprintln(w, line)
		}
	}
}
