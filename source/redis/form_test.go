package redis_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
	"github.com/perigeedb/perigee/source/sourcetest"
)

// A form is one in which Redis holds events, for tests that hold for all.
type form struct {
	name    string
	config  func(key string) redis.Config
	command func(c rueidis.Client, key, item string) rueidis.Completed // of a producer
}

func (f form) push(t *testing.T, c rueidis.Client, key string, items ...string) {
	t.Helper()
	var all rueidis.Commands
	for _, item := range items {
		all = append(all, f.command(c, key, item))
	}
	for _, r := range c.DoMulti(t.Context(), all...) {
		if err := r.Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// on makes settings that read a server's list until it is empty.
func (f form) on(server *testserver.RedisServer) redis.Config {
	c := f.config(list)
	c.Address, c.UntilEmpty = server.Address(), true
	return c
}

// startForm is start for any form.
func startForm(t *testing.T, f form, events int, flags ...string) (*testserver.RedisServer, rueidis.Client, *run, []string) {
	t.Helper()
	server := testserver.Redis(t, flags...)
	client := connect(t, server)
	items := numbered("first", 0, events)
	f.push(t, client, list, items...)
	r := newRun(t, f.on(server))
	r.mustOpen()
	return server, client, r, items
}

func forms() []form {
	return []form{
		{"list", func(key string) redis.Config { return redis.Config{List: key} }, pushed},
		{"stream", func(key string) redis.Config { return redis.Config{Stream: key} }, added},
		{"kept stream", func(key string) redis.Config { return redis.Config{Stream: key, Trim: "false"} }, added},
		{"scripts", func(key string) redis.Config {
			return redis.Config{List: key, Script: "testdata/peek.lua", Trim: "testdata/trim.lua"}
		}, pushed},
	}
}

func pushed(c rueidis.Client, key, item string) rueidis.Completed {
	return c.B().Rpush().Key(key).Element(item).Build()
}

func added(c rueidis.Client, key, item string) rueidis.Completed {
	return c.B().Xadd().Key(key).Id("*").FieldValue().FieldValue("data", item).Build()
}

func TestContract(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			places := 0
			sourcetest.Run(t, func(t *testing.T, events int) sourcetest.Place {
				places++
				key := fmt.Sprint(f.name, places)
				items := numbered("event", 0, events)
				f.push(t, client, key, items...)
				open := func(untilEmpty bool) func(*testing.T, source.Limits) source.Source {
					return func(t *testing.T, limits source.Limits) source.Source {
						c := f.config(key)
						c.Address, c.UntilEmpty = server.Address(), untilEmpty
						return newSource(t, c, limits)
					}
				}
				return sourcetest.Place{Events: items, Open: open(true), Wait: open(false)}
			})
		})
	}
}

// A worker that was frozen wakes up when another has gone on: what it believes to
// be done it may not trim.
func TestFrozenWorkerTrimsNothing(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			server, client, frozen, items := startForm(t, f, 500)
			var read []event.Batch
			for range 3 {
				read = append(read, frozen.mustRead())
			}
			other := newRun(t, f.on(server))
			other.mustOpen()
			other.drain()
			later := numbered("later", 0, 300)
			f.push(t, client, list, later...)
			for _, b := range read {
				frozen.ack(b)
			}
			if _, err := frozen.read(); err == nil {
				_, err = frozen.read() // the first had arrived before
				if !errors.Is(err, source.ErrMoved) {
					t.Errorf("the frozen worker reads on: %v", err)
				}
			}
			frozen.close()
			other.drain()
			other.close()
			other.once(items, later)
		})
	}
}
