// Package console serves the web console of an engine at /console/ on its HTTP port: pages that
// show and operate its pipelines, dead letters, tables, scripts and states.
//
//	store := new(eventservice.Store)
//	options := engine.Options{
//		Services: []engine.Service{store, console.New(console.Settings{})},
//	}
//
// The pages are static files in the program. Their API is a part of the routes of the engine's
// socket, so that the console and the command line run the same code, and a few routes of its own
// that change nothing: rates, trials of scripts, searches of nodes.
//
// A request without the token of the configuration gets static files only. Without a token in the
// configuration, the console listens on loopback addresses only. It refuses pages of other sites
// there too, see Console.protect. The console does nothing while no page is open.
//
// A Console belongs to one engine, and is safe for concurrent use.
package console

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/httpserver"
)

// Settings are what a console is made with. The zero value is useful.
type Settings struct {
	Version string // of the program, as the console shows it
	// Measure says how a script spends its time on a batch; nil if this program cannot tell. It
	// must end soon after ctx.
	Measure func(ctx context.Context, s *engine.Stages, batch *event.Batch) (*Measurement, error)
}

// A Measurement says how a script spends its time, and where its compiler gives up.
type Measurement struct {
	Engine string        `json:"engine"` // that ran the script
	Events int           `json:"events"` // of the sample
	Took   time.Duration `json:"took"`   // of one pass over the sample, compiled
	// Interpreted is the time of the pass from which Lines are. Scripts run interpreted then, so
	// it is longer than Took.
	Interpreted time.Duration  `json:"interpreted"`
	Traces      int            `json:"traces"` // pieces of code that the compiler made
	Lines       []MeasuredLine `json:"lines"`  // by file and line
}

// A MeasuredLine is a line of a script.
type MeasuredLine struct {
	File   string  `json:"file"` // "" for the script itself
	Line   int     `json:"line"`
	Share  float64 `json:"share"` // of the time of all lines
	Count  int     `json:"count"` // how often the line ran, in one pass
	Aborts []Abort `json:"aborts,omitempty"`
}

// An Abort is a reason why a line is not compiled.
type Abort struct {
	Reason      string `json:"reason"`      // as the compiler words it
	Explanation string `json:"explanation"` // for readers that do not know the compiler
	Count       int    `json:"count"`       // of attempts
	Minor       bool   `json:"minor"`       // little is lost
}

// A Console is an engine.Service.
type Console struct {
	settings Settings
	host     engine.Host
	access   httpserver.Access // the token
	config   atomic.Pointer[config.Config]
	watch    watch
	trials   chan struct{} // a place for each trial that may run
}

// trialsMax bounds the scripts that run for the console at the same time.
const trialsMax = 2

var _ engine.Service = (*Console)(nil)

// New returns a console for one engine.
func New(settings Settings) *Console {
	return &Console{settings: settings, trials: make(chan struct{}, trialsMax)}
}

// Configure implements engine.Service.
func (c *Console) Configure(conf *config.Config) error {
	c.config.Store(conf)
	return nil
}

// Start implements engine.Service.
func (c *Console) Start(h engine.Host) error {
	conf := c.config.Load().Console
	if conf.Disabled || h.HTTP == "" {
		return nil
	}
	if conf.Token == "" && !httpserver.IsLoopback(h.HTTP) {
		h.Log.Info("no console: an address that other machines reach needs a token", "address", h.HTTP, "hint", "set console.token, or console.disabled")
		return nil
	}
	c.host, c.access, c.watch.status = h, httpserver.Access{Token: conf.Token}, h.Status
	h.HandlePort("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
	h.HandlePort("/console/", c.handler())
	return nil
}

// Close implements engine.Service.
func (c *Console) Close() error { return nil }
