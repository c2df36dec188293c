package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
)

func (s *Sink) check(ctx context.Context) error {
	return s.wrapError("check", s.withConn(ctx, func(c *resp.Conn) error {
		info, err := c.Info(ctx, "cluster")
		if err != nil && !isRejected(err) {
			return err
		}
		if info["cluster_enabled"] == "1" {
			return resp.ReplyError("MOVED the server is part of a cluster")
		}
		for _, key := range s.targets() {
			have, err := c.Do(ctx, "TYPE", key)
			if err != nil {
				return err
			}
			if have != "none" && have != s.kind {
				return s.wrongType(key, fmt.Sprint(have))
			}
		}
		denied, err := c.DeniedCommand(ctx, s.commands()...)
		if err == nil && denied != "" {
			err = &event.PermanentError{Err: errors.New(denied), Hint: "grant the user what docs/reference/sinks.md lists"}
		}
		return err
	}))
}

// commands are examples of all that the sink asks of the server.
func (s *Sink) commands() [][]string {
	target, ours := s.target, s.partitionKey("owner", "x")
	switch {
	case s.kind == "hash":
		target = s.template.text[0] + "x"
	case s.config.Shards > 0:
		target = s.shardKey(0)
	}
	write := map[string][]string{
		"list":   {"RPUSH", target, "x"},
		"stream": {"XADD", target, "*", "x", "x"},
		"hash":   {"HSET", target, "x", "x"},
	}
	all := [][]string{write[s.kind], {"TYPE", target}, {"EVAL", "return 1", "1", ours}, {"HGET", ours, "epoch"}, {"HSET", ours, "epoch", "1"},
		{"HINCRBY", ours, "epoch", "1"}, {"HGETALL", ours}, {"HEXISTS", ours, "x"}, {"HKEYS", ours}, {"HDEL", ours, "x"}, {"DEL", ours}, {"SADD", ours, "x"},
		{"SMEMBERS", ours}, {"TIME"}, {"GET", ours}, {"SET", ours, "x", "PX", "1"}, {"ZADD", ours, "1", "x"}, {"ZREM", ours, "x"},
		{"ZREMRANGEBYSCORE", ours, "0", "1"}, {"ZCARD", ours}}
	if s.state {
		ours := s.partitionKey("unit", "x")
		all = append(all, []string{"HMGET", ours, "x"}, []string{"HSETNX", ours, "x", "x"}, []string{"HLEN", ours}, []string{"HSTRLEN", ours, "x"})
	}
	return all
}
