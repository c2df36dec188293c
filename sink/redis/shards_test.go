package redis_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink/redis"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestShards writes documents of several users to shards of lists and of streams: those of a user are
// in one shard, in their order, and it is the one that the documentation says.
func TestShards(t *testing.T) {
	server := testserver.Redis(t)
	client := dial(t, server.Address())
	for _, kind := range []string{"list", "stream"} {
		t.Run(kind, func(t *testing.T) {
			c := redis.Config{Address: server.Address(), Shards: 4, By: "user.id"}
			name := "events-" + kind
			if kind == "list" {
				c.List = name
			} else {
				c.Stream = name
			}
			w := open(t, c)
			users := []string{`"ada"`, `"b\u00f6b"`, `7`, `"7"`, `"eve"`, `true`, `"x y"`}
			want := map[string][]string{}
			var docs []string
			for i := range 70 {
				user := users[i%len(users)]
				docs = append(docs, fmt.Sprintf(`{"user":{"id":%s},"n":%d}`, user, i))
				text := strings.ReplaceAll(strings.Trim(user, `"`), `\u00f6`, "ö")
				h := fnv.New64a()
				h.Write([]byte(text))
				key := fmt.Sprintf("%s:%d", name, h.Sum64()%4)
				want[key] = append(want[key], docs[i])
			}
			out := sinktest.Docs(0, docs...)
			out.Columns = &event.Columns{Rows: len(docs), Vectors: make([]event.Vector, 1)}
			v := &out.Columns.Vectors[0]
			for i := range docs {
				var doc struct {
					User struct{ ID json.RawMessage }
				}
				if err := json.Unmarshal([]byte(docs[i]), &doc); err != nil {
					t.Fatal(err)
				}
				v.Null, v.Bytes = append(v.Null, 0), append(v.Bytes, doc.User.ID...)
				v.Ends = append(v.Ends, uint32(len(v.Bytes)))
			}
			if err := w.Write(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			for shard := range 4 {
				key := fmt.Sprintf("%s:%d", name, shard)
				var got []string
				if kind == "list" {
					got = texts(do(t, client, "LRANGE", key, "0", "-1"))
				} else {
					entries, _ := do(t, client, "XRANGE", key, "-", "+").([]any)
					for _, e := range entries {
						got = append(got, texts(e.([]any)[1])[1])
					}
				}
				if !slices.Equal(got, want[key]) {
					t.Errorf("%s has %q, want %q", key, got, want[key])
				}
			}
		})
	}
}

// TestShardOfAnotherType: a key that holds something else is named.
func TestShardOfAnotherType(t *testing.T) {
	server := testserver.Redis(t)
	do(t, dial(t, server.Address()), "SET", "events:0", "x")
	w := open(t, redis.Config{Address: server.Address(), List: "events", Shards: 1, By: "id"})
	out := sinktest.Docs(0, `{"id":1}`)
	out.Columns = &event.Columns{Rows: 1, Vectors: []event.Vector{{Null: []uint8{0}, Bytes: []byte("1"), Ends: []uint32{1}}}}
	if err := w.Write(t.Context(), out); err == nil || !strings.Contains(err.Error(), "events:0") {
		t.Errorf("writing returned %v, want an error about events:0", err)
	}
}
