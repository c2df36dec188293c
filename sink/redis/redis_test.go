package redis_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/redis"
	"github.com/perigeedb/perigee/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSink(t *testing.T, pipeline string, c redis.Config) sink.Sink {
	t.Helper()
	s, err := redis.New(sink.Env{Pipeline: pipeline, Log: slog.New(slog.DiscardHandler)}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func dial(t *testing.T, address string) *resp.Conn {
	t.Helper()
	s := resp.Server{Address: address}
	c, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func do(t *testing.T, c *resp.Conn, args ...string) any {
	t.Helper()
	v, err := c.Do(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	return v
}

// texts are the items of a reply.
func texts(v any) (all []string) {
	items, _ := v.([]any)
	for _, item := range items {
		all = append(all, fmt.Sprint(item))
	}
	return all
}

// A target is one of the forms that the sink writes.
type target struct {
	name   string
	config redis.Config
	docs   func(t *testing.T, c *resp.Conn) []string // that have arrived
	bad    func(id int64) string
}

func targets() []target {
	list := func(t *testing.T, c *resp.Conn) []string { return texts(do(t, c, "LRANGE", "out", "0", "-1")) }
	return []target{
		{"list", redis.Config{List: "out"}, list, nil},
		{"list in any order", redis.Config{List: "out", Order: "any"}, list, nil},
		{"stream", redis.Config{Stream: "out"}, func(t *testing.T, c *resp.Conn) (docs []string) {
			entries, _ := do(t, c, "XRANGE", "out", "-", "+").([]any)
			for _, e := range entries {
				fields := texts(e.([]any)[1])
				if len(fields) != 2 || fields[0] != "data" {
					t.Fatalf("an entry has the fields %q", fields)
				}
				docs = append(docs, fields[1])
			}
			return docs
		}, nil},
		{"hash", redis.Config{Hash: "out:{id}"}, func(t *testing.T, c *resp.Conn) (docs []string) {
			for _, key := range texts(do(t, c, "KEYS", "out:*")) {
				f := texts(do(t, c, "HGETALL", key))
				fields := map[string]string{}
				for i := 0; i < len(f); i += 2 {
					fields[f[i]] = f[i+1]
				}
				name, _ := json.Marshal(fields["name"])
				docs = append(docs, fmt.Sprintf(`{"id":%s,"name":%s}`, fields["id"], name))
			}
			return docs
		}, func(id int64) string { return fmt.Sprintf(`{"name":"no id %d"}`, id) }},
	}
}

func TestContract(t *testing.T) {
	for i, target := range targets() {
		run := sinktest.Run
		if i > 0 {
			run = sinktest.RunVariant
		}
		t.Run(target.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			run(t, places(t, target, server, func(c redis.Config, address string) redis.Config {
				c.Address = address
				return c
			}, newProxy))
		})
	}
}

// places returns what makes a place on server for each test of the suite. connect sets how the
// sink connects to it, through the proxy if there is one.
func places(t *testing.T, target target, server *testserver.RedisServer,
	connect func(c redis.Config, address string) redis.Config, proxy func(*testing.T, string) *sinktest.Proxy) func(*testing.T) sinktest.Place {
	client := dial(t, server.Address())
	return func(t *testing.T) sinktest.Place {
		do(t, client, "FLUSHALL")
		address := server.Address()
		place := sinktest.Place{
			Guarantee: redis.Kind().Guarantee,
			Ordered:   target.name != "hash" && sinktest.IsOrdered(t, newSink(t, "p", target.config), target.config.Order),
			Sink: func(t *testing.T, pipeline string) sink.Sink {
				return newSink(t, pipeline, connect(target.config, address))
			},
			Rows: func(t *testing.T) (rows []sinktest.Row) {
				for _, doc := range target.docs(t, client) {
					var row sinktest.Row
					if err := json.Unmarshal([]byte(doc), &row); err != nil {
						t.Fatalf("%s: %v", doc, err)
					}
					rows = append(rows, row)
				}
				return rows
			},
			RejectedDoc: target.bad,
			Snapshot:    func(t *testing.T) func() { return snapshot(t, client) },
			RemoveNote: func(t *testing.T, unit string, number uint64) {
				for _, key := range texts(do(t, client, "KEYS", "perigee:notes:p:*:"+unit)) {
					do(t, client, "HDEL", key, fmt.Sprint(number))
				}
			},
		}
		if proxy != nil {
			place.Proxy = func(t *testing.T) *sinktest.Proxy {
				p := proxy(t, address)
				address = p.Addr().String()
				return p
			}
		}
		return place
	}
}

func open(t *testing.T, c redis.Config) sink.Writer {
	t.Helper()
	s := newSink(t, "p", c)
	t.Cleanup(func() { _ = s.Close() })
	w, _, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestHashes(t *testing.T) {
	server := testserver.Redis(t)
	client := dial(t, server.Address())
	do(t, client, "SET", "user:taken:x", "x")
	w := open(t, redis.Config{Address: server.Address(), Hash: "user:{user.id}:{kind}"})
	docs := []string{
		`{"user": {"id": 7, "n": [1, 2]}, "kind": "a\nb", "text": "it's \u2603", "no": null, "yes": true, "big": 12345678901234567890}`,
		`{"user": {"id": "7"}, "kind": "a\nb", "text": "later"}`,
		`{"user": {"id": null}, "kind": "x"}`, `{"user": 1, "kind": "x"}`, `{"user": {"id": [1]}, "kind": "x"}`,
		`{"user": {"id": ""}, "kind": "x"}`, `[1]`, `null`, `7`,
	}
	err := w.Write(t.Context(), sinktest.Docs(0, docs...))
	refusal, ok := errors.AsType[*sink.RowErrors](err)
	if !ok || len(refusal.Rows) != 7 || refusal.Rows[0].Row != 2 || refusal.Rows[0].Stage != sink.StageColumn ||
		!strings.Contains(refusal.Rows[0].Err.Error(), "user.id") {
		t.Fatalf("writing returned %v", err)
	}
	err = w.Write(t.Context(), sinktest.Docs(0, docs[0], `{"user":{"id":"taken"},"kind":"x"}`))
	refusal, ok = errors.AsType[*sink.RowErrors](err)
	if !ok || len(refusal.Rows) != 1 || refusal.Rows[0].Row != 1 || refusal.Rows[0].Stage != "" || !strings.Contains(err.Error(), "string") {
		t.Fatalf("writing to a key of another type returned %v", err)
	}
	if n := do(t, client, "EXISTS", "user:7:a\nb"); n != int64(0) {
		t.Error("a batch with a bad row has left something")
	}
	if err := w.Write(t.Context(), sinktest.Docs(0, docs[:2]...)); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	f := texts(do(t, client, "HGETALL", "user:7:a\nb"))
	for i := 0; i < len(f); i += 2 {
		got[f[i]] = f[i+1]
	}
	want := map[string]string{"user": `{"id": "7"}`, "kind": "a\nb", "text": "later", "yes": "true", "big": "12345678901234567890"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestKeysOfOurs has events whose fields make keys that the ledger, or a source,
// keeps its positions under.
func TestKeysOfOurs(t *testing.T) {
	server := testserver.Redis(t)
	w := open(t, redis.Config{Address: server.Address(), Hash: "{key}"})
	err := w.Write(t.Context(), sinktest.Docs(0, `{"key":"perigee:owner:p:{key}:part","epoch":"9"}`, `{"key":"queue:perigee","head":"9"}`, `{"key":"perigees"}`))
	refusal, ok := errors.AsType[*sink.RowErrors](err)
	if !ok || len(refusal.Rows) != 2 || refusal.Rows[1].Row != 1 {
		t.Errorf("writing returned %v", err)
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		config redis.Config
		words  string
	}{
		{redis.Config{}, "list is missing"},
		{redis.Config{List: "a", Stream: "b"}, "more than one"},
		{redis.Config{List: "a", Field: "data"}, "field is for streams"},
		{redis.Config{Hash: "user"}, "no field in braces"},
		{redis.Config{Hash: "user:{id"}, "not closed"},
		{redis.Config{Hash: "user:{a..b}"}, "{a..b}"},
		{redis.Config{List: "a", CA: "x"}, "tls: true"},
		{redis.Config{List: "a", Shards: 2}, "go together"},
		{redis.Config{List: "a", By: "id"}, "go together"},
		{redis.Config{List: "a", Shards: -1, By: "id"}, "invalid shards -1"},
		{redis.Config{Hash: "user:{id}", Shards: 2, By: "id"}, "shards and by are for lists"},
		{redis.Config{List: "a", Order: "no"}, "use source or any"},
		{redis.Config{Hash: "user:{id}", Order: "any"}, "order is for lists and streams"},
	} {
		if _, err := redis.New(sink.Env{}, c.config); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%+v: error %v, want one that says %q", c.config, err, c.words)
		}
	}
}

func TestFaultsThatStay(t *testing.T) {
	server := testserver.Redis(t)
	client := dial(t, server.Address())
	do(t, client, "SET", "text", "x")
	do(t, client, "ACL", "SETUSER", "writer", "on", ">w", "~*", "+@all", "-rpush")
	for _, c := range []struct {
		config redis.Config
		words  string
	}{
		{redis.Config{List: "text"}, "is a string, not a list"},
		{redis.Config{Stream: "text"}, "is a string, not a stream"},
		{redis.Config{List: "out", Username: "writer", Password: "w"}, "rpush"},
		{redis.Config{List: "out", Password: "wrong"}, "username and password"},
		{redis.Config{List: "out", DB: 99}, "database 99"},
	} {
		c.config.Address = server.Address()
		s := newSink(t, "p", c.config)
		err := s.Traits().Check(t.Context())
		permanent(t, "trying", err, c.words)
		w, _, err := s.Open(t.Context(), "a")
		if err == nil {
			err = w.Write(t.Context(), sinktest.Docs(0, `{"id":1}`))
		}
		if c.words != "rpush" || err != nil {
			permanent(t, "writing", err, strings.ReplaceAll(c.words, "rpush", "docs/reference/sinks.md"))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCheckOfUnits: the check finds a user who lacks a command for the state of a pipeline.
func TestCheckOfUnits(t *testing.T) {
	server := testserver.Redis(t)
	do(t, dial(t, server.Address()), "ACL", "SETUSER", "writer", "on", ">w", "~*", "+@all", "-hmget")
	for _, state := range []bool{false, true} {
		env := sink.Env{Pipeline: "p", State: state}
		s, err := redis.New(env, redis.Config{Address: server.Address(), List: "out", Username: "writer", Password: "w"})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Traits().Check(t.Context())
		if state {
			permanent(t, "trying", err, "hmget")
		} else if err != nil {
			t.Errorf("without a state: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func permanent(t *testing.T, doing string, err error, words string) {
	t.Helper()
	p, ok := errors.AsType[*event.PermanentError](err)
	if !ok || !strings.Contains(p.Error()+"\n"+p.Hint, words) {
		t.Errorf("%s returned %v, want an error that stays and says %q", doing, err, words)
	}
}

// A Redis that is restored to before what it had taken has lost it; the writer
// must not skip what comes then.
func TestServerForgets(t *testing.T) {
	server := testserver.Redis(t)
	client := dial(t, server.Address())
	w := open(t, redis.Config{Address: server.Address(), List: "out"})
	if err := w.Write(t.Context(), sinktest.Docs(0, "{}", "{}")); err != nil {
		t.Fatal(err)
	}
	do(t, client, "FLUSHALL")
	if err := w.Write(t.Context(), sinktest.Docs(2, "{}")); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("writing after a flush returned %v, want ErrFenced: the next owner of the partition reads what is left", err)
	}
}

// TestVolatileServer: a server that may lose what it has committed is named in the log.
func TestVolatileServer(t *testing.T) {
	for setting, warned := range map[string]bool{"no": true, "yes": false} {
		server := testserver.Redis(t, "--appendonly", setting)
		var log strings.Builder
		s, err := redis.New(sink.Env{Pipeline: "p", Log: slog.New(slog.NewTextHandler(&log, nil))}, redis.Config{Address: server.Address(), List: "out"})
		if err != nil {
			t.Fatal(err)
		}
		w, _, err := s.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Close(), s.Close()
		if strings.Contains(log.String(), "appendonly=no") != warned {
			t.Errorf("with appendonly %s the log has\n%s", setting, log.String())
		}
	}
}

// Redis dies and comes back from its append-only file: what was told durable is
// there, once.
func TestServerKilled(t *testing.T) {
	server := testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	w := open(t, redis.Config{Address: server.Address(), List: "out"})
	for i := range uint64(5) {
		if err := w.Write(t.Context(), sinktest.Docs(i, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		sinktest.ExpectClass(t, w.Write(t.Context(), sinktest.Docs(100+i, fmt.Sprint(100+i))), sinktest.Transient)
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), sinktest.Docs(100+i, fmt.Sprint(100+i))); err != nil {
			t.Fatal(err)
		}
	}
	got := texts(do(t, dial(t, server.Address()), "LRANGE", "out", "0", "-1"))
	want := []string{"0", "100", "1", "101", "2", "102", "3", "103", "4", "104"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// newProxy returns a proxy before server. Scripts commit; the answer to one comes at once.
func newProxy(t *testing.T, server string) *sinktest.Proxy {
	return sinktest.NewProxy(t, server, func() sinktest.Wire {
		return sinktest.Wire{
			Commits:  func(packet []byte) bool { return bytes.Contains(packet, []byte("EVAL")) },
			Answered: func([]byte) bool { return true },
		}
	})
}

// snapshot remembers all keys; what it returns sets them back.
func snapshot(t *testing.T, c *resp.Conn) (restore func()) {
	keys := texts(do(t, c, "KEYS", "*"))
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = fmt.Sprint(do(t, c, "DUMP", key))
	}
	return func() {
		do(t, c, "FLUSHALL")
		for i, key := range keys {
			do(t, c, "RESTORE", key, "0", values[i])
		}
	}
}

// TestCloseEndsConnections holds that no connection stays open behind a sink that is closed,
// neither one that was idle nor one that was used then.
func TestCloseEndsConnections(t *testing.T) {
	server := testserver.Redis(t)
	client := dial(t, server.Address())
	clients := func() int {
		return len(strings.Split(strings.TrimSpace(fmt.Sprintf("%s", do(t, client, "CLIENT", "LIST"))), "\n"))
	}
	config := targets()[0].config
	config.Address = server.Address()
	s := newSink(t, "p", config)
	w, _, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), sinktest.Docs(0, `{"id":1,"name":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if n := clients(); n < 2 {
		t.Fatalf("%d clients while the sink is open", n)
	}
	if err := errors.Join(w.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); clients() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d clients after Close", clients())
		}
	}
}

func TestKind(t *testing.T) { sinktest.Kind(t, redis.Kind()) }
