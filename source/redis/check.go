package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
)

// What streams need of a server: exclusive ranges and MINID, and a count of all
// that was ever added.
const (
	leastForStreams  = 602
	countsWhatIsGone = 700
)

// check has the server compile the user's scripts. It does not run them.
func (s *Source) check(ctx context.Context) error {
	c, err := s.server.Dial(ctx)
	if err != nil {
		return s.explain("connect", err)
	}
	defer c.Close()
	if err := s.checkServer(ctx, c); err != nil {
		return s.explain("check", err)
	}
	for _, key := range s.keys {
		if s.isPattern(key) {
			continue
		}
		if err := s.checkKey(ctx, c, key); err != nil {
			return s.explain("check", &keyError{key, err})
		}
	}
	return nil
}

func (s *Source) checkServer(ctx context.Context, c *resp.Conn) error {
	if s.form == asStream {
		version, err := c.Version(ctx)
		if err != nil {
			return err
		}
		if version > 0 && version < leastForStreams {
			return &event.PermanentError{Err: fmt.Errorf("the server is Redis %d.%d", version/100, version%100),
				Hint: "streams need 6.2 or later"}
		}
		if version > 0 && version < countsWhatIsGone {
			s.env.Log.Warn("entries that others remove before they are read cannot be noticed before Redis 7", "redis", s.server.Address)
		}
	}
	var scripts []*lua
	for _, l := range []*lua{s.peek, s.trim} {
		if l != nil {
			scripts = append(scripts, l)
		}
	}
	return c.WithContext(ctx, func() error { return load(c, scripts...) })
}

// checkKey looks at the type of a key, at what stands beside it, and at what the
// user may do.
func (s *Source) checkKey(ctx context.Context, c *resp.Conn, key string) error {
	state := stateKey(key)
	types := map[string]string{}
	if s.form == asList || s.form == asStream {
		types[key] = s.form.String()
	}
	if s.form != asPop {
		types[state] = "hash"
	}
	for name, want := range types {
		v, err := c.Do(ctx, "TYPE", name)
		if err != nil {
			return err
		}
		if v != "none" && v != want {
			return &event.PermanentError{Err: fmt.Errorf("%q is a %v, not a %s", name, v, want), Hint: "name another key, or rename that one"}
		}
	}
	if s.form != asPop {
		v, err := c.Do(ctx, "HGET", state, "pipeline")
		if err != nil {
			return err
		}
		if v != nil {
			if err := s.ours(key, fmt.Sprint(v)); err != nil {
				return err
			}
		}
	}
	denied, err := c.DeniedCommand(ctx, s.commands(key, state)...)
	if err == nil && denied != "" {
		err = &event.PermanentError{Err: errors.New(denied), Hint: "grant the user what docs/sources.md lists"}
	}
	return err
}

// commands are examples of all that the source asks of the server.
func (s *Source) commands(key, state string) [][]string {
	ours := [][]string{{"MULTI"}, {"EXEC"}, {"EVAL", "return 1", "1", key}, {"HMGET", state, "head"},
		{"HSET", state, "head", "0"}, {"HINCRBY", state, "head", "0"}, {"EXISTS", state}}
	switch s.form {
	case asList:
		return append(ours, []string{"LLEN", key}, []string{"LRANGE", key, "0", "0"}, []string{"LTRIM", key, "0", "-1"})
	case asStream:
		all := append(ours, []string{"XRANGE", key, "-", "+"}, []string{"XINFO", "STREAM", key})
		if s.config.Trim != "false" {
			all = append(all, []string{"XTRIM", key, "MINID", "0-1"}, []string{"XDEL", key, "0-1"})
		}
		return all
	case asPair:
		return append(ours, []string{"EVALSHA", s.peek.sha, "1", key}, []string{"SCRIPT", "LOAD", "return 1"})
	}
	return [][]string{{"EVALSHA", s.peek.sha, "1", key}, {"SCRIPT", "LOAD", "return 1"}}
}
