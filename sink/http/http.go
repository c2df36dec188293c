// Package http is a sink that posts batches to a URL: a webhook. It gives at
// least once: when nobody heard whether a batch arrived, it is posted again, with
// the same Idempotency-Key, by which a receiver that remembers keys can tell.
//
// A batch that the receiver refuses is halved until the rows that it minds are
// found; they are refused, the others are posted. A Sink and its writers are safe
// for concurrent use.
package http

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// Config are the settings below "http".
type Config struct {
	URL     string        `yaml:"url,required" help:"where batches are posted"`
	Token   string        `yaml:"token" help:"shown as Authorization: Bearer TOKEN; give it as ${NAME}"`
	Format  string        `yaml:"format" help:"ndjson, array, or each for a request per event (default ndjson)"`
	Gzip    bool          `yaml:"gzip" help:"pack the bodies"`
	Timeout time.Duration `yaml:"timeout" help:"for the receiver to answer (default 30s)"`
}

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "http",
		Doc:       "Posts batches to a URL, with a key by which a receiver can tell a repetition.",
		Guarantee: sink.AtLeastOnce,
		Config:    &Config{},
		New: func(env sink.Env, decode func(any) error) (sink.Sink, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			return New(env, c)
		},
	}
}

// A Sink posts to one URL.
type Sink struct {
	config   Config
	pipeline string
	client   http.Client
}

// New makes a sink. It does not connect.
func New(env sink.Env, c Config) (*Sink, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("url: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url %q must begin with http:// or https:// and a host", c.URL)
	case c.Timeout < 0:
		return nil, errors.New("timeout must not be negative")
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	switch c.Format {
	case "":
		c.Format = ndjson
	case ndjson, array, each:
	default:
		return nil, fmt.Errorf("unknown format %q; known: %s, %s, %s", c.Format, ndjson, array, each)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	return &Sink{config: c, pipeline: env.Pipeline, client: http.Client{Timeout: c.Timeout, Transport: transport}}, nil
}

// Open implements sink.Sink. It knows of no ranges.
func (s *Sink) Open(_ context.Context, partition string) (sink.Writer, event.Ranges, error) {
	return &writer{sink: s, partition: partition, arrived: make(map[uint64]map[row]bool)}, nil, nil
}

// Check implements sink.Checker: it asks whether somebody answers, and posts nothing.
func (s *Sink) Check(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, s.config.URL, nil)
	if err != nil {
		return err
	}
	s.authorize(r)
	resp, err := s.client.Do(r)
	if err != nil {
		return fmt.Errorf("ask %s: %w", s.config.URL, err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return permanent(resp.Status)
	}
	return nil
}

// Close implements sink.Sink.
func (s *Sink) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

type writer struct {
	sink      *Sink
	partition string
	closed    atomic.Bool

	mu      sync.Mutex
	arrived map[uint64]map[row]bool // of ranges that were refused in part, by First
}

// A row is known by its event and its content.
type row struct{ position, sum uint64 }

func (w *writer) Close() error {
	w.closed.Store(true)
	return nil
}
