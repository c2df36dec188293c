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
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/partial"
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
	host     string // of the URL, whose rest may hold secrets
	pipeline string
	client   http.Client
}

// New makes a sink. It does not connect.
func New(env sink.Env, c Config) (*Sink, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, errors.New("url is none: it must begin with http:// or https:// and a host")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url %q must begin with http:// or https:// and a host", u.Redacted())
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
	return &Sink{config: c, host: u.Scheme + "://" + u.Host, pipeline: env.Pipeline, client: http.Client{
		Timeout: c.Timeout, Transport: transport, CheckRedirect: stay,
	}}, nil
}

// stay follows no redirection: most of them turn a POST into a GET, which is
// answered well and takes nothing.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// outward says what was being done, without the URL that errors of the client begin with.
func (s *Sink) outward(doing string, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s %s: %w", doing, s.host, err)
}

// Open implements sink.Sink. It knows of no ranges.
func (s *Sink) Open(_ context.Context, partition string) (sink.Writer, event.Ranges, error) {
	return &writer{sink: s, partition: partition}, nil, nil
}

// Traits implements sink.Sink.
func (s *Sink) Traits() sink.Traits { return sink.Traits{Order: sink.AnyOrder, Check: s.check} }

// check sends a HEAD request and posts nothing.
func (s *Sink) check(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, s.config.URL, nil)
	if err != nil {
		return err
	}
	s.authorize(r)
	resp, err := s.client.Do(r)
	if err != nil {
		return s.outward("ask", err)
	}
	_ = resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code >= 300 && code < 400:
		return permanent(resp)
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
	memory    partial.Written
}

// Verify implements sink.Writer. What the receiver keeps is unknown.
func (w *writer) Verify(context.Context) error { return nil }

func (w *writer) Close() error {
	w.closed.Store(true)
	return nil
}
