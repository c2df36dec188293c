package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/perigeedb/perigee/pipeline"
)

// A report is what GET /pipelines says of one.
type report struct {
	Pipeline  string       `json:"pipeline"`
	State     string       `json:"state"`
	Reason    string       `json:"reason,omitempty"` // why it is retrying, paused or stopped
	Since     *time.Time   `json:"since,omitempty"`  // of a pause
	Open      int          `json:"open"`             // partitions at work
	Lag       uint64       `json:"lag"`
	Settled   uint64       `json:"settled"`
	Circuit   bool         `json:"circuit"` // broken
	Worker    string       `json:"worker"`
	Workers   int          `json:"workers"`
	Held      int          `json:"held"`
	Elsewhere int          `json:"elsewhere"`
	Sinks     []sinkReport `json:"sinks"`
}

type sinkReport struct {
	Name    string `json:"name"`
	Rows    uint64 `json:"rows"`
	Lag     uint64 `json:"lag"`
	Retries uint64 `json:"retries"`
}

func reportOn(p *pipeline.Pipeline) report {
	s := p.Stats()
	r := report{
		Pipeline: p.Name(), State: string(s.State), Open: s.OpenPartitions, Lag: s.Lag, Settled: s.Committed, Circuit: s.CircuitOpen,
		Worker: s.Leases.Worker, Workers: s.Leases.Workers, Held: s.Leases.Held, Elsewhere: s.Leases.NotHeld,
	}
	if s.Err != nil {
		r.Reason = s.Err.Error()
	}
	if pause := p.Paused(); pause != nil {
		r.Since = &pause.Since
	}
	for _, one := range s.Sinks {
		r.Sinks = append(r.Sinks, sinkReport{one.Name, one.Rows, one.Lag, one.Retries})
	}
	return r
}

// list answers GET /pipelines.
func (c *Config) list(w http.ResponseWriter, _ *http.Request) {
	reports := make([]report, len(c.Pipelines))
	for i, p := range c.Pipelines {
		reports[i] = reportOn(p)
	}
	answer(w, http.StatusOK, reports)
}

// order makes a handler of what the command line orders a pipeline to do.
func (c *Config) order(do func(p *pipeline.Pipeline, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := c.find(r.PathValue("name"))
		if p == nil {
			refuse(w, http.StatusNotFound, fmt.Errorf("no pipeline is called %q", r.PathValue("name")),
				"this engine runs "+strings.Join(c.names(), ", "))
			return
		}
		if err := do(p, r); err != nil {
			refuse(w, http.StatusInternalServerError, err, "")
			return
		}
		answer(w, http.StatusOK, reportOn(p))
	}
}

func pause(p *pipeline.Pipeline, r *http.Request) error {
	reason := r.FormValue("reason")
	if reason == "" {
		reason = "paused by hand"
	}
	return p.Pause(reason)
}

func resume(p *pipeline.Pipeline, _ *http.Request) error { return p.Resume() }

func forget(p *pipeline.Pipeline, r *http.Request) error {
	return p.DiscardOutbox(r.FormValue("partition"))
}

func (c *Config) find(name string) *pipeline.Pipeline {
	for _, p := range c.Pipelines {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

func (c *Config) names() (names []string) {
	for _, p := range c.Pipelines {
		names = append(names, p.Name())
	}
	return names
}

func refuse(w http.ResponseWriter, status int, err error, hint string) {
	answer(w, status, struct {
		Error string `json:"error"`
		Hint  string `json:"hint,omitempty"`
	}{err.Error(), hint})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // the client may be gone
}
