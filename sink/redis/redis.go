// Package redis is a sink that writes documents to Redis, each exactly once: to the
// end of a list, to a stream, or as one hash per document.
//
// A batch is one Lua script, which Redis runs as a whole or not at all: it compares
// the epoch of the partition's owner with the writer's, then writes the rows and, in
// a hash under perigee:, the positions that they came from with their fingerprints.
// Everything that can fail is checked before the first write. The note of a unit goes into the same
// script: it compares the epoch of the unit's owner, and the number of its last note, too. A takeover raises the
// epoch and reads the positions in one script too, so every write in flight meets
// the fence.
//
// Exactly once holds within Redis: when Redis loses its last writes (with appendfsync
// everysec up to a second of them, without an append-only file all since the last
// snapshot), it loses rows and positions together. The source no longer has such
// events, so the pipeline stops and names them.
//
// All keys must be on one server, which must not be part of a cluster. Sinks and
// writers are safe for concurrent use; every write in flight has a connection of its
// own.
package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// A Sink writes the documents of one pipeline to one target.
type Sink struct {
	config   Config
	server   resp.Server
	kind     string // list, stream or hash
	target   string // key, or template of keys
	template template
	order    sink.Order
	scope    string // of the keys beside the target
	owner    string // names this process, for people
	state    bool   // the pipeline has a state
	log      *slog.Logger

	mu     sync.Mutex
	idle   []*resp.Conn
	closed bool
}

// New makes a sink. It does not connect.
func New(env sink.Env, config Config) (*Sink, error) {
	s := &Sink{config: config, server: config.server(), state: env.State, log: env.Log}
	var err error
	if s.kind, s.target, err = config.target(); err != nil {
		return nil, err
	}
	if s.order, err = config.order(s.kind); err != nil {
		return nil, err
	}
	if s.kind == "hash" {
		if s.template, err = parseTemplate(s.target); err != nil {
			return nil, err
		}
	}
	if err := s.server.Prepare(env.Folder); err != nil {
		return nil, err
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.scope = escape(env.Pipeline) + ":" + escape(s.target)
	host, _ := os.Hostname()
	s.owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	return s, nil
}

// escape makes a name part of a key, so that different names are different keys.
func escape(name string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A").Replace(name)
}

// partitionKey is the key of something about one partition.
func (s *Sink) partitionKey(what, partition string) string {
	return "perigee:" + what + ":" + s.scope + ":" + escape(partition)
}

// sharedKey is the key of something about all partitions.
func (s *Sink) sharedKey(what string) string { return "perigee:" + what + ":" + s.scope }

// Traits implements sink.Sink.
func (s *Sink) Traits() sink.Traits {
	t := sink.Traits{Order: s.order, Leases: s, Positions: s, Units: s, Check: s.check}
	if s.config.Shards > 0 {
		t.Columns = []event.Column{{Name: s.config.By, Path: strings.Split(s.config.By, "."), Type: event.JSON, Required: true}}
	}
	return t
}

// Open implements sink.Sink.
func (s *Sink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	p := &partitionStore{sink: s, partition: partition, token: s.owner + ":" + rand.Text()[:12]}
	if err := s.warnIfVolatile(ctx); err != nil {
		return nil, nil, s.wrapError("look up the server's settings", err)
	}
	entries, err := p.takeOver(ctx, false)
	if err != nil {
		return nil, nil, s.wrapError("take over the partition", err)
	}
	w, done := positions.NewNoteWriter(p, entries, s.log)
	return w, done, nil
}

// warnIfVolatile logs a warning when the server may lose what it has committed.
func (s *Sink) warnIfVolatile(ctx context.Context) error {
	return s.withConn(ctx, func(c *resp.Conn) error {
		info, err := c.Info(ctx, "persistence")
		if isRejected(err) {
			return nil // the user may not ask
		}
		if err == nil && info["aof_enabled"] == "0" {
			s.log.Warn("the server may lose committed rows, and the events in them, when it fails",
				"sink", s.server.Address, "appendonly", "no", "hint", "set appendonly to yes, and appendfsync to always to lose none")
		}
		return err
	})
}

// Close implements sink.Sink.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.idle {
		c.Close()
	}
	s.idle = nil
	return nil
}

// withConn runs do with a connection and keeps the connection unless it may be broken.
func (s *Sink) withConn(ctx context.Context, do func(c *resp.Conn) error) error {
	c, err := s.acquireConn(ctx)
	if err != nil {
		return &notSent{err}
	}
	err = do(c)
	if err != nil && !isRejected(err) {
		c.Close()
		return err
	}
	s.releaseConn(c)
	return err
}

func isRejected(err error) bool { return errors.As(err, new(resp.ReplyError)) }

// A notSent is an error from before anything was sent.
type notSent struct{ err error }

func (e *notSent) Error() string { return e.err.Error() }
func (e *notSent) Unwrap() error { return e.err }

func (s *Sink) acquireConn(ctx context.Context) (*resp.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c := s.idleConn(); c != nil {
		return c, nil
	}
	return s.server.Dial(ctx)
}

// idleConn returns a connection that is idle, or nil.
func (s *Sink) idleConn() *resp.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	c := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return c
}

func (s *Sink) releaseConn(c *resp.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return
	}
	s.idle = append(s.idle, c)
}

// eval runs a script and returns its reply.
func (s *Sink) eval(ctx context.Context, script string, keys []string, args ...string) (v any, err error) {
	err = s.withConn(ctx, func(c *resp.Conn) error {
		return c.WithContext(ctx, func() error {
			c.QueueEval(script, keys, args...)
			if err := c.Flush(); err != nil {
				return err
			}
			v, err = c.ReadReply()
			return err
		})
	})
	return v, err
}
