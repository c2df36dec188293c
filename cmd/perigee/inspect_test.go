package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
)

// TestInspectRedis inspects a list and a stream of a real server, before any pipeline has read
// them, and while an engine owns the list. Nothing changes.
func TestInspectRedis(t *testing.T) {
	m := newMail(t, testserver.Redis(t), maria.Server(t))
	for _, doc := range []string{`{"id":1,"event":"open"}`, `{"id":2,"event":"click"}`, `no event`} {
		m.do("RPUSH", "pepi_queue", doc)
		m.do("XADD", "pepi_stream", "*", "data", doc)
	}
	inspect := func(args ...string) string {
		t.Helper()
		var out, errs strings.Builder
		if code := perigee(append([]string{"inspect"}, args...), console{out: &out, err: &errs, lookup: os.LookupEnv}); code != 0 {
			t.Fatalf("%q exits with %d: %s", args, code, errs.String())
		}
		return out.String()
	}
	for _, url := range []string{"redis://" + m.redis.Address() + "/pepi_queue", "redis://" + m.redis.Address() + "?stream=pepi_stream&field=data"} {
		for range 2 {
			out := inspect("--source", url)
			for _, want := range []string{"3 events, 2 fields", "looks like the event's name: event", "1 of 3 events are not JSON objects"} {
				if !strings.Contains(out, want) {
					t.Errorf("%s lacks %q:\n%s", url, want, out)
				}
			}
		}
		if out := inspect("--source", url, "--events", "1"); !strings.Contains(out, "1 event, 2 fields") {
			t.Errorf("with --events 1 %s prints\n%s", url, out)
		}
	}
	if keys, err := m.do("DBSIZE").ToInt64(); err != nil || keys != 2 {
		t.Errorf("Redis has %d keys, %v; want the list and the stream", keys, err)
	}
}

func TestParseSourceURL(t *testing.T) {
	for _, c := range []struct {
		url      string
		kind     string
		settings map[string]any
	}{
		{"redis://10.0.0.1:7000/queue", "redis", map[string]any{"address": "10.0.0.1:7000", "list": "queue"}},
		{"rediss://ada:s%40t@cache/a/b", "redis", map[string]any{"address": "cache:6379", "list": "a/b", "username": "ada", "password": "s@t", "tls": "true"}},
		{"redis:///?stream=s&db=2", "redis", map[string]any{"address": "127.0.0.1:6379", "stream": "s", "db": "2"}},
		{"redis://[::1]/q", "redis", map[string]any{"address": "[::1]:6379", "list": "q"}},
		{"kafka://a,b:9093/mails?start=latest", "kafka", map[string]any{"brokers": []string{"a:9092", "b:9093"}, "topic": "mails", "start": "latest"}},
		{"nats://hub/MAILS?subject=a.*", "nats", map[string]any{"url": "nats://hub:4222", "stream": "MAILS", "subject": "a.*"}},
		{"file:logs/a.ndjson", "file", map[string]any{"path": "logs/a.ndjson"}},
		{"file:///var/a.csv?format=csv", "file", map[string]any{"path": "/var/a.csv", "format": "csv"}},
	} {
		got, err := parseSourceURL(c.url)
		if diff := cmp.Diff(c.settings, got.Settings); err != nil || got.Kind != c.kind || diff != "" {
			t.Errorf("%s is %s, %v (-want +got):\n%s", c.url, got.Kind, err, diff)
		}
		if !slices.ContainsFunc(linked().Sources, func(k source.Kind) bool { return k.Name == got.Kind }) {
			t.Errorf("%s names no kind", c.url)
		}
	}
	for _, url := range []string{"", "queue", "http://host/", "://", "redis://user:secret@ho st/q"} {
		if got, err := parseSourceURL(url); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q is %v, %v", url, got.Kind, err)
		}
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		n, total uint64
		want     string
	}{
		{0, 10, "-"}, {10, 10, "100%"}, {1, 3, "33%"}, {1, 1_000_000, "<0.1%"}, {999_999, 1_000_000, ">99.9%"}, {5, 1000, "0.5%"},
		{995, 1000, "99.5%"}, {0, 0, "-"}, {12, 10, "100%"},
	} {
		if got := percent(c.n, c.total); got != c.want {
			t.Errorf("%d of %d is %q, want %q", c.n, c.total, got, c.want)
		}
	}
}
