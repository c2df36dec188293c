// Package redis is a source that drains Redis: lists that producers append to with
// RPUSH, streams that they append to with XADD, or keys that a user's own Redis scripts
// read. Each key is a partition.
//
// Nothing is popped. The source reads events ahead by position. They stay in Redis until
// every sink has committed them; then the source trims the front. Beside the key is a
// hash, {key}:perigee, with the key's state: the absolute position of the first event
// (head), the generation that positions count in, and the pipeline that reads the key.
// The source always reads the state in one transaction with the events, and changes it in
// one transaction with the trim, so both belong to the same moment.
//
// A position is trusted only with its fingerprint. When Redis restarts with less than
// it had (an older snapshot, a lost second of the append-only file, a flush), the source
// compares it event by event with what the sinks committed. It skips what is equal, and
// starts a new generation at the first difference. The name of a generation is derived
// from its history, so the same history always gives the same name, and a Redis that is
// restored twice is recognized twice. Two items of a list with the same bytes at the same
// position of the same generation count as one event; the fingerprint of a stream's entry
// includes its ID.
//
// One pipeline reads a key. Several workers share its keys by leases that a sink keeps.
// Two workers that read the same key do no harm: the sinks fence one of them, and every
// trim is a compare-and-set.
//
// A script that removes events itself makes the source lossy: a killed process loses what
// the script returned and no sink has committed.
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
	"github.com/perigeedb/perigee/source/format"
)

// A Source is the keys of one pipeline. It keeps no connection; its readers do.
type Source struct {
	env        source.Env
	config     Config
	server     resp.Server
	kind       keyKind
	keys       Keys
	format     format.Format
	peek, trim *userScript // nil for kinds without them
	empty      source.EmptyReason

	popGeneration string // generation of popped events, which only this process has

	mu   sync.Mutex
	seen []string // keys, in the order in which they were found
}

// New makes a source. It does not connect.
func New(env source.Env, c Config) (*Source, error) {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{env: env, config: c, server: c.serverSettings(), popGeneration: randomGeneration()}
	var err error
	if s.kind, s.keys, err = c.keyKindAndNames(); err != nil {
		return nil, err
	}
	if s.format, err = format.NewMessages(c.Settings); err != nil {
		return nil, err
	}
	if err := s.server.Prepare(env.Folder); err != nil {
		return nil, err
	}
	if s.kind == scriptedKey || s.kind == poppedKey {
		if s.peek, err = readUserScript(env.Folder, c.Script, ""); err != nil {
			return nil, err
		}
	}
	if s.kind == scriptedKey {
		if s.trim, err = readUserScript(env.Folder, string(c.Trim), trimGuard); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Traits implements source.Source. Only this process has what a pop script returned.
func (s *Source) Traits() source.Traits {
	t := source.Traits{
		Growing:  !s.config.UntilEmpty && slices.ContainsFunc(s.keys, s.isPattern),
		Bounds:   s.bounds,
		Unit:     source.UnitBefore("@"),
		WhyEmpty: s.empty.Get,
		Check:    s.check,
		Format:   s.format,
	}
	if s.config.Shards > 0 {
		set := s.config.List + s.config.Stream
		t.KeySet = func(string) string { return set }
	}
	if s.kind != poppedKey {
		t.Peek = s.peekKeys
	} else {
		t.Local = func(string) bool { return true }
		t.AtMostOnce = fmt.Sprintf("script %s removes events from Redis before they are durable: a crash loses those in flight; "+
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
	if !s.hasKey(key) {
		return nil, source.ErrMoved
	}
	if s.kind == poppedKey {
		return s.openPopReader(key, partition)
	}
	r := &reader{source: s, key: key, partition: partition, generation: generation, queue: s.newQueue(key),
		end: noEnd, average: initialAverage, decoder: s.format.NewDecoder()}
	if err := r.verifyDone(ctx, done); err != nil {
		r.disconnect()
		return nil, s.wrapError("open", &keyError{key, err})
	}
	return r, nil
}

func (s *Source) openPopReader(key, partition string) (source.Reader, error) {
	if partition != partitionName(key, s.popGeneration) {
		return nil, source.ErrMoved
	}
	s.env.Log.Warn("the source may lose events", "key", key, "reason", s.Traits().AtMostOnce)
	return &popReader{source: s, key: key, partition: partition, script: s.peek, decoder: s.format.NewDecoder()}, nil
}

func (s *Source) newQueue(key string) queue {
	switch s.kind {
	case streamKey:
		return &streamQueue{key: key, state: stateKey(key), keep: s.config.Trim == "false", field: s.config.Field}
	case scriptedKey:
		return &scriptedQueue{key: key, state: stateKey(key), peek: s.peek, trim: s.trim}
	}
	return &listQueue{key: key, state: stateKey(key)}
}

// Close implements source.Source.
func (s *Source) Close() error { return nil }

func partitionName(key, generation string) string { return key + "@" + generation }

// stateKey returns the key of the state of a key, which is in the same slot of a cluster.
func stateKey(key string) string {
	if _, tag, found := strings.Cut(key, "{"); found && strings.Index(tag, "}") > 0 {
		return key + ":perigee"
	}
	return "{" + key + "}:perigee"
}

// firstGeneration names the generation of a key without a state. It is derived from the
// names, so that a Redis restored to before the first run is recognized too.
func firstGeneration(pipeline, key string, kind keyKind) string {
	if kind == listKey {
		return hashNames(pipeline, key)
	}
	return hashNames(pipeline, key, fmt.Sprint(int(kind)))
}

// nextGeneration names the generation after one that ends at position end.
func nextGeneration(generation string, end uint64) string {
	return hashNames(generation, fmt.Sprint(end))
}

func hashNames(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
