// Package http is a sink that posts batches to a URL: a webhook. It delivers at least
// once: a batch without an answer is posted again, under the same Idempotency-Key,
// by which a receiver that remembers keys recognizes the repetition.
//
// A batch that the receiver rejects is split until the rejected rows are isolated;
// the others are posted. A Sink and its writers are safe for concurrent use.
package http

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/partial"
)

// Config are the settings below "http".
type Config struct {
	URL     string        `yaml:"url,required" example:"https://example.com/events" help:"URL that batches are posted to"`
	Token   string        `yaml:"token,secret" example:"${RECEIVER_TOKEN}" help:"token that is sent as Authorization: Bearer TOKEN; take it from the environment: ${NAME}"`
	Format  string        `yaml:"format" default:"ndjson" choices:"ndjson,array,each" help:"format of the bodies: ndjson, array, or each for one request per event"`
	Gzip    bool          `yaml:"gzip" help:"compress the bodies"`
	Timeout time.Duration `yaml:"timeout" default:"30s" example:"5s" help:"time that the receiver has to answer"`
	Order   string        `yaml:"order" default:"source" choices:"source,any" help:"order of the requests of a partition: source, or any, which lets lanes post without waiting for each other"`
}

// Kind offers the sink to configurations.
func Kind() sink.Kind {
	return sink.Kind{
		Name:      "http",
		Doc:       "Posts batches to a URL, under a key by which the receiver recognizes repetitions.",
		Guarantee: sink.AtLeastOnce,
		Place:     &sink.Place{Keys: []string{"url"}, Identity: identity},
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

// identity returns a URL without what spells it: the case of the host, the default port, dots in
// the path, the order of parameters, credentials and the fragment.
func identity(_ sink.Env, text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return text, errors.New("invalid url: use http:// or https:// and a host")
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port) + path.Clean("/"+u.Path) + "?" + u.Query().Encode(), nil
}

// A Sink posts to one URL.
type Sink struct {
	config   Config
	host     string // of the URL, whose rest may hold secrets
	pipeline string
	order    sink.Order
	client   http.Client
}

// New makes a sink. It does not connect.
func New(env sink.Env, c Config) (*Sink, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, errors.New("invalid url: use http:// or https:// and a host")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("invalid url %q: use http:// or https:// and a host", u.Redacted())
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
		return nil, fmt.Errorf("unknown format %q: use %s, %s or %s", c.Format, ndjson, array, each)
	}
	order, err := sink.ParseOrder(c.Order)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	return &Sink{config: c, host: u.Scheme + "://" + u.Host, pipeline: env.Pipeline, order: order, client: http.Client{
		Timeout: c.Timeout, Transport: transport, CheckRedirect: refuseRedirect,
	}}, nil
}

// refuseRedirect follows no redirect: most turn a POST into a GET, which succeeds
// and delivers nothing.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// wrap says what failed, without the URL that errors of the client begin with.
func (s *Sink) wrap(doing string, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s %s: %w", doing, s.host, err)
}

// Open implements sink.Sink. It returns no ranges.
func (s *Sink) Open(_ context.Context, partition string) (sink.Writer, event.Ranges, error) {
	return &writer{sink: s, partition: partition}, nil, nil
}

// Traits implements sink.Sink.
func (s *Sink) Traits() sink.Traits { return sink.Traits{Order: s.order, Check: s.check} }

// check sends a HEAD request and posts nothing.
func (s *Sink) check(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, s.config.URL, nil)
	if err != nil {
		return err
	}
	s.authorize(r)
	resp, err := s.client.Do(r)
	if err != nil {
		return s.wrap("ask", err)
	}
	_ = resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code >= 300 && code < 400:
		return permanentError(resp)
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
	written   partial.Written
}

// Verify implements sink.Writer. It does nothing: the receiver does not tell which rows it keeps.
func (w *writer) Verify(context.Context) error { return nil }

func (w *writer) Close() error {
	w.closed.Store(true)
	return nil
}
