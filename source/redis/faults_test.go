package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
)

func TestRedisKilledAndStartedAgain(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			killedAndStartedAgain(t, f)
		})
	}
}

func killedAndStartedAgain(t *testing.T, f keyKind) {
	server, _, r, items := startKind(t, f, 2000, "--appendonly", "yes", "--appendfsync", "always")
	for range 3 {
		for range 4 {
			b := r.mustRead()
			r.commit(b)
			r.ack(b)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		var err error
		for err == nil { // what had already arrived
			var b event.Batch
			if b, err = r.read(); err == nil {
				r.commit(b)
				r.ack(b)
			}
		}
		transient(t, err)
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.drain()
	r.close()
	r.once(items)
}

// transient fails the test unless an error is one after which a pipeline retries.
func transient(t *testing.T, err error) {
	t.Helper()
	if err == nil || event.IsPermanent(err) || errors.Is(err, source.ErrMoved) || errors.Is(err, io.EOF) {
		t.Fatalf("error %v, want one that passes", err)
	}
}

func TestRedisAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := newSource(t, redis.Config{Address: address, List: listQueue}, source.Limits{Events: 1, Bytes: 1})
	_, err = s.Partitions(t.Context())
	if transient(t, err); !strings.Contains(err.Error(), address) {
		t.Errorf("error %v, want one that passes and names %s", err, address)
	}
}

// TestSilentServer: a server that accepts and does not respond must not delay a shutdown.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newSource(t, redis.Config{Address: l.Addr().String(), List: listQueue}, source.Limits{Events: 1, Bytes: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Partitions(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestErrorReplies(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	do(t, client, "SET", "text", "x")
	do(t, client, "SET", "{spoilt}:perigee", "x")
	do(t, client, "HSET", "{torn}:perigee", "generation", "a", "head", "x", "pipeline", "mails")
	do(t, client, "HSET", "{taken}:perigee", "generation", "a", "head", "0", "pipeline", "other")
	for _, field := range []string{"after", "holes", "base"} {
		do(t, client, "HSET", "{torn "+field+"}:perigee", "generation", "a", "head", "0", "pipeline", "mails", field, "7-x")
	}
	for _, c := range []struct {
		name   string
		config redis.Config
		words  []string
	}{
		{"not a list", redis.Config{List: "text"}, []string{"WRONGTYPE", `"text"`}},
		{"not a stream", redis.Config{Stream: "text"}, []string{"WRONGTYPE", `"text"`, "stream"}},
		{"not a state", redis.Config{List: "spoilt"}, []string{"WRONGTYPE", "{spoilt}:perigee"}},
		{"not a head", redis.Config{List: "torn"}, []string{`"x"`}},
		{"not an ID", redis.Config{Stream: "torn after"}, []string{`ID "7-x"`, ":perigee"}},
		{"holes that are none", redis.Config{Stream: "torn holes"}, []string{`holes "7-x"`, ":perigee"}},
		{"not a base", redis.Config{Stream: "torn base"}, []string{`base "7-x"`, ":perigee"}},
		{"another pipeline's list", redis.Config{List: "taken"}, []string{`"other"`, "{taken}:perigee"}},
		{"a password where none is set", redis.Config{List: "a", Password: "hush"}, []string{"password"}},
		{"a database that is not there", redis.Config{List: "a", DB: 99}, []string{"99"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Address = server.Address()
			r := newRun(t, c.config)
			err := r.open()
			permanent(t, err, c.words...)
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("error %q shows the password", err)
			}
		})
	}
}

func TestPassword(t *testing.T) {
	server := testserver.Redis(t, "--requirepass", "secret")
	for _, c := range []struct {
		config  redis.Config
		refused bool
	}{
		{redis.Config{Password: "secret"}, false},
		{redis.Config{Username: "default", Password: "secret", DB: 3}, false},
		{redis.Config{Password: "wrong"}, true},
		{redis.Config{}, true},
	} {
		c.config.Address, c.config.List = server.Address(), listQueue
		r := newRun(t, c.config)
		err := r.open()
		if c.refused {
			permanent(t, err, "password")
		} else if err != nil {
			t.Errorf("%+v: %v", c.config, err)
		} else {
			r.close()
		}
	}
}

func TestLargeAndBinaryEvents(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	items := []string{"", "\x00\r\n$3\r\n", strings.Repeat("x", 3<<20), "{}", strings.Repeat("y", 300<<10), "é"}
	push(t, client, listQueue, items...)
	r := newRun(t, redis.Config{Address: server.Address(), List: listQueue, UntilEmpty: true})
	r.limits = source.Limits{Events: 10, Bytes: 64 << 10}
	r.mustOpen()
	r.drain()
	r.close()
	r.once(items)
}

// TestRequestsFitTheBatch reads events that are smaller than a reader expects, and then larger
// ones: only the first request for these asks for more events than a batch has room for.
func TestRequestsFitTheBatch(t *testing.T) {
	_, client, r, _ := start(t, 0, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000")
	r.close()
	r.limits = source.Limits{Events: 1000, Bytes: 10_000}
	r.mustOpen()
	for _, size := range []int{100, 1000} {
		var items []string
		for i := range 1000 {
			items = append(items, fmt.Sprintf("%0*d", size, i))
		}
		do(t, client, "SLOWLOG", "RESET")
		push(t, client, listQueue, items...)
		clear(r.landed)
		r.drain()
		r.once(items)
		log, err := do(t, client, "SLOWLOG", "GET", "-1").ToArray()
		if err != nil {
			t.Fatal(err)
		}
		var asked []int // events, by each request
		for _, entry := range slices.Backward(log) {
			var command []string
			if parts, err := entry.ToArray(); err == nil {
				command, _ = parts[3].AsStrSlice()
			}
			if len(command) == 4 && command[0] == "LRANGE" {
				first, _ := strconv.Atoi(command[2])
				last, _ := strconv.Atoi(command[3])
				asked = append(asked, last-first+1)
			}
		}
		fit := r.limits.Bytes/size + 1 // with the one before them, which is compared
		if n := len(asked); n < 1000/fit || slices.Max(asked[1:]) > fit || asked[n-1] < fit*9/10 {
			t.Errorf("the requests ask for %d events, and a batch has room for %d", asked, fit)
		}
	}
	r.close()
}

// TestWaitsForPushes pushes events while a read waits.
func TestWaitsForPushes(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	r := newRun(t, redis.Config{Address: server.Address(), List: listQueue})
	r.mustOpen()
	items := numbered("event", 0, 500)
	go func() {
		for i := range 50 {
			time.Sleep(time.Millisecond)
			_ = client.Do(context.Background(), client.B().Rpush().Key(listQueue).Element(items[10*i:10*i+10]...).Build()).Error()
		}
	}()
	for n := 0; n < len(items); {
		b := r.mustRead()
		n += b.Len()
		r.commit(b)
		r.ack(b)
	}
	r.close()
	r.once(items)
}
