// Package http is a source of events that clients post: NDJSON, an array, one object, or
// another format. The response is sent when the events are on this machine's disk. It says
// how many were accepted, and which were rejected and why.
//
// Accepted events wait in a spool in the data folder (see internal/spool), so a
// client need not wait for a script or a sink, nor post again when one of them fails.
// The spool is read like any other partition: exactly once into sinks that commit
// exactly once. A client that got no response posts the same body again with the same
// Idempotency-Key and gets the same response.
//
// A Source is safe for concurrent use. It listens from the first call of Partitions
// until Close.
package http

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/httpserver"
	"github.com/perigeedb/perigee/internal/spool"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// Config are the settings below "http".
type Config struct {
	Listen   string        `yaml:"listen,required" example:"127.0.0.1:4291" help:"address to listen on, as 127.0.0.1:4291"`
	Path     string        `yaml:"path" default:"/" example:"/events" help:"path that events are posted to"`
	Token    string        `yaml:"token,secret" example:"${EVENTS_TOKEN}" help:"clients must send it as Authorization: Bearer TOKEN; required beyond loopback; give it as ${NAME}"`
	Cert     string        `yaml:"cert" example:"tls/server.crt" help:"file with the certificate, for TLS"`
	Key      string        `yaml:"key" example:"tls/server.key" help:"file with its key"`
	MaxBody  int           `yaml:"max_body,size" default:"16MiB" example:"64MiB" help:"maximum size of a body, decompressed"`
	Spool    int           `yaml:"spool,size" default:"1GiB" example:"10GiB" help:"maximum size of the spool on disk; when it is full, clients get 503"`
	Remember time.Duration `yaml:"remember" default:"24h" example:"7d" help:"how long an Idempotency-Key is remembered"`
	format.Settings
}

var pathPattern = regexp.MustCompile(`^/[A-Za-z0-9_.~/-]*$`)

const (
	segmentBytes = 32 << 20
	keysMax      = 1_000_000 // about 200 MB of memory when all are in use
	senderKeys   = 250_000   // that one client address may have of them
)

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "http",
		Doc:    "Accepts events that clients post (NDJSON, an array, one object), and responds when they are on disk.",
		Config: &Config{},
		New: func(env source.Env, decode func(any) error) (source.Source, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			return New(env, c)
		},
	}
}

// A Source is a spool and a server that fills it. It has one partition.
type Source struct {
	env    source.Env
	config Config
	format format.Format

	mu     sync.Mutex
	spool  *spool.Spool // nil until the server listens
	server *server
}

// New makes a source. It does not listen.
func New(env source.Env, c Config) (*Source, error) {
	if err := c.access().Validate("post events"); err != nil {
		return nil, err
	}
	switch {
	case c.MaxBody < 0 || c.Spool < 0 || c.Remember < 0:
		return nil, errors.New("max_body, spool and remember must not be negative")
	case c.Path != "" && !pathPattern.MatchString(c.Path):
		return nil, fmt.Errorf("invalid path %q: it must begin with / and contain only letters, digits and _ . - ~ /", c.Path)
	}
	f, err := format.New(c.Settings)
	if err != nil {
		return nil, err
	}
	c.Path = cmp.Or(c.Path, "/")
	c.MaxBody = cmp.Or(c.MaxBody, 16<<20)
	c.Spool = cmp.Or(c.Spool, 1<<30)
	c.Remember = cmp.Or(c.Remember, 24*time.Hour)
	for _, file := range []*string{&c.Cert, &c.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(env.Folder, *file)
		}
	}
	return &Source{env: env, config: c, format: f}, nil
}

func (c *Config) access() *httpserver.Access {
	return &httpserver.Access{Listen: c.Listen, Token: c.Token, Cert: c.Cert, Key: c.Key}
}

// Traits implements source.Source. Only this engine can read its spool.
func (s *Source) Traits() source.Traits {
	return source.Traits{Growing: true, Local: func(string) bool { return true }, Unit: func(string) string { return "http" }, Check: s.check, Format: s.format}
}

// check loads the certificate, and listens for a moment unless the server already
// does.
func (s *Source) check(ctx context.Context) error {
	if _, err := s.config.loadCertificates(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		l, err := s.config.listen(nil)
		if err != nil {
			return err
		}
		_ = l.Close()
	}
	return ctx.Err()
}

// startServer opens the spool and listens, when it is called first.
func (s *Source) startServer() (*spool.Spool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spool != nil {
		return s.spool, nil
	}
	sp, err := spool.Open(filepath.Join(s.env.Data, "http", s.env.Pipeline), spool.Options{
		BytesMax: int64(s.config.Spool), SegmentBytes: segmentBytes, KeyWindow: s.config.Remember, KeysMax: keysMax, KeysPerSender: senderKeys,
	})
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: "the disk may be full or the folder damaged"}
	}
	srv, err := newServer(s.config, s.format, sp, s.env.Log)
	if err != nil {
		return nil, errors.Join(err, sp.Close())
	}
	s.spool, s.server = sp, srv
	return sp, nil
}

// Address returns where the source listens, or nil before it does.
func (s *Source) Address() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	return s.server.address
}

func partitionName(sp *spool.Spool) string { return "http-" + sp.ID() }

// Partitions implements source.Source.
func (s *Source) Partitions(context.Context) ([]string, error) {
	sp, err := s.startServer()
	if err != nil {
		return nil, err
	}
	return []string{partitionName(sp)}, nil
}

// Open implements source.Source.
func (s *Source) Open(_ context.Context, partition string, done event.Ranges) (source.Reader, error) {
	sp, err := s.startServer()
	if err != nil {
		return nil, err
	}
	if partition != partitionName(sp) {
		return nil, source.ErrMoved
	}
	renamed, err := sp.DetectRollback(done)
	if err != nil {
		return nil, err
	}
	if renamed {
		s.env.Log.Warn("the spool is older than the positions that the sinks have committed, as after a restored backup: it continues under a new name",
			"old", partition, "new", partitionName(sp))
		return nil, source.ErrMoved
	}
	if err := sp.MarkVerified(); err != nil {
		return nil, err
	}
	return s.newReader(sp, partition, done)
}

func (s *Source) newReader(sp *spool.Spool, partition string, done event.Ranges) (source.Reader, error) {
	r := &reader{source: s, spool: sp, name: partition}
	for _, ranges := range [][]event.Range{done, sp.Skipped()} {
		for _, d := range ranges {
			r.done.Add(event.Range{First: d.First, Count: d.Count})
		}
	}
	first, _ := sp.Bounds()
	r.next = r.done.Next(0)
	if !s.env.Remembered {
		r.next = r.done.Next(max(first, sp.LowWatermark()))
	}
	if r.next < first {
		return nil, &event.PermanentError{
			Err:  fmt.Errorf("events [%d,%d) of %s were acknowledged and removed from the spool, but the sink does not have them", r.next, first, partition),
			Hint: "restore the sink, or skip these events with: " + source.SetPosition(s.env.Pipeline, partition, first),
		}
	}
	r.acked.Add(event.Range{Count: max(first, r.next)})
	for _, d := range r.done {
		r.acked.Add(d)
	}
	return r, nil
}

// Close implements source.Source. Events that were accepted and not read stay on disk.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spool == nil {
		return nil
	}
	return errors.Join(s.server.close(), s.spool.Close())
}
