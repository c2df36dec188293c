package http_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/source"
	httpsource "github.com/perigeedb/perigee/source/http"
	"github.com/perigeedb/perigee/source/sourcetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}))
}

var usual = source.Limits{Events: 100, Bytes: 1 << 20}

func newSource(t testing.TB, data string, limits source.Limits, c httpsource.Config) *httpsource.Source {
	t.Helper()
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	s, err := httpsource.New(source.Env{
		Pipeline: "p", Folder: data, Data: data, Remembered: true, Limits: limits, Log: slog.New(slog.DiscardHandler),
	}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start makes a source that listens, and returns its URL.
func start(t testing.TB, data string, c httpsource.Config) (*httpsource.Source, string) {
	t.Helper()
	s := newSource(t, data, usual, c)
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Partitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, "http://" + s.Address().String()
}

func post(t testing.TB, to, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("POST", to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// events reads n events from the start.
func events(t testing.TB, s *httpsource.Source, n int) (all []string) {
	t.Helper()
	names, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), names[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var b event.Batch
	for len(all) < n {
		if err := r.Read(ctx, &b); err != nil {
			t.Fatalf("after %d events: %v", len(all), err)
		}
		for i := range b.Len() {
			all = append(all, string(b.Doc(i)))
		}
	}
	if lag := r.Lag(); lag != 0 || len(all) != n {
		t.Errorf("%d events and %d more, want %d", len(all), lag, n)
	}
	return all
}

func TestBodies(t *testing.T) {
	for _, c := range []struct {
		name, media, body string
		status            int
		answer            string
		events            []string
	}{
		{"lines", "application/x-ndjson", "{\"a\":1}\n\n{\"a\":2}\r\n", 200, `{"taken":2}`, []string{`{"a":1}`, `{"a":2}`}},
		{"lines, without a type", "", "{\"a\":1}\n{\"a\":2}", 200, `{"taken":2}`, []string{`{"a":1}`, `{"a":2}`}},
		{"one object", "application/json", "{\"a\":\n 1}", 200, `{"taken":1}`, []string{"{\"a\":\n 1}"}},
		{"one object, without a type", "", "{\"a\":\n 1}", 200, `{"taken":1}`, []string{"{\"a\":\n 1}"}},
		{"array", "application/json", ` [{"a":1} , {"b":[2]}]`, 200, `{"taken":2}`, []string{`{"a":1}`, `{"b":[2]}`}},
		{"empty array", "application/json", `[]`, 200, `{"taken":0}`, nil},
		{"nothing", "", ``, 200, `{"taken":0}`, nil},
		{"a bad line between good ones", "", "{\"a\":1}\n{\"a\":tru}\n{\"a\":3}\n", 200,
			`{"taken":2,"refused":[{"event":2,"error":`, []string{`{"a":1}`, `{"a":3}`}},
		{"no object", "application/json", `[1,{"a":2}]`, 200, `{"taken":1,"refused":[{"event":1,"error":`, []string{`{"a":2}`}},
		{"only bad ones", "", "nonsense", 400, `{"taken":0,"refused":[{"event":1,"error":`, nil},
		{"truncated array", "application/json", `[{"a":1},{"a":`, 400, `{"taken":0,"error":"the array is not JSON after element 1`, nil},
		{"array that is not closed", "application/json", `[{"a":1}`, 400, `{"taken":0,"error":"the array`, nil},
		{"more after the array", "application/json", `[{"a":1}] x`, 400, `{"taken":0,"error":"unexpected data after the array`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, to := start(t, t.TempDir(), httpsource.Config{})
			status, answer := post(t, to, c.body, "Content-Type", c.media)
			if status != c.status || !strings.HasPrefix(answer, c.answer) {
				t.Errorf("got %d %s, want %d %s", status, answer, c.status, c.answer)
			}
			if diff := cmp.Diff(c.events, events(t, s, len(c.events))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRepeatedKey(t *testing.T) {
	data := t.TempDir()
	s, to := start(t, data, httpsource.Config{})
	body := "{\"a\":1}\n{\"a\":2}\nbad\n"
	_, first := post(t, to, body, "Idempotency-Key", "k1")
	for range 2 {
		status, again := post(t, to, body, "Idempotency-Key", "k1")
		if want := strings.TrimSuffix(first, "}") + `,"repeated":true}`; status != 200 || again != want {
			t.Errorf("got %d %s, want %s", status, again, want)
		}
		if status, answer := post(t, to, `{"a":3}`, "Idempotency-Key", "k1"); status != 422 {
			t.Errorf("another body under the key: %d %s", status, answer)
		}
		_ = s.Close()
		s, to = start(t, data, httpsource.Config{})
	}
	events(t, s, 2)
}

func TestManyWithOneKey(t *testing.T) {
	s, to := start(t, t.TempDir(), httpsource.Config{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if status, answer := post(t, to, `{"a":1}`, "Idempotency-Key", "same"); status != 200 {
				t.Error(status, answer)
			}
		})
	}
	group.Wait()
	events(t, s, 1)
}

func TestRejectedRequests(t *testing.T) {
	_, to := start(t, t.TempDir(), httpsource.Config{Token: "secret", MaxBody: 100, Path: "/in"})
	auth := []string{"Authorization", "Bearer secret"}
	for _, c := range []struct {
		name    string
		url     string
		body    string
		headers []string
		status  int
	}{
		{"no token", to + "/in", `{}`, nil, 401},
		{"another token", to + "/in", `{}`, []string{"Authorization", "Bearer secre"}, 401},
		{"another path", to + "/", `{}`, auth, 404},
		{"too long", to + "/in", strings.Repeat(" ", 101), auth, 413},
		{"too long once decompressed", to + "/in", gzipped(strings.Repeat(" ", 101)), append(auth, "Content-Encoding", "gzip"), 413},
		{"not compressed", to + "/in", `{}`, append(auth, "Content-Encoding", "gzip"), 400},
		{"unknown encoding", to + "/in", `{}`, append(auth, "Content-Encoding", "br"), 415},
		{"gzip without a header", to + "/in", gzipped(`{}`), auth, 415},
		{"key too long", to + "/in", `{}`, append(auth, "Idempotency-Key", strings.Repeat("k", 256)), 400},
		{"good", to + "/in", gzipped(`{}`), append(auth, "Content-Encoding", "gzip"), 200},
	} {
		if status, answer := post(t, c.url, c.body, c.headers...); status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, status, answer, c.status)
		}
	}
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

func TestFullSpool(t *testing.T) {
	s, to := start(t, t.TempDir(), httpsource.Config{Spool: 1000})
	taken := 0
	for status := 200; status == 200; taken++ {
		if status, _ = post(t, to, `{"a":"something"}`); status != 200 && status != 503 {
			t.Fatal(status)
		}
		if taken > 100 {
			t.Fatal("the spool is larger than its limit")
		}
	}
	names, _ := s.Partitions(t.Context())
	r, err := s.Open(t.Context(), names[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]httpsource.Config{
		"missing port":     {Listen: "localhost"},
		"invalid port":     {Listen: "localhost:99999"},
		"needs a token":    {Listen: "0.0.0.0:4291"},
		"both cert and":    {Listen: "127.0.0.1:0", Cert: "x"},
		"must begin with ": {Listen: "127.0.0.1:0", Path: "x"},
		"contain only":     {Listen: "127.0.0.1:0", Path: "/{"},
		"not be negative":  {Listen: "127.0.0.1:0", MaxBody: -1},
	} {
		if _, err := httpsource.New(source.Env{}, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", c, err, want)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	data := t.TempDir()
	s := newSource(t, data, usual, httpsource.Config{Listen: l.Addr().String()})
	defer s.Close()
	leaktest.Closed(t, data, func() {
		var permanent *event.PermanentError
		if _, err := s.Partitions(t.Context()); !errors.As(err, &permanent) {
			t.Errorf("got %v", err)
		}
	})
	if err := s.Traits().Check(t.Context()); !event.IsPermanent(err) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("the check finds %v", err)
	}
	other := newSource(t, t.TempDir(), usual, httpsource.Config{Listen: "127.0.0.1:0"})
	defer other.Close()
	for range 2 { // the second time while it listens
		if err := other.Traits().Check(t.Context()); err != nil {
			t.Errorf("the check of a free address finds %v", err)
		}
		if _, err := other.Partitions(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGap opens the partition for a sink that lost what was acknowledged.
func TestGap(t *testing.T) {
	data := t.TempDir()
	s, to := start(t, data, httpsource.Config{})
	big := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	const n = 36 // more than a segment
	for range n {
		if status, answer := post(t, to, big); status != 200 {
			t.Fatal(status, answer)
		}
	}
	names, _ := s.Partitions(t.Context())
	r, err := s.Open(t.Context(), names[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	var b event.Batch
	for read := 0; read < n; read += b.Len() {
		if err := r.Read(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if err := r.Ack(t.Context(), b.Range); err != nil {
			t.Fatal(err)
		}
	}
	_ = r.Close(t.Context())
	var permanent *event.PermanentError
	if _, err := s.Open(t.Context(), names[0], nil); !errors.As(err, &permanent) || !strings.Contains(permanent.Hint, "position set CONFIG p ") {
		t.Errorf("got %v", err)
	}
	if r, err = s.Open(t.Context(), names[0], event.Ranges{{Count: n}}); err != nil {
		t.Fatal(err)
	}
	_ = r.Close(t.Context())
}

// TestCloseClosesTheSpool closes a source that has accepted events: its spool is closed, too.
func TestCloseClosesTheSpool(t *testing.T) {
	data := t.TempDir()
	leaktest.Closed(t, data, func() {
		s, to := start(t, data, httpsource.Config{})
		if status, answer := post(t, to, `{"a":1}`); status != 200 {
			t.Error(status, answer)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTLS(t *testing.T) {
	folder := t.TempDir()
	testserver.WriteCertificate(t, folder)
	s, _ := start(t, folder, httpsource.Config{Cert: "cert.pem", Key: "key.pem"})
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	resp, err := client.Post("https://"+s.Address().String(), "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	if err := s.Traits().Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "key.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Traits().Check(t.Context()); !event.IsPermanent(err) {
		t.Errorf("without a key: %v", err)
	}
}

// TestPagesCannotPost posts as a web page in a browser on this machine would.
func TestPagesCannotPost(t *testing.T) {
	s, to := start(t, t.TempDir(), httpsource.Config{})
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"}} {
		if status, _ := post(t, to, `{"a":1}`, header...); status != http.StatusForbidden {
			t.Errorf("%s: status %d", header, status)
		}
	}
	if status, answer := post(t, to, `{"a":2}`); status != 200 {
		t.Error(status, answer)
	}
	if got := events(t, s, 1); got[0] != `{"a":2}` {
		t.Errorf("accepted: %v", got)
	}
}

// ending makes a source end when no event waits.
type ending struct{ source.Source }

func (e ending) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	r, err := e.Source.Open(ctx, partition, done)
	if err != nil {
		return nil, err
	}
	return endingReader{r}, nil
}

type endingReader struct{ source.Reader }

func (r endingReader) Read(ctx context.Context, b *event.Batch) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	empty := r.Lag() == 0
	if empty {
		timer := time.AfterFunc(20*time.Millisecond, cancel)
		defer timer.Stop()
	}
	err := r.Reader.Read(ctx, b)
	if empty && errors.Is(err, context.Canceled) {
		return io.EOF
	}
	return err
}

func TestConformance(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, n int) sourcetest.Place {
		data := t.TempDir()
		s, to := start(t, filepath.Join(data, "data"), httpsource.Config{})
		p := sourcetest.Place{
			Renew: func(t *testing.T) {
				if err := os.RemoveAll(filepath.Join(data, "data")); err != nil {
					t.Fatal(err)
				}
			},
			Open: func(t *testing.T, limits source.Limits) source.Source {
				return ending{newSource(t, filepath.Join(data, "data"), limits, httpsource.Config{})}
			},
			Wait: func(t *testing.T, limits source.Limits) source.Source {
				return newSource(t, filepath.Join(data, "data"), limits, httpsource.Config{})
			},
		}
		for len(p.Events) < n { // bodies of different lengths
			var body []string
			for i := range min(1+len(p.Events)%7*13, n-len(p.Events)) {
				body = append(body, fmt.Sprintf(`{"n":%d}`, 100000+len(p.Events)+i))
			}
			if status, answer := post(t, to, strings.Join(body, "\n")); status != 200 {
				t.Fatal(status, answer)
			}
			p.Events = append(p.Events, body...)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		http.DefaultClient.CloseIdleConnections()
		return p
	})
}

func TestKind(t *testing.T) { sourcetest.Kind(t, httpsource.Kind()) }
