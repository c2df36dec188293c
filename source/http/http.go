// Package http is a source of events that senders post: NDJSON, an array or one
// object. The answer comes when the events are on this machine's disk, and says
// which were taken and which refused, with reasons.
//
// What was taken waits in a spool in the data folder (see internal/spool), so a
// sender need not wait for a script or a sink, nor come again when one of them
// fails. From there on it is read like any other partition: exactly once into
// sinks that are so too. A sender that does not know whether it was heard posts
// the same body again under the same Idempotency-Key and gets the same answer.
//
// A Source is safe for concurrent use. It listens from the first call of
// Partitions to Close.
package http

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/spool"
	"github.com/perigeedb/perigee/source"
)

// Config are the settings below "http".
type Config struct {
	Listen   string        `yaml:"listen,required" help:"address to listen on, as 127.0.0.1:4291"`
	Path     string        `yaml:"path" help:"where events are posted (default /)"`
	Token    string        `yaml:"token" help:"senders must show it as Authorization: Bearer TOKEN; required beyond loopback; give it as ${NAME}"`
	Cert     string        `yaml:"cert" help:"file with the certificate, for TLS"`
	Key      string        `yaml:"key" help:"file with its key"`
	MaxBody  int           `yaml:"max_body,size" help:"bytes of a body at most, unpacked (default 16MiB)"`
	Spool    int           `yaml:"spool,size" help:"bytes that may wait on disk; beyond, senders get 503 (default 1GiB)"`
	Remember time.Duration `yaml:"remember" help:"how long an Idempotency-Key is known (default 24h)"`
}

var paths = regexp.MustCompile(`^/[A-Za-z0-9_.~/-]*$`)

const (
	segmentBytes = 32 << 20
	keysMax      = 1_000_000 // about 200 MB of memory when all are in use
)

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "http",
		Doc:    "Takes events that senders post (NDJSON, an array, one object), and answers when they are on disk.",
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

// A Source is a spool and a listener before it. It has one partition.
type Source struct {
	env    source.Env
	config Config

	mu     sync.Mutex
	spool  *spool.Spool // nil until it listens
	server *server
}

// New makes a source. It does not listen.
func New(env source.Env, c Config) (*Source, error) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; write host:port", err)
	}
	switch {
	case c.Token == "" && !loopback(host):
		return nil, fmt.Errorf("listening on %s needs a token: anybody there could post events", c.Listen)
	case (c.Cert == "") != (c.Key == ""):
		return nil, errors.New("TLS needs both cert and key")
	case c.MaxBody < 0 || c.Spool < 0 || c.Remember < 0:
		return nil, errors.New("max_body, spool and remember must not be negative")
	case c.Path != "" && !paths.MatchString(c.Path):
		return nil, fmt.Errorf("path %q must begin with / and hold nothing but letters, digits and _ . - ~ /", c.Path)
	}
	c.Path = orElse(c.Path, "/")
	c.MaxBody = orElse(c.MaxBody, 16<<20)
	c.Spool = orElse(c.Spool, 1<<30)
	c.Remember = orElse(c.Remember, 24*time.Hour)
	for _, file := range []*string{&c.Cert, &c.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(env.Folder, *file)
		}
	}
	return &Source{env: env, config: c}, nil
}

func orElse[T comparable](given, otherwise T) T {
	var zero T
	if given == zero {
		return otherwise
	}
	return given
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// start opens the spool and listens, the first time.
func (s *Source) start() (*spool.Spool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spool != nil {
		return s.spool, nil
	}
	sp, err := spool.Open(filepath.Join(s.env.Data, "http", s.env.Pipeline), spool.Options{
		BytesMax: int64(s.config.Spool), SegmentBytes: segmentBytes, KeyWindow: s.config.Remember, KeysMax: keysMax,
	})
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: "the disk may be full or the folder damaged"}
	}
	srv, err := listen(s.config, sp, s.env.Log)
	if err != nil {
		return nil, errors.Join(err, sp.Close())
	}
	s.spool, s.server = sp, srv
	return sp, nil
}

// Address is where the source listens, once it does.
func (s *Source) Address() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	return s.server.address
}

func name(sp *spool.Spool) string { return "http-" + sp.ID() }

// Partitions implements source.Source.
func (s *Source) Partitions(context.Context) ([]string, error) {
	sp, err := s.start()
	if err != nil {
		return nil, err
	}
	return []string{name(sp)}, nil
}

// check does not listen: a running engine may have the port.
func (s *Source) check(ctx context.Context) error {
	if _, err := s.config.certificates(); err != nil {
		return err
	}
	return ctx.Err()
}

// Traits implements source.Source. Only this engine can read its spool.
func (s *Source) Traits() source.Traits {
	return source.Traits{Growing: true, Local: func(string) bool { return true }, Check: s.check}
}

// Open implements source.Source.
func (s *Source) Open(_ context.Context, partition string, done event.Ranges) (source.Reader, error) {
	sp, err := s.start()
	if err != nil {
		return nil, err
	}
	if partition != name(sp) {
		return nil, source.ErrMoved
	}
	renamed, err := sp.DetectRollback(done)
	if err != nil {
		return nil, err
	}
	if renamed {
		s.env.Log.Warn("the spool is older than what the sinks have of it, as after a restored copy: it goes on under a new name",
			"old", partition, "new", name(sp))
		return nil, source.ErrMoved
	}
	if err := sp.MarkVerified(); err != nil {
		return nil, err
	}
	return s.open(sp, partition, done)
}

func (s *Source) open(sp *spool.Spool, partition string, done event.Ranges) (source.Reader, error) {
	r := &reader{source: s, spool: sp, name: partition}
	for _, had := range [][]event.Range{done, sp.Skipped()} {
		for _, d := range had {
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
			Err:  fmt.Errorf("the sink lacks the events [%d,%d) of %s, which it said to have and the spool gave up", r.next, first, partition),
			Hint: "restore the sink, or give them up with: " + source.SetPosition(s.env.Pipeline, partition, first),
		}
	}
	r.acked.Add(event.Range{Count: max(first, r.next)})
	for _, d := range r.done {
		r.acked.Add(d)
	}
	return r, nil
}

// Close implements source.Source. What was taken and not read stays on disk.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spool == nil {
		return nil
	}
	return errors.Join(s.server.close(), s.spool.Close())
}
