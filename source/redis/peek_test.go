package redis_test

import (
	"slices"
	"testing"

	"github.com/redis/rueidis"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
)

// TestPeekLeavesNoState peeks keys that no pipeline reads, and keys of another pipeline.
func TestPeekLeavesNoState(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			items := numbered("event", 0, 20)
			f.push(t, client, f.name, items...)
			for _, owner := range []string{"", "others"} {
				if owner != "" {
					do(t, client, "HSET", "{"+f.name+"}:perigee", "generation", "g", "head", "0", "base", "0", "pipeline", owner)
				}
				before := keyCount(t, client)
				if seen := peek(t, f, server, f.name, nil); !slices.Equal(seen, items) {
					t.Errorf("with the owner %q a peek shows %d events of %d", owner, len(seen), len(items))
				}
				if after := keyCount(t, client); after != before {
					t.Errorf("with the owner %q there were %d keys, and are %d", owner, before, after)
				}
			}
		})
	}
}

// TestPeekBesideEngine lets another client trim the front, as an engine does, between two reads of
// a peek. No event after it is skipped or shown twice.
func TestPeekBesideEngine(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	items := numbered("event", 0, 100)
	for _, c := range []struct {
		name          string
		trim          string // events that are trimmed after the first 10 were shown
		head          string
		missing, rest int // events that are never shown
	}{
		{"what was shown", "8", "8", 10, 10}, {"more than was shown", "30", "30", 10, 30}, {"everything", "100", "100", 10, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			push(t, client, c.name, items...)
			do(t, client, "HSET", "{"+c.name+"}:perigee", "generation", "g", "head", "0", "pipeline", "mails")
			trimmed := false
			seen := peek(t, forms()[0], server, c.name, func() {
				if !trimmed {
					do(t, client, "LPOP", c.name, c.trim)
					do(t, client, "HSET", "{"+c.name+"}:perigee", "head", c.head)
				}
				trimmed = true
			})
			if want := slices.Concat(items[:c.missing], items[c.rest:]); !slices.Equal(seen, want) {
				t.Errorf("a peek shows %d events, want %d:\n%v", len(seen), len(want), seen)
			}
		})
	}
}

// peek returns the events that a peek in batches of 10 shows, and calls between after each.
func peek(t *testing.T, f keyKind, server *testserver.RedisServer, key string, between func()) (seen []string) {
	t.Helper()
	c := f.config(key)
	c.Address = server.Address()
	s := newSource(t, c, source.Limits{Events: 10, Bytes: 1 << 20})
	defer s.Close()
	err := s.Traits().Peek(t.Context(), func(b *event.Batch) error {
		for i := range b.Len() {
			seen = append(seen, string(b.Doc(i)))
		}
		if between != nil {
			between()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func keyCount(t *testing.T, client rueidis.Client) int64 {
	t.Helper()
	n, err := do(t, client, "DBSIZE").ToInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
