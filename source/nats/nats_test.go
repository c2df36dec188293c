package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	stream "github.com/perigeedb/perigee/source/nats"
	"github.com/perigeedb/perigee/source/sourcetest"
)

// serve starts a real server of this test's own, in a process of its own.
func serve(t testing.TB, change ...func(*settings)) (url string, js jetstream.JetStream) {
	t.Helper()
	opts := settings{Port: -1, JetStream: true, StoreDir: t.TempDir()}
	for _, c := range change {
		c(&opts)
	}
	p := start(t, opts)
	t.Cleanup(p.kill)
	return p.url, p.connect(t)
}

func create(t testing.TB, js jetstream.JetStream, name string) jetstream.Stream {
	t.Helper()
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func publish(t testing.TB, js jetstream.JetStream, subject string, docs ...string) {
	t.Helper()
	for _, doc := range docs {
		if _, err := js.PublishAsync(subject, []byte(doc)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not take messages")
	}
}

func numbered(n int) (docs []string) {
	for i := range n {
		docs = append(docs, fmt.Sprintf(`{"n":%d}`, 100000+i))
	}
	return docs
}

func newSource(t testing.TB, limits source.Limits, c stream.Config) *stream.Source {
	t.Helper()
	s, err := stream.New(source.Env{Pipeline: "p", Remembered: true, Limits: limits, Log: slog.New(slog.DiscardHandler)}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var usual = source.Limits{Events: 64, Bytes: 1 << 20}

// open opens the only partition.
func open(t testing.TB, c stream.Config, done event.Ranges) (source.Reader, error) {
	t.Helper()
	s := newSource(t, usual, c)
	t.Cleanup(func() { _ = s.Close() })
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), names[0], done)
	if err == nil {
		t.Cleanup(func() { _ = r.Close(context.Background()) })
	}
	return r, err
}

func read(t testing.TB, r source.Reader, n int) (docs []string, ranges []event.Range) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for len(docs) < n {
		var b event.Batch
		if err := r.Read(ctx, &b); err != nil {
			t.Fatalf("after %d events: %v", len(docs), err)
		}
		for i := range b.Len() {
			docs = append(docs, string(b.Doc(i)))
		}
		ranges = append(ranges, b.Range)
	}
	return docs, ranges
}

func TestConformance(t *testing.T) {
	url, js := serve(t)
	made := 0
	sourcetest.Run(t, func(t *testing.T, n int) sourcetest.Place {
		made++
		name := fmt.Sprint("place", made)
		st := create(t, js, name)
		events := numbered(n)
		publish(t, js, name+".x", events...)
		c := stream.Config{URL: url, Stream: name}
		return sourcetest.Place{
			Events: events,
			Open: func(t *testing.T, limits source.Limits) source.Source {
				return sourcetest.EndAt(newSource(t, limits, c), func(ctx context.Context) (uint64, error) {
					info, err := st.Info(ctx)
					if err != nil {
						return 0, err
					}
					return info.State.LastSeq, nil
				})
			},
			Wait: func(t *testing.T, limits source.Limits) source.Source { return newSource(t, limits, c) },
			Renew: func(t *testing.T) {
				if err := js.DeleteStream(t.Context(), name); err != nil {
					t.Fatal(err)
				}
				st = create(t, js, name)
			},
		}
	})
}

func TestMissingSequences(t *testing.T) {
	url, js := serve(t)
	st := create(t, js, "s")
	docs := numbered(10)
	publish(t, js, "s.x", docs...)
	for _, seq := range []uint64{4, 5, 8} {
		if err := st.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	r, err := open(t, stream.Config{URL: url, Stream: "s", Trim: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, ranges := read(t, r, 7)
	if want := strings.Join([]string{docs[0], docs[1], docs[2], docs[5], docs[6], docs[8], docs[9]}, " "); strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	var positions event.Ranges
	for _, one := range ranges {
		positions.Add(event.Range{First: one.First, Count: one.Count})
		if err := r.Ack(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	if positions.String() != "[0,3) [5,7) [8,10)" {
		t.Errorf("ranges %v", positions)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, _ := st.Info(t.Context()); info.State.Msgs != 0 || info.State.FirstSeq != 11 {
		t.Errorf("trimmed to %+v", info.State)
	}
}

// TestPurgedFrontWithMissingSequences reopens streams whose front was purged, in which
// sequences were missing before.
func TestPurgedFrontWithMissingSequences(t *testing.T) {
	for _, c := range []struct {
		name    string
		subject string
		trim    bool
	}{{"messages deleted, then trimmed", "", true}, {"messages of other subjects, then out of limits", "s.1", false}} {
		t.Run(c.name, func(t *testing.T) {
			url, js := serve(t)
			st := create(t, js, "s")
			for i, doc := range numbered(20) {
				publish(t, js, fmt.Sprint("s.", i%2), doc)
			}
			events := 10
			if c.subject == "" {
				events = 19
				if err := st.DeleteMsg(t.Context(), 4); err != nil {
					t.Fatal(err)
				}
			}
			config := stream.Config{URL: url, Stream: "s", Subject: c.subject, Trim: c.trim}
			r, err := open(t, config, nil)
			if err != nil {
				t.Fatal(err)
			}
			var done event.Ranges
			_, ranges := read(t, r, events)
			for _, one := range ranges {
				done.Add(one)
				if err := r.Ack(t.Context(), one); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := st.Purge(t.Context(), jetstream.WithPurgeSequence(16)); err != nil {
				t.Fatal(err)
			}
			publish(t, js, "s.1", `{"n":1}`)
			if r, err = open(t, config, done); err != nil {
				t.Fatal(err)
			}
			if got, _ := read(t, r, 1); got[0] != `{"n":1}` {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestSubject(t *testing.T) {
	url, js := serve(t)
	create(t, js, "s")
	for i, doc := range numbered(20) {
		publish(t, js, fmt.Sprint("s.", i%2), doc)
	}
	r, err := open(t, stream.Config{URL: url, Stream: "s", Subject: "s.1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := read(t, r, 10); got[0] != `{"n":100001}` || got[9] != `{"n":100019}` {
		t.Errorf("got %v", got)
	}
}

// readAll reads the whole stream and returns the ranges that a sink would commit.
func readAll(t testing.TB, c stream.Config, n int) (all event.Ranges) {
	t.Helper()
	r, err := open(t, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, ranges := read(t, r, n)
	for _, one := range ranges {
		all.Add(one)
	}
	return all
}

func TestVerifyDone(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, js jetstream.JetStream, st jetstream.Stream)
		wrong  string
	}{
		{"nothing happened", func(*testing.T, jetstream.JetStream, jetstream.Stream) {}, ""},
		{"purged beyond", func(t *testing.T, js jetstream.JetStream, st jetstream.Stream) {
			publish(t, js, "s.x", numbered(10)...)
			if err := st.Purge(t.Context(), jetstream.WithPurgeSequence(15)); err != nil {
				t.Fatal(err)
			}
		}, "[11,15)"},
		{"purged up to there", func(t *testing.T, js jetstream.JetStream, st jetstream.Stream) {
			if err := st.Purge(t.Context(), jetstream.WithPurgeSequence(11)); err != nil {
				t.Fatal(err)
			}
			publish(t, js, "s.x", numbered(1)...)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, js := serve(t)
			st := create(t, js, "s")
			publish(t, js, "s.x", numbered(10)...)
			config := stream.Config{URL: url, Stream: "s"}
			done := readAll(t, config, 10)
			c.change(t, js, st)
			_, err := open(t, config, done)
			var permanent *event.PermanentError
			if (err != nil) != (c.wrong != "") || err != nil && (!errors.As(err, &permanent) || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("got %v, want %q", err, c.wrong)
			}
		})
	}
}

// TestRestored has sinks that know of more, or of another last message, than a
// stream that was put back to an older state.
func TestRestored(t *testing.T) {
	url, js := serve(t)
	create(t, js, "s")
	publish(t, js, "s.x", numbered(10)...)
	config := stream.Config{URL: url, Stream: "s"}
	done := readAll(t, config, 10)
	for _, later := range []event.Ranges{
		{{First: 0, Count: 20}},
		{{First: 0, Count: 10, Fingerprints: append(done[0].Fingerprints[:9:9], 12345)}},
	} {
		var permanent *event.PermanentError
		if _, err := open(t, config, later); !errors.As(err, &permanent) || !strings.Contains(permanent.Hint, "position set CONFIG p ") {
			t.Errorf("%v: got %v", later, err)
		}
	}
}

// TestRestoredWhileReading puts a stream back to an older state under a source that
// reads it: what comes then has numbers that were read already.
func TestRestoredWhileReading(t *testing.T) {
	opts := settings{Port: -1, JetStream: true, StoreDir: t.TempDir()}
	p := start(t, opts)
	js := p.connect(t)
	create(t, js, "s")
	publish(t, js, "s.x", numbered(5)...)
	p.kill()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(opts.StoreDir)); err != nil {
		t.Fatal(err)
	}
	opts.Port = p.port(t)
	p = start(t, opts)
	publish(t, p.connect(t), "s.x", numbered(5)...)
	s := newSource(t, usual, stream.Config{URL: p.url, Stream: "s"})
	defer s.Close()
	if _, err := s.Partitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.kill()
	opts.StoreDir = older
	p = start(t, opts)
	defer p.kill()
	for end := time.Now().Add(time.Minute); ; {
		_, err := s.Partitions(t.Context())
		if event.IsPermanent(err) && strings.Contains(err.Error(), "ends at 5 now") {
			return
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("got %v", err)
		}
		time.Sleep(10 * time.Millisecond) // the client reconnects
	}
}

func TestRecreatedStream(t *testing.T) {
	url, js := serve(t)
	create(t, js, "s")
	s := newSource(t, usual, stream.Config{URL: url, Stream: "s"})
	defer s.Close()
	before, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Partitions(t.Context()); err == nil || event.IsPermanent(err) {
		t.Errorf("a stream that does not exist (yet): %v", err)
	}
	create(t, js, "s")
	if _, err := s.Open(t.Context(), before[0], nil); !errors.Is(err, source.ErrMoved) {
		t.Errorf("got %v", err)
	}
}

// TestSecretsStayInTheURL has errors that people and logs see.
func TestSecretsStayInTheURL(t *testing.T) {
	s := newSource(t, usual, stream.Config{URL: "nats://u:geheim@127.0.0.1:1,nats://geheim@127.0.0.1:2", Stream: "s"})
	defer s.Close()
	err := s.Traits().Check(t.Context())
	if err == nil || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("got %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for _, url := range []string{"", "localhost", "nats://localhost", "a:4222, tls://user:x@b:4223/", "[::1]:4222"} {
		if _, err := stream.New(source.Env{}, stream.Config{URL: url, Stream: "s"}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"localhost:nats", "nats://user:geheim@localhost:99999", "a,b:x"} {
		if _, err := stream.New(source.Env{}, stream.Config{URL: url, Stream: "s"}); err == nil ||
			!strings.Contains(err.Error(), "invalid port") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestConfigAndCheck(t *testing.T) {
	if _, err := stream.New(source.Env{}, stream.Config{Stream: "s", Trim: true, Subject: "x"}); err == nil {
		t.Error("trim and subject go together")
	}
	var permanent *event.PermanentError
	url, _ := serve(t, func(o *settings) { o.Username, o.Password = "u", "p" })
	s := newSource(t, usual, stream.Config{URL: url, Stream: "s", User: "u", Password: "wrong"})
	defer s.Close()
	if err := s.Traits().Check(t.Context()); !errors.As(err, &permanent) {
		t.Errorf("a wrong password: %v", err)
	}
	url, _ = serve(t, func(o *settings) { o.JetStream = false })
	plain := newSource(t, usual, stream.Config{URL: url, Stream: "s"})
	defer plain.Close()
	if err := plain.Traits().Check(t.Context()); err == nil || !strings.Contains(err.Error(), "JetStream") {
		t.Errorf("a server without JetStream: %v", err)
	}
}

// TestServerIsKilled has the server die and come back while a reader waits.
func TestServerIsKilled(t *testing.T) {
	opts := settings{Port: -1, JetStream: true, StoreDir: t.TempDir()}
	p := start(t, opts)
	js := p.connect(t)
	create(t, js, "s")
	publish(t, js, "s.x", numbered(100)...)
	r, err := open(t, stream.Config{URL: p.url, Stream: "s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := read(t, r, 100); len(got) != 100 {
		t.Fatal(len(got))
	}
	p.kill()
	opts.Port = p.port(t)
	p = start(t, opts)
	defer p.kill()
	js = p.connect(t)
	publish(t, js, "s.x", numbered(50)...)
	var got []string
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(got) < 50 {
		var b event.Batch
		if err := r.Read(ctx, &b); err != nil && ctx.Err() != nil {
			t.Fatalf("after %d events: %v", len(got), err)
		}
		for i := range b.Len() {
			got = append(got, string(b.Doc(i)))
		}
	}
	if strings.Join(got, " ") != strings.Join(numbered(50), " ") {
		t.Errorf("after the restart: %v", got)
	}
}

// TestRestartFails has the client give up a consumer, and no other one is made at first.
func TestRestartFails(t *testing.T) {
	url, js := serve(t)
	create(t, js, "s")
	publish(t, js, "s.x", numbered(5)...)
	r, err := open(t, stream.Config{URL: url, Stream: "s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	read(t, r, 5)
	gaveUp := errors.New("gave up")
	stream.Fail(r, gaveUp)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	var b event.Batch
	for range 2 {
		if err := r.Read(canceled, &b); !errors.Is(err, context.Canceled) {
			t.Errorf("without a consumer: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Read(ctx, &b); !errors.Is(err, gaveUp) {
		t.Fatalf("with another consumer: %v, want why the first is gone", err)
	}
	publish(t, js, "s.x", "{}")
	if _, ranges := read(t, r, 1); ranges[0].First != 5 {
		t.Errorf("the reader goes on with %v, want 5", ranges)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv("NATS_SERVE") != "" {
		serveHere()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestKind(t *testing.T) { sourcetest.Kind(t, stream.Kind()) }
