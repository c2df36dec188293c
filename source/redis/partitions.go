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
	scanStep    = "1000" // keys that one SCAN looks at
)

// Partitions implements source.Source. A partition is a key in its generation. The first
// worker creates the state of a key; the others find it.
func (s *Source) Partitions(ctx context.Context) (names []string, err error) {
	c, err := s.server.Dial(ctx)
	if err != nil {
		return nil, s.wrapError("list keys", err)
	}
	defer c.Close()
	err = c.WithContext(ctx, func() error {
		keys, err := s.findKeys(c)
		if err != nil {
			return err
		}
		s.noteEmpty(len(keys))
		names, err = s.createStates(c, keys)
		return err
	})
	if err != nil {
		return nil, s.wrapError("list keys", err)
	}
	return names, nil
}

// noteEmpty keeps why there is no key.
func (s *Source) noteEmpty(keys int) {
	reason := ""
	if keys == 0 {
		reason = fmt.Sprintf("no %s matches %s", s.kind, strings.Join(s.keys, ", "))
	}
	s.empty.Set(reason, s.env.Log)
}

// findKeys returns the keys that exist or were found before: a drained list is gone from
// Redis until the next push.
func (s *Source) findKeys(c *resp.Conn) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		found := []string{k}
		if s.isPattern(k) {
			var err error
			if found, err = s.matchKeys(c, k); err != nil {
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

// isPattern reports whether a name may match several keys. Names in lists and streams
// may; those in list and stream are literal.
func (s *Source) isPattern(name string) bool {
	return s.config.List == "" && s.config.Stream == "" && strings.ContainsAny(name, "*?[")
}

// matchKeys finds the keys that match a pattern, and those whose state does: a drained
// list is gone, but its state stays. All workers must list the same keys, or each would
// leave a key to another.
func (s *Source) matchKeys(c *resp.Conn, pattern string) ([]string, error) {
	kind := ""
	if s.kind == listKey || s.kind == streamKey {
		kind = s.kind.String()
	}
	found, err := s.scanKeys(c, pattern, kind)
	if err != nil || s.kind == streamKey || s.kind == poppedKey {
		return found, err
	}
	states, err := s.scanKeys(c, stateKey(pattern), "hash")
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

// scanKeys finds keys by pattern and type. Without a type it returns keys of any type
// except states.
func (s *Source) scanKeys(c *resp.Conn, match, kind string) (keys []string, err error) {
	for cursor := "0"; ; {
		args := []string{"SCAN", cursor, "MATCH", match, "COUNT", scanStep}
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
			return nil, fmt.Errorf("unexpected reply to SCAN: %v", v)
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

// hasKey reports whether the source reads a key.
func (s *Source) hasKey(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.seen, key) || slices.Contains(s.keys, key)
}

// createStates creates the states that are missing, and returns the names of the
// partitions.
func (s *Source) createStates(c *resp.Conn, keys []string) (names []string, err error) {
	if s.kind == poppedKey {
		for _, key := range keys {
			names = append(names, partitionName(key, s.popGeneration))
		}
		return names, nil
	}
	for _, key := range keys {
		s.queueCreateState(c, key)
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	for _, key := range keys {
		now, err := readState(c)
		if err == nil {
			err = s.checkPipeline(key, now.pipeline)
		}
		if err != nil {
			return nil, &keyError{key, err}
		}
		names = append(names, partitionName(key, now.generation))
	}
	return names, nil
}

func (s *Source) queueCreateState(c *resp.Conn, key string) {
	generation := firstGeneration(s.env.Pipeline, key, s.kind)
	switch s.kind {
	case streamKey:
		c.QueueEval(streamCreateScript, []string{stateKey(key), key}, generation, s.env.Pipeline)
	case scriptedKey:
		c.QueueEval(createScript, []string{stateKey(key)}, generation, s.env.Pipeline, "base")
	default:
		c.QueueEval(createScript, []string{stateKey(key)}, generation, s.env.Pipeline, "head")
	}
}

// checkPipeline returns an error for a key that another pipeline reads.
func (s *Source) checkPipeline(key, pipeline string) error {
	if pipeline == s.env.Pipeline {
		return nil
	}
	return &event.PermanentError{
		Err:  fmt.Errorf("%s %q is already read by pipeline %q", s.kind, key, pipeline),
		Hint: fmt.Sprintf("only one pipeline may read a %s; if %q no longer exists, delete its state: redis-cli DEL %q", s.kind, pipeline, stateKey(key)),
	}
}

// bounds omits keys without a state: they have no positions yet.
func (s *Source) bounds(ctx context.Context) (map[string]event.Range, error) {
	bounds := map[string]event.Range{}
	if s.kind == poppedKey {
		return bounds, nil
	}
	c, err := s.server.Dial(ctx)
	if err != nil {
		return nil, s.wrapError("list keys", err)
	}
	defer c.Close()
	var keys []string
	if err := c.WithContext(ctx, func() (err error) { keys, err = s.findKeys(c); return err }); err != nil {
		return nil, s.wrapError("list keys", err)
	}
	for _, key := range keys {
		now, err := s.snapshotKey(ctx, key)
		if err != nil {
			return nil, s.wrapError("read", &keyError{key, err})
		}
		if now.state.generation == "" || s.checkPipeline(key, now.state.pipeline) != nil {
			continue
		}
		bounds[partitionName(key, now.state.generation)] = event.Range{First: now.state.head, Count: uint64(now.length + max(0, now.removed))}
	}
	return bounds, nil
}

// snapshotKey reads the state of a key, and no event.
func (s *Source) snapshotKey(ctx context.Context, key string) (snapshot, error) {
	r := &reader{source: s, key: key, queue: s.newQueue(key)}
	defer r.disconnect()
	if err := r.dial(ctx); err != nil {
		return snapshot{}, err
	}
	return r.readState(ctx)
}
