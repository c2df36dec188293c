package redis_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
	"github.com/perigeedb/perigee/source/sourcetest"
)

// A keyKind is one way in which Redis keeps events, for tests of all of them.
type keyKind struct {
	name    string
	config  func(key string) redis.Config
	command func(c rueidis.Client, key, item string) rueidis.Completed // of a producer
}

func (f keyKind) push(t *testing.T, c rueidis.Client, key string, items ...string) {
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

// on returns settings that read a server's key until it is empty.
func (f keyKind) on(server *testserver.RedisServer) redis.Config {
	c := f.config(listQueue)
	c.Address, c.UntilEmpty = server.Address(), true
	return c
}

// startKind is start for any kind.
func startKind(t *testing.T, f keyKind, events int, flags ...string) (*testserver.RedisServer, rueidis.Client, *run, []string) {
	t.Helper()
	server := testserver.Redis(t, flags...)
	client := connect(t, server)
	items := numbered("first", 0, events)
	f.push(t, client, listQueue, items...)
	r := newRun(t, f.on(server))
	r.mustOpen()
	return server, client, r, items
}

func forms() []keyKind {
	return []keyKind{
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
				return sourcetest.Place{Events: items, Open: open(true), Wait: open(false), Renew: func(t *testing.T) {
					c, err := (&resp.Server{Address: server.Address()}).Dial(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if _, err := c.Do(t.Context(), "HSET", "{"+key+"}:perigee", "generation", "another"); err != nil {
						t.Fatal(err)
					}
				}}
			})
		})
	}
}

// TestFrozenWorkerTrimsNothing freezes a worker until another one has continued.
func TestFrozenWorkerTrimsNothing(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			server, client, frozen, items := startKind(t, f, 500)
			var read []event.Batch
			for range 3 {
				read = append(read, frozen.mustRead())
			}
			other := newRun(t, f.on(server))
			other.mustOpen()
			other.drain()
			later := numbered("later", 0, 300)
			f.push(t, client, listQueue, later...)
			for _, b := range read {
				frozen.ack(b)
			}
			_, err := frozen.read()
			if err == nil {
				_, err = frozen.read() // the first had arrived before
			}
			if !errors.Is(err, source.ErrMoved) {
				t.Errorf("the frozen worker reads on: %v", err)
			}
			frozen.close()
			other.drain()
			other.close()
			other.once(items, later)
		})
	}
}
