package redis_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/redis"
)

func scripts() keyKind { return forms()[3] }

func TestScriptsFlushed(t *testing.T) {
	_, client, r, items := startKind(t, scripts(), 1000)
	for range 3 {
		b := r.mustRead()
		r.commit(b)
		r.ack(b)
		do(t, client, "SCRIPT", "FLUSH")
	}
	r.drain()
	do(t, client, "SCRIPT", "FLUSH")
	r.close()
	r.once(items)
	if n := length(t, client, listQueue); n != 0 {
		t.Errorf("%d events are left", n)
	}
}

// TestTrimOfAnOldGeneration: a worker that lost the key to another one trims nothing of
// the next generation.
func TestTrimOfAnOldGeneration(t *testing.T) {
	_, client, r, _ := startKind(t, scripts(), 1000)
	b := r.mustRead()
	r.commit(b)
	r.ack(b)
	do(t, client, "HSET", "{q}:perigee", "generation", "other", "base", "0")
	r.close()
	if n := length(t, client, listQueue); n != 1000 {
		t.Errorf("%d events are left, want all: the generation is another one", n)
	}
}

func TestBrokenScripts(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	push(t, client, listQueue, "{}")
	peek, err := os.ReadFile("testdata/peek.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, peek, trim string
		words            []string
	}{
		{"no array", "return 1", "return 1", []string{"peek.lua", "array"}},
		{"no head", "return {}", "return 1", []string{"peek.lua", "array"}},
		{"not a head", "return {'x', 0}", "return 1", []string{"peek.lua", "x"}},
		{"not an event", "return {0, 1, 7}", "return 1", []string{"peek.lua", "7"}},
		{"an error", "error('ouch')", "return 1", []string{"peek.lua", "ouch"}},
		{"not Lua", "return (", "return 1", []string{"peek.lua"}},
		{"a trim that says nothing", string(peek), "return nil", []string{"trim.lua", "first position"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range map[string]string{"peek.lua": c.peek, "trim.lua": c.trim} {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := newRun(t, redis.Config{Address: server.Address(), List: listQueue, Script: filepath.Join(folder, "peek.lua"),
				Trim: redis.Trim(filepath.Join(folder, "trim.lua")), UntilEmpty: true})
			err := r.open()
			for err == nil {
				var b event.Batch
				if b, err = r.read(); err == nil {
					r.ack(b)
				}
				if errors.Is(err, io.EOF) {
					err = r.reader.Close(t.Context())
					break
				}
			}
			permanent(t, err, c.words...)
		})
	}
}

// TestPoppingScript runs a script that removes events, as published.
func TestPoppingScript(t *testing.T) {
	server := testserver.Redis(t)
	client := connect(t, server)
	items := numbered("event", 0, 1000)
	push(t, client, listQueue, items...)
	var log bytes.Buffer
	s, err := redis.New(source.Env{Pipeline: "mails", Limits: source.Limits{Events: 100, Bytes: 1 << 10},
		Log: slog.New(slog.NewTextHandler(&log, nil))},
		redis.Config{Address: server.Address(), List: listQueue, Script: "testdata/pop.lua", UntilEmpty: true})
	if err != nil {
		t.Fatal(err)
	}
	if why := s.Traits().AtMostOnce; !strings.Contains(why, "pop.lua") {
		t.Errorf("the source loses events because %q", why)
	}
	names := partitions(t, s)
	if !s.Traits().Local(names[0]) {
		t.Error("the partition of a popping script is leased")
	}
	r, err := s.Open(t.Context(), names[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "may lose events") {
		t.Error("nobody is warned")
	}
	next := uint64(0)
	for i := 0; ; i++ {
		var b event.Batch
		err := r.Read(t.Context(), &b)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if b.Range.First != next || len(b.Data) > 1<<10 {
			t.Fatalf("batch %v of %d bytes follows position %d", b.Range, len(b.Data), next)
		}
		for i := range b.Len() {
			if string(b.Doc(i)) != items[int(next)+i] {
				t.Fatalf("event %d is %s", int(next)+i, b.Doc(i))
			}
		}
		next = b.Range.End()
		if i == 3 {
			do(t, client, "SCRIPT", "FLUSH")
		}
	}
	if next != uint64(len(items)) {
		t.Errorf("read %d events, want %d", next, len(items))
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	other, err := redis.New(source.Env{Pipeline: "mails"}, redis.Config{Address: server.Address(), List: listQueue, Script: "testdata/pop.lua"})
	if err != nil {
		t.Fatal(err)
	}
	if again := partitions(t, other); again[0] == names[0] {
		t.Errorf("two processes count in the same partition %s", names[0])
	}
}
