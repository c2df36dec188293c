package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
)

const (
	stateSuffix = ":perigee"
	scanCount   = "1000" // keys that a step of a search looks at
)

// Partitions implements source.Source. Each key in its generation is one. What
// stands beside a key is made by the first worker that comes; the others find it.
func (s *Source) Partitions(ctx context.Context) (names []string, err error) {
	c, err := s.server.Dial(ctx)
	if err != nil {
		return nil, s.explain("look for keys", err)
	}
	defer c.Close()
	err = c.WithContext(ctx, func() error {
		keys, err := s.find(c)
		if err != nil {
			return err
		}
		names, err = s.generations(c, keys)
		return err
	})
	if err != nil {
		return nil, s.explain("look for keys", err)
	}
	return names, nil
}

// find returns the keys there are. One that was seen stays: a list that is
// drained is gone from Redis until the next push.
func (s *Source) find(c *resp.Conn) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		found := []string{k}
		if s.isPattern(k) {
			var err error
			if found, err = s.match(c, k); err != nil {
				return nil, err
			}
		}
		for _, key := range found {
			if !slices.Contains(s.seen, key) {
				s.seen = append(s.seen, key)
			}
		}
	}
	return slices.Clone(s.seen), nil
}

// isPattern tells whether a name stands for several keys: one in lists or streams
// may, that of a list or a stream is what it is.
func (s *Source) isPattern(name string) bool {
	return s.config.List == "" && s.config.Stream == "" && strings.ContainsAny(name, "*?[")
}

// match looks for keys by a pattern. A list that is drained is gone, but what stands
// beside it is not: a worker that has just begun must name the same keys as those
// that have seen them full, or they would reckon with different shares, and leave a
// key to each other.
func (s *Source) match(c *resp.Conn, pattern string) ([]string, error) {
	kind := ""
	if s.form == asList || s.form == asStream {
		kind = s.form.String()
	}
	found, err := s.scan(c, pattern, kind)
	if err != nil || s.form == asStream || s.form == asPop {
		return found, err
	}
	states, err := s.scan(c, stateKey(pattern), "hash")
	for _, state := range states {
		key := strings.TrimSuffix(state, stateSuffix)
		if inner := strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}"); stateKey(inner) == state {
			key = inner
		}
		if !slices.Contains(found, key) {
			found = append(found, key)
		}
	}
	return found, err
}

// scan looks for keys of a type by a pattern; no type is any, save for our own.
func (s *Source) scan(c *resp.Conn, match, kind string) (keys []string, err error) {
	for cursor := "0"; ; {
		args := []string{"SCAN", cursor, "MATCH", match, "COUNT", scanCount}
		if kind != "" {
			args = append(args, "TYPE", kind)
		}
		c.Queue(args...)
		if err := c.Flush(); err != nil {
			return nil, err
		}
		v, err := c.ReadReply()
		if err != nil {
			return nil, err
		}
		reply, ok := v.([]any)
		if !ok || len(reply) != 2 {
			return nil, fmt.Errorf("redis answered SCAN with %v", v)
		}
		cursor, _ = reply[0].(string)
		page, _ := reply[1].([]any)
		for _, one := range page {
			if key, _ := one.(string); kind == "hash" || !strings.HasSuffix(key, stateSuffix) {
				keys = append(keys, key)
			}
		}
		if cursor == "0" || cursor == "" {
			slices.Sort(keys)
			return keys, nil
		}
	}
}

// reads tells whether a key is one of the source's.
func (s *Source) reads(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.seen, key) || slices.Contains(s.keys, key)
}

// generations makes what is absent beside the keys, and returns their names.
func (s *Source) generations(c *resp.Conn, keys []string) (names []string, err error) {
	if s.form == asPop {
		for _, key := range keys {
			names = append(names, partitionName(key, s.popped))
		}
		return names, nil
	}
	for _, key := range keys {
		s.askCreate(c, key)
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	for _, key := range keys {
		now, err := readState(c)
		if err == nil {
			err = s.ours(key, now.pipeline)
		}
		if err != nil {
			return nil, &keyError{key, err}
		}
		names = append(names, partitionName(key, now.generation))
	}
	return names, nil
}

func (s *Source) askCreate(c *resp.Conn, key string) {
	generation := firstGeneration(s.env.Pipeline, key, s.form)
	switch s.form {
	case asStream:
		c.QueueEval(streamCreate, []string{stateKey(key), key}, generation, s.env.Pipeline)
	case asPair:
		c.QueueEval(createScript, []string{stateKey(key)}, generation, s.env.Pipeline, "base")
	default:
		c.QueueEval(createScript, []string{stateKey(key)}, generation, s.env.Pipeline, "head")
	}
}

// ours refuses a key that another pipeline reads.
func (s *Source) ours(key, pipeline string) error {
	if pipeline == s.env.Pipeline {
		return nil
	}
	return &event.PermanentError{
		Err:  fmt.Errorf("%s %q is read by pipeline %q already", s.form, key, pipeline),
		Hint: fmt.Sprintf("one pipeline reads a %s; if %q is gone for good, delete the key: redis-cli DEL %q", s.form, pipeline, stateKey(key)),
	}
}
