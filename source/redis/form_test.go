package redis_test

import (
	"fmt"
	"testing"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/internal/private"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
	"github.com/perigeedb/perigee/source/sourcetest"
)

// A form is one in which Redis holds events, for tests that hold for all.
type form struct {
	name   string
	config func(key string) redis.Config
	push   func(t *testing.T, c rueidis.Client, key string, items ...string)
}

func forms() []form {
	return []form{
		{"list", func(key string) redis.Config { return redis.Config{List: key} }, push},
		{"stream", func(key string) redis.Config { return redis.Config{Stream: key} }, add},
		{"kept stream", func(key string) redis.Config { return redis.Config{Stream: key, Trim: "false"} }, add},
		{"scripts", func(key string) redis.Config {
			return redis.Config{List: key, Script: "testdata/peek.lua", Trim: "testdata/trim.lua"}
		}, push},
	}
}

// add appends entries to a stream.
func add(t *testing.T, c rueidis.Client, key string, items ...string) {
	t.Helper()
	var all rueidis.Commands
	for _, item := range items {
		all = append(all, c.B().Xadd().Key(key).Id("*").FieldValue().FieldValue("data", item).Build())
	}
	for _, r := range c.DoMulti(t.Context(), all...) {
		if err := r.Error(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContract(t *testing.T) {
	server := private.Redis(t)
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
