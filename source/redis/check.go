package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
)

// streamsVersion is the first version of Redis that counts all entries ever added to a
// stream: without the count, entries that others remove would land twice or go unnoticed.
const (
	streamsVersion = 700
	streamsHint    = "streams need Redis 7 or later, or Valkey; lists work with Redis 6"
)

// check has the server compile the user's scripts. It does not run them.
func (s *Source) check(ctx context.Context) error {
	c, err := s.server.Dial(ctx)
	if err != nil {
		return s.wrapError("connect", err)
	}
	defer c.Close()
	if err := s.checkServer(ctx, c); err != nil {
		return s.wrapError("check", err)
	}
	for _, key := range s.keys {
		if s.isPattern(key) {
			continue
		}
		if err := s.checkKey(ctx, c, key); err != nil {
			return s.wrapError("check", &keyError{key, err})
		}
	}
	return nil
}

func (s *Source) checkServer(ctx context.Context, c *resp.Conn) error {
	if s.kind == streamKey {
		version, err := c.Version(ctx)
		if err != nil {
			return err
		}
		if version > 0 && version < streamsVersion {
			return &event.PermanentError{Err: fmt.Errorf("the server is Redis %d.%d", version/100, version%100), Hint: streamsHint}
		}
	}
	var scripts []*userScript
	for _, l := range []*userScript{s.peek, s.trim} {
		if l != nil {
			scripts = append(scripts, l)
		}
	}
	return c.WithContext(ctx, func() error { return loadScripts(c, scripts...) })
}

// checkKey checks the type of a key and of its state, which pipeline reads it, and the
// user's permissions.
func (s *Source) checkKey(ctx context.Context, c *resp.Conn, key string) error {
	state := stateKey(key)
	types := map[string]string{}
	if s.kind == listKey || s.kind == streamKey {
		types[key] = s.kind.String()
	}
	if s.kind != poppedKey {
		types[state] = "hash"
	}
	for name, want := range types {
		v, err := c.Do(ctx, "TYPE", name)
		if err != nil {
			return err
		}
		if v != "none" && v != want {
			return &event.PermanentError{Err: fmt.Errorf("%q is a %v, not a %s", name, v, want), Hint: "use another key, or rename that one"}
		}
	}
	if s.kind != poppedKey {
		v, err := c.Do(ctx, "HGET", state, "pipeline")
		if err != nil {
			return err
		}
		if v != nil {
			if err := s.checkPipeline(key, fmt.Sprint(v)); err != nil {
				return err
			}
		}
	}
	denied, err := c.DeniedCommand(ctx, s.requiredCommands(key, state)...)
	if err == nil && denied != "" {
		err = &event.PermanentError{Err: errors.New(denied), Hint: "grant the user the commands that docs/reference/sources.md lists"}
	}
	return err
}

// requiredCommands returns an example of each command that the source sends.
func (s *Source) requiredCommands(key, state string) [][]string {
	common := [][]string{{"MULTI"}, {"EXEC"}, {"EVAL", "return 1", "1", key}, {"HMGET", state, "head"},
		{"HSET", state, "head", "0"}, {"HINCRBY", state, "head", "0"}, {"EXISTS", state}}
	switch s.kind {
	case listKey:
		return append(common, []string{"LLEN", key}, []string{"LRANGE", key, "0", "0"}, []string{"LTRIM", key, "0", "-1"})
	case streamKey:
		all := append(common, []string{"XRANGE", key, "-", "+"}, []string{"XINFO", "STREAM", key})
		if s.config.Trim != "false" {
			all = append(all, []string{"XTRIM", key, "MINID", "0-1"}, []string{"XDEL", key, "0-1"})
		}
		return all
	case scriptedKey:
		return append(common, []string{"EVALSHA", s.peek.sha, "1", key}, []string{"SCRIPT", "LOAD", "return 1"})
	}
	return [][]string{{"EVALSHA", s.peek.sha, "1", key}, {"SCRIPT", "LOAD", "return 1"}}
}
