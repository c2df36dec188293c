// Package redis is a source that drains Redis: lists, to which producers append
// with RPUSH, streams, to which they append with XADD, or whatever a user's own
// Redis scripts make of a key. Each key is a partition.
//
// Nothing is popped. Events are read ahead by their position and stay where they
// are until they are durable in every sink; then the front is trimmed. Beside the
// key stands a hash, {key}:perigee, with the absolute position of the first event
// (head), the generation in which positions count, and the pipeline that reads the
// key. It is always read in one transaction with the events and changed in one with
// the trim, so both tell of the same moment.
//
// A position is trusted only with its fingerprint. A Redis that comes back with
// less than it had (an older snapshot, a lost second of the append-only file, a
// flush) is compared event by event with what the sinks have: what is equal is
// skipped, and at the first difference a new generation begins. Generations are
// named by what came before, so the same past always leads to the same name and
// a Redis that is restored twice is recognised twice. Two items of a list of the
// same bytes at the same position of the same generation count as one event; the
// fingerprint of a stream's entry takes in its ID.
//
// One pipeline reads a key. Several workers of it share keys by the leases that a
// sink holds; two at the same key do no harm: the sinks fence one, and every trim
// is a compare-and-set.
//
// A script that takes events away itself makes the source lossy: what was taken
// and is not yet durable is lost with the process.
package redis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
)

// A Source is the keys of one pipeline. It holds no connection of its own; its
// readers do.
type Source struct {
	env        source.Env
	config     Config
	server     resp.Server
	form       form
	keys       Keys
	peek, trim *lua   // of a user; nil otherwise
	popped     string // generation of what a script pops: of this process alone

	mu   sync.Mutex
	seen []string // keys found by patterns, in the order of their discovery
}

// New makes a source. It does not connect.
func New(env source.Env, c Config) (*Source, error) {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{env: env, config: c, server: c.server(), popped: anyGeneration()}
	var err error
	if s.form, s.keys, err = c.form(); err != nil {
		return nil, err
	}
	if err := s.server.Prepare(env.Folder); err != nil {
		return nil, err
	}
	if s.form == asPair || s.form == asPop {
		if s.peek, err = readLua(env.Folder, c.Script, ""); err != nil {
			return nil, err
		}
	}
	if s.form == asPair {
		if s.trim, err = readLua(env.Folder, string(c.Trim), trimGuard); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Traits implements source.Source. What a pop script takes is in this process only.
func (s *Source) Traits() source.Traits {
	t := source.Traits{
		Growing: !s.config.UntilEmpty && slices.ContainsFunc(s.keys, s.isPattern),
		Bounds:  s.bounds,
		Check:   s.check,
	}
	if s.form == asPop {
		t.Local = func(string) bool { return true }
		t.AtMostOnce = fmt.Sprintf("script %s takes events from Redis before they are durable: a crash loses those in flight; "+
			"a peek script with trim gives exactly once", s.config.Script)
	}
	return t
}

// Open implements source.Source.
func (s *Source) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	at := strings.LastIndexByte(partition, '@')
	if at < 0 {
		return nil, source.ErrMoved
	}
	key, generation := partition[:at], partition[at+1:]
	if !s.reads(key) {
		return nil, source.ErrMoved
	}
	if s.form == asPop {
		return s.openPopper(key, partition)
	}
	r := &reader{source: s, key: key, partition: partition, generation: generation, queue: s.queue(key),
		end: never, average: averageGuess}
	if err := r.open(ctx, done); err != nil {
		r.disconnect()
		return nil, s.explain("open", &keyError{key, err})
	}
	return r, nil
}

func (s *Source) openPopper(key, partition string) (source.Reader, error) {
	if partition != partitionName(key, s.popped) {
		return nil, source.ErrMoved
	}
	s.env.Log.Warn("the source may lose events", "key", key, "reason", s.Traits().AtMostOnce)
	return &popper{source: s, key: key, partition: partition, script: s.peek}, nil
}

func (s *Source) queue(key string) queue {
	switch s.form {
	case asStream:
		return &stream{key: key, state: stateKey(key), keep: s.config.Trim == "false", field: s.config.Field}
	case asPair:
		return &pair{key: key, state: stateKey(key), peek: s.peek, trim: s.trim}
	}
	return &list{key: key, state: stateKey(key)}
}

// Close implements source.Source.
func (s *Source) Close() error { return nil }

func partitionName(key, generation string) string { return key + "@" + generation }

// stateKey is the key beside a key, in the same slot of a cluster.
func stateKey(key string) string {
	if _, tag, found := strings.Cut(key, "{"); found && strings.Index(tag, "}") > 0 {
		return key + ":perigee"
	}
	return "{" + key + "}:perigee"
}

// firstGeneration is what a key counts in when nothing stands beside it. It
// follows from the names, because a Redis restored to before the first run must
// be recognised too.
func firstGeneration(pipeline, key string, f form) string {
	if f == asList {
		return digest(pipeline, key)
	}
	return digest(pipeline, key, fmt.Sprint(int(f)))
}

// nextGeneration follows a generation that was found to differ at position end.
func nextGeneration(generation string, end uint64) string {
	return digest(generation, fmt.Sprint(end))
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
