package redis_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
)

func partitions(t *testing.T, s source.Source) []string {
	t.Helper()
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// readAll reads and acknowledges all events of a partition.
func readAll(t *testing.T, s source.Source, partition string) (events []string) {
	t.Helper()
	r, err := s.Open(t.Context(), partition, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		var b event.Batch
		err := r.Read(ctx, &b)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d events: %v", len(events), err)
		}
		for i := range b.Len() {
			events = append(events, string(b.Doc(i)))
		}
		if err := r.Ack(t.Context(), b.Range); err != nil {
			t.Error(err)
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return events
}

func TestSeveralKeys(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	for _, f := range []struct {
		keyKind
		several redis.Config
	}{
		{forms()[0], redis.Config{Lists: redis.Keys{"l1", "l2", "l3"}}},
		{forms()[1], redis.Config{Streams: redis.Keys{"s1", "s2", "s3"}}},
	} {
		c := f.several
		keys := append(slices.Clone(c.Lists), c.Streams...)
		c.Address, c.UntilEmpty = server.Address(), true
		want := map[string][]string{}
		for i, key := range keys[:2] {
			want[key] = numbered(key, 0, 150*(i+1))
			f.push(t, client, key, want[key]...)
		}
		one := newSource(t, c, source.Limits{Events: 100, Bytes: 1 << 20})
		other := newSource(t, c, source.Limits{Events: 100, Bytes: 1 << 20})
		names := partitions(t, one)
		if len(names) != 3 || !slices.Equal(names, partitions(t, other)) {
			t.Fatalf("two workers see the partitions %q and %q", names, partitions(t, other))
		}
		for i, name := range names {
			if got := readAll(t, one, name); !slices.Equal(got, want[keys[i]]) {
				t.Errorf("%s has %d events, want %d", name, len(got), len(want[keys[i]]))
			}
		}
		if again := partitions(t, other); !slices.Equal(again, names) {
			t.Errorf("drained, the partitions are %q, before %q", again, names)
		}
	}
}

func TestPatternFindsNewKeys(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	s := newSource(t, redis.Config{Address: server.Address(), Lists: redis.Keys{"emails:*"}}, source.Limits{Events: 100, Bytes: 1 << 20})
	if !s.Traits().Growing {
		t.Error("a source with a pattern does not grow")
	}
	if names := partitions(t, s); len(names) != 0 {
		t.Fatalf("there are partitions %q where no list is", names)
	}
	do(t, client, "SET", "emails:text", "x")
	do(t, client, "RPUSH", "other", "x")
	var before []string
	for _, key := range []string{"emails:b", "emails:a"} {
		push(t, client, key, "{}")
		names := partitions(t, s)
		if len(names) != len(before)+1 || !strings.HasPrefix(names[len(before)], key+"@") {
			t.Fatalf("with %s there are the partitions %q, before %q", key, names, before)
		}
		before = names
	}
	do(t, client, "DEL", "emails:b")
	if names := partitions(t, s); !slices.Equal(names, before) {
		t.Errorf("with one list drained there are %q, want %q", names, before)
	}
}

// TestNoKeyMatches says in the log, once, and in WhyEmpty, that a pattern matches no key.
func TestNoKeyMatches(t *testing.T) {
	server := testserver.Redis(t)
	for want, c := range map[string]redis.Config{
		"no list matches a:*":        {Lists: redis.Keys{"a:*"}},
		"no stream matches a:*, b:?": {Streams: redis.Keys{"a:*", "b:?"}},
	} {
		var log bytes.Buffer
		c.Address = server.Address()
		s, err := redis.New(source.Env{Pipeline: "p", Log: slog.New(slog.NewTextHandler(&log, nil))}, c)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if names := partitions(t, s); len(names) != 0 || s.Traits().WhyEmpty() != want {
				t.Errorf("partitions %q, because %q", names, s.Traits().WhyEmpty())
			}
		}
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("the log says so %d times:\n%s", n, &log)
		}
	}
	client := connect(t, server)
	push(t, client, "a:1", "{}")
	s, err := redis.New(source.Env{Pipeline: "p"}, redis.Config{Address: server.Address(), Lists: redis.Keys{"a:*"}})
	if err != nil {
		t.Fatal(err)
	}
	if names := partitions(t, s); len(names) != 1 || s.Traits().WhyEmpty() != "" {
		t.Errorf("partitions %q, because %q", names, s.Traits().WhyEmpty())
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		config redis.Config
		words  string
	}{
		{redis.Config{}, "no key"},
		{redis.Config{List: "a", Streams: redis.Keys{"b"}}, "exclude each other"},
		{redis.Config{Lists: redis.Keys{"a", ""}}, "empty"},
		{redis.Config{Stream: "a", Script: "testdata/pop.lua"}, "script needs list"},
		{redis.Config{Stream: "a", Trim: "no"}, `invalid trim "no"`},
		{redis.Config{List: "a", Trim: "false"}, "trim needs a stream"},
		{redis.Config{List: "a", Script: "testdata/peek.lua", Trim: "true"}, "name the file"},
		{redis.Config{List: "a", Script: "testdata/none.lua"}, "none.lua"},
		{redis.Config{List: "a", Field: "data"}, "field needs stream"},
		{redis.Config{List: "a", Lost: "report"}, "lost needs stream"},
		{redis.Config{Stream: "a", Lost: "never"}, `invalid lost "never"`},
		{redis.Config{List: "a", Address: "localhost:637900"}, "invalid port"},
		{redis.Config{List: "a", Username: "u"}, "password"},
		{redis.Config{List: "a", CA: "testdata/pop.lua"}, "tls: true"},
		{redis.Config{List: "a", TLS: true, CA: "testdata/pop.lua"}, "no certificate"},
	} {
		if _, err := redis.New(source.Env{}, c.config); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%+v: error %v, want one that says %q", c.config, err, c.words)
		}
	}
}

func TestCheck(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	do(t, client, "SET", "text", "x")
	do(t, client, "HSET", "{taken}:perigee", "generation", "a", "head", "0", "pipeline", "other")
	do(t, client, "ACL", "SETUSER", "reader", "on", ">r", "~*", "+@read", "+@connection", "+@transaction", "+acl", "+info", "+eval")
	for _, c := range []struct {
		config redis.Config
		words  string // of the fault
	}{
		{redis.Config{List: "fresh"}, ""},
		{redis.Config{Stream: "fresh"}, ""},
		{redis.Config{Streams: redis.Keys{"fresh:*"}}, ""},
		{redis.Config{List: "fresh", Script: "testdata/peek.lua", Trim: "testdata/trim.lua"}, ""},
		{redis.Config{List: "fresh", Script: "testdata/pop.lua"}, ""},
		{redis.Config{List: "text"}, "is a string, not a list"},
		{redis.Config{Stream: "text"}, "is a string, not a stream"},
		{redis.Config{List: "taken"}, `"other"`},
		{redis.Config{List: "fresh", Script: "testdata/broken.lua"}, "broken.lua"},
		{redis.Config{List: "fresh", Username: "reader", Password: "r"}, "hset"},
		{redis.Config{Stream: "fresh", Username: "reader", Password: "r"}, "hset"},
		{redis.Config{List: "fresh", Password: "wrong"}, "password"},
	} {
		c.config.Address = server.Address()
		s, err := redis.New(source.Env{Pipeline: "mails", Log: slog.New(slog.DiscardHandler)}, c.config)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Traits().Check(t.Context())
		if c.words == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.config, err)
			}
			continue
		}
		permanent(t, err, c.words)
	}
	keys, err := do(t, client, "KEYS", "*").AsStrSlice()
	if err != nil || len(keys) != 2 {
		t.Errorf("after checking there are the keys %q", keys)
	}
}

// TestOldRedis is for make test-versions: a server that does not count the entries ever
// added to a stream is refused, by check and at the start.
func TestOldRedis(t *testing.T) {
	server := testserver.Redis(t)
	info, err := do(t, connect(t, server), "INFO", "server").ToString()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(info, "redis_version:6.") {
		t.Skip("the server is not Redis 6")
	}
	s, err := redis.New(source.Env{Pipeline: "p", Log: slog.New(slog.DiscardHandler)}, redis.Config{Address: server.Address(), Stream: "s"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	permanent(t, s.Traits().Check(t.Context()), "Redis 7")
	_, err = s.Partitions(t.Context())
	permanent(t, err, "Redis 7")
}

func TestUnknownKeyHasMoved(t *testing.T) {
	s := newSource(t, redis.Config{Lists: redis.Keys{"a"}}, source.Limits{Events: 1, Bytes: 1})
	for _, name := range []string{"b@1", "a"} {
		if _, err := s.Open(t.Context(), name, nil); !errors.Is(err, source.ErrMoved) {
			t.Errorf("opening %q returns %v", name, err)
		}
	}
}

// TestDrainedListsAreListedByAll starts a worker when lists that another worker found are
// empty, and so gone from Redis: both must list the same partitions.
func TestDrainedListsAreListedByAll(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	for _, pattern := range []string{"mail:*", "{mail}:*"} {
		c := redis.Config{Address: server.Address(), Lists: redis.Keys{pattern}, UntilEmpty: true}
		prefix := strings.TrimSuffix(pattern, "*")
		forms()[0].push(t, client, prefix+"a", "1")
		forms()[0].push(t, client, prefix+"b", "2")
		before := newSource(t, c, source.Limits{Events: 100, Bytes: 1 << 20})
		names := partitions(t, before)
		if len(names) != 2 {
			t.Fatalf("%s: partitions %q", pattern, names)
		}
		readAll(t, before, names[0])
		after := partitions(t, newSource(t, c, source.Limits{Events: 100, Bytes: 1 << 20}))
		slices.Sort(names)
		slices.Sort(after)
		if !slices.Equal(after, names) {
			t.Errorf("%s: a worker that begins later names %q, not %q", pattern, after, names)
		}
		for _, unlike := range []redis.Config{
			{Streams: redis.Keys{pattern}},
			{Lists: redis.Keys{pattern}, Script: "testdata/pop.lua"}, // has no states
		} {
			unlike.Address = server.Address()
			for _, name := range partitions(t, newSource(t, unlike, source.Limits{Events: 100, Bytes: 1 << 20})) {
				if strings.HasPrefix(name, prefix+"a@") {
					t.Errorf("%s: %+v names the drained list %q", pattern, unlike, name)
				}
			}
		}
	}
}

// TestBoundsOmitWhatOthersRead: the positions of a key are for the pipeline that reads it. A key
// that nobody has read has none yet.
func TestBoundsOmitWhatOthersRead(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	c := redis.Config{Address: server.Address(), Lists: redis.Keys{"mail:*"}}
	s := newSource(t, c, source.Limits{Events: 100, Bytes: 1 << 20})
	push(t, client, "mail:ours", "{}", "{}")
	names := partitions(t, s)
	do(t, client, "HSET", "{mail:theirs}:perigee", "generation", "a", "head", "0", "pipeline", "other")
	push(t, client, "mail:theirs", "{}")
	push(t, client, "mail:unread", "{}")
	bounds, err := s.Traits().Bounds(t.Context())
	if err != nil || len(names) != 1 || len(bounds) != 1 || bounds[names[0]].Count != 2 {
		t.Errorf("the bounds are %v, %v, want those of two events of %q", bounds, err, names)
	}
}
