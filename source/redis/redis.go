// Package redis is a source that drains a Redis list, to which producers append
// with RPUSH.
//
// Nothing is popped. Events are read ahead with LRANGE and stay in the list until
// they are durable in every sink; then the front is trimmed. Beside the list
// stands a hash, {list}:perigee, with the absolute position of the list's first
// item (head), the generation in which positions count, and the pipeline that
// reads the list. It is always read in one transaction with the items and changed
// in one with the trim, so both tell of the same moment.
//
// A position is trusted only with its fingerprint. A Redis that comes back with
// less than it had (an older snapshot, a lost second of the append-only file, a
// flush) is compared item by item with what the sinks have: what is equal is
// skipped, and at the first difference a new generation begins. Generations are
// named by what came before, so the same past always leads to the same name and
// a Redis that is restored twice is recognised twice. Two events of the same
// bytes at the same position of the same generation count as one event.
//
// One pipeline reads a list. A second engine with the same pipeline does no harm:
// its sinks are fenced, and every trim is a compare-and-set.
package redis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// Config are the settings below "redis".
type Config struct {
	Address    string `yaml:"address" help:"host and port (default 127.0.0.1:6379)"`
	Username   string `yaml:"username" help:"user, where the server has several"`
	Password   string `yaml:"password" help:"password; take it from the environment: ${REDIS_PASSWORD}"`
	DB         int    `yaml:"db" help:"number of the database (default 0)"`
	List       string `yaml:"list,required" help:"key of the list; producers append with RPUSH"`
	UntilEmpty bool   `yaml:"until_empty" help:"end when the list has no more events, instead of waiting for them"`
}

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "redis",
		Doc:    "Drains a Redis list; events stay in it until they are durable in every sink.",
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

// A Source is one list. It holds no connection of its own; its readers do.
type Source struct {
	env    source.Env
	config Config
	state  string // key of the hash beside the list
}

// New makes a source. It does not connect.
func New(env source.Env, c Config) (*Source, error) {
	if c.List == "" {
		return nil, errors.New("list is empty; name the key that producers push to")
	}
	if c.Address == "" {
		c.Address = "127.0.0.1:6379"
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{env: env, config: c, state: stateKey(c.List)}, nil
}

// stateKey is the key beside a list, in the same slot of a cluster.
func stateKey(list string) string {
	if _, tag, found := strings.Cut(list, "{"); found && strings.Index(tag, "}") > 0 {
		return list + ":perigee"
	}
	return "{" + list + "}:perigee"
}

// Partitions implements source.Source. There is one partition: the list in its
// generation.
func (s *Source) Partitions(ctx context.Context) ([]string, error) {
	c, err := s.dial(ctx)
	if err != nil {
		return nil, s.explain("look for the list", err)
	}
	defer c.close()
	var now state
	err = c.during(ctx, func() error {
		c.eval(createScript, []string{s.state}, firstGeneration(s.env.Pipeline, s.config.List), s.env.Pipeline)
		if err := c.flush(); err != nil {
			return err
		}
		now, err = c.readState()
		return err
	})
	if err == nil {
		err = s.ours(now)
	}
	if err != nil {
		return nil, s.explain("look for the list", err)
	}
	return []string{s.partition(now.generation)}, nil
}

// ours refuses a list that another pipeline reads.
func (s *Source) ours(now state) error {
	if now.pipeline == s.env.Pipeline {
		return nil
	}
	return &source.PermanentError{
		Err:  fmt.Errorf("list %q is read by pipeline %q already", s.config.List, now.pipeline),
		Hint: fmt.Sprintf("one pipeline reads a list; if %q is gone for good, delete the key: redis-cli DEL %q", now.pipeline, s.state),
	}
}

func (s *Source) partition(generation string) string { return s.config.List + "@" + generation }

// Open implements source.Source.
func (s *Source) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	generation, found := strings.CutPrefix(partition, s.config.List+"@")
	if !found {
		return nil, source.ErrMoved
	}
	r := &reader{source: s, partition: partition, generation: generation, end: never, average: averageGuess}
	if err := r.open(ctx, done); err != nil {
		r.disconnect()
		return nil, s.explain("open the list", err)
	}
	return r, nil
}

// Close implements source.Source.
func (s *Source) Close() error { return nil }

// firstGeneration is what a list counts in when nothing stands beside it. It
// follows from the names, because a Redis restored to before the first run must
// be recognised too.
func firstGeneration(pipeline, list string) string { return digest(pipeline, list) }

// nextGeneration follows a generation that was found to differ at position end.
func nextGeneration(generation string, end uint64) string {
	return digest(generation, fmt.Sprint(end))
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// explain says what was being done, and gives the errors that a person must
// mend a hint.
func (s *Source) explain(doing string, err error) error {
	if errors.Is(err, source.ErrMoved) || errors.Is(err, context.Canceled) {
		return err
	}
	wrapped := fmt.Errorf("%s in redis %s: %w", doing, s.config.Address, err)
	var refused replyError
	if !errors.As(err, &refused) {
		return wrapped
	}
	code, _, _ := strings.Cut(string(refused), " ")
	switch {
	case code == "WRONGTYPE":
		return &source.PermanentError{Err: wrapped, Hint: fmt.Sprintf(
			"key %q must be a list and %s a hash; look with TYPE", s.config.List, s.state)}
	case code == "NOAUTH" || code == "WRONGPASS" || code == "NOPERM" || strings.HasPrefix(string(refused), "ERR AUTH"):
		return &source.PermanentError{Err: wrapped, Hint: "set username and password to a user that may read and trim the list and run scripts"}
	case strings.HasPrefix(string(refused), "ERR DB index"):
		return &source.PermanentError{Err: wrapped, Hint: fmt.Sprintf("the server has no database %d", s.config.DB)}
	}
	return wrapped
}
