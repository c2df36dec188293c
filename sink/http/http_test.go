package http_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	webhook "github.com/perigeedb/perigee/sink/http"
	"github.com/perigeedb/perigee/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A receiver is a real HTTP server that keeps what it is sent. It refuses a body
// with an event that is bad, and answers fail instead while there is one.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	rows  []sinktest.Row
	keys  []string
	types []string
	fail  []int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Method == http.MethodHead {
		return
	}
	r.keys = append(r.keys, req.Header.Get("Idempotency-Key"))
	r.types = append(r.types, req.Header.Get("Content-Type"))
	if len(r.fail) > 0 {
		w.WriteHeader(r.fail[0])
		r.fail = r.fail[1:]
		return
	}
	rows, err := parse(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	r.rows = append(r.rows, rows...)
}

func parse(req *http.Request) (rows []sinktest.Row, err error) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return nil, err
		}
	}
	in := bufio.NewReader(body)
	dec := json.NewDecoder(in)
	if first, _ := in.Peek(1); string(first) == "[" {
		_, _ = dec.Token()
	}
	for dec.More() {
		var one struct {
			ID   int64
			Name *string
		}
		if err := dec.Decode(&one); err != nil {
			return nil, err
		}
		if one.Name == nil {
			return nil, fmt.Errorf("event %d has no name", one.ID)
		}
		rows = append(rows, sinktest.Row{ID: one.ID, Name: *one.Name})
	}
	return rows, nil
}

func newSink(t testing.TB, c webhook.Config) *webhook.Sink {
	t.Helper()
	s, err := webhook.New(sink.Env{Pipeline: "p"}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	for _, c := range []webhook.Config{{}, {Format: "array", Gzip: true}, {Format: "each"}, {Order: "any"}} {
		t.Run(fmt.Sprintf("%s gzip=%v %s", c.Format, c.Gzip, c.Order), func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Place {
				r := newReceiver(t)
				c.URL = r.URL
				return sinktest.Place{
					Guarantee: sink.AtLeastOnce,
					Ordered:   sinktest.IsOrdered(t, newSink(t, c), c.Order),
					Sink:      func(t *testing.T, _ string) sink.Sink { return newSink(t, c) },
					Rows: func(*testing.T) []sinktest.Row {
						r.mu.Lock()
						defer r.mu.Unlock()
						return r.rows
					},
					// Bad is nil: what a receiver took before it refused the rest cannot
					// be taken back. TestBadRowsAreFoundOnce has what is promised instead.
				}
			})
		})
	}
}

func openWriter(t *testing.T, c webhook.Config) sink.Writer {
	t.Helper()
	s := newSink(t, c)
	w, _, err := s.Open(t.Context(), "part")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = w.Close(), s.Close() })
	return w
}

// TestBadRowsAreFoundOnce has the good rows of a refused batch arrive once, though
// the caller retries without the bad ones.
func TestBadRowsAreFoundOnce(t *testing.T) {
	r := newReceiver(t)
	w := openWriter(t, webhook.Config{URL: r.URL})
	out := sinktest.Docs(100, `{"id":1,"name":"a"}`, `{"id":2}`, "{\"id\":3,\n\"name\":\"c\"}", `{"id":4,"name":"d"}`)
	var rows *sink.RowErrors
	if err := w.Write(t.Context(), out); !errors.As(err, &rows) || len(rows.Rows) != 1 || rows.Rows[0].Row != 1 {
		t.Fatalf("got %v", err)
	}
	if why := rows.Rows[0].Err.Error(); !strings.Contains(why, "422") || !strings.Contains(why, "event 2 has no name") {
		t.Errorf("the reason is %q", why)
	}
	out.RemoveRows([]int{1})
	if err := w.Write(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(r.rows) != "[{1 a} {3 c} {4 d}]" {
		t.Errorf("arrived: %v", r.rows)
	}
}

func TestRepetitionHasTheSameKey(t *testing.T) {
	r := newReceiver(t)
	r.fail = []int{503, 429, 500}
	w := openWriter(t, webhook.Config{URL: r.URL})
	out := sinktest.Docs(100, `{"id":1,"name":"a"}`, `{"id":2,"name":"b"}`)
	for range 3 {
		sinktest.ExpectClass(t, w.Write(t.Context(), out), sinktest.Transient)
	}
	sinktest.ExpectClass(t, w.Write(t.Context(), out), sinktest.Success)
	if len(r.keys) != 4 || r.keys[0] != r.keys[3] || !strings.HasPrefix(r.keys[0], "p/part/100-101/") {
		t.Errorf("keys %q", r.keys)
	}
	if r.types[0] != "application/x-ndjson" {
		t.Errorf("type %q", r.types[0])
	}
}

func TestNothingToPost(t *testing.T) {
	r := newReceiver(t)
	w := openWriter(t, webhook.Config{URL: r.URL})
	if err := w.Write(t.Context(), sinktest.Docs(100)); err != nil || len(r.keys) != 0 {
		t.Error(err, r.keys)
	}
}

func TestClassesOfAnswers(t *testing.T) {
	for class, codes := range map[sinktest.Class][]int{
		sinktest.Success:   {200, 201, 202, 204},
		sinktest.Rejected:  {400, 413, 422},
		sinktest.Transient: {408, 409, 425, 429, 500, 502, 503, 504, 599},
		sinktest.Permanent: {301, 302, 307, 308, 401, 402, 403, 404, 405, 406, 410, 411, 414, 415, 418, 451},
	} {
		for _, code := range codes {
			t.Run(fmt.Sprint(code), func(t *testing.T) {
				r := newReceiver(t)
				r.fail = []int{code}
				w := openWriter(t, webhook.Config{URL: r.URL})
				err := w.Write(t.Context(), sinktest.Docs(100, `{"id":1,"name":"a"}`))
				sinktest.ExpectClass(t, err, class)
				if class == sinktest.Permanent && event.HintOf(err) == "" {
					t.Errorf("%v has no hint", err)
				}
				if class != sinktest.Success && !strings.Contains(err.Error(), fmt.Sprint(code)) {
					t.Errorf("%v does not name the answer", err)
				}
			})
		}
	}
	r := newReceiver(t)
	w := openWriter(t, webhook.Config{URL: r.URL})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Write(ctx, sinktest.Docs(100, `{"id":1,"name":"a"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r.Close()
	sinktest.ExpectClass(t, w.Write(t.Context(), sinktest.Docs(100, `{"id":1,"name":"a"}`)), sinktest.Transient)
}

// TestRedirection has a receiver that has moved: following it would turn the POST
// into a GET, which is answered well and takes nothing.
func TestRedirection(t *testing.T) {
	moved := httptest.NewServer(http.RedirectHandler(newReceiver(t).URL, http.StatusFound))
	defer moved.Close()
	w := openWriter(t, webhook.Config{URL: moved.URL})
	var permanent *event.PermanentError
	if err := w.Write(t.Context(), sinktest.Docs(100, `{"id":1,"name":"a"}`)); !errors.As(err, &permanent) || !strings.Contains(permanent.Hint, "has moved to") {
		t.Errorf("got %v", err)
	}
}

// TestKeyFits has partitions whose names no header takes, or no receiver.
func TestKeyFits(t *testing.T) {
	r := newReceiver(t)
	s := newSink(t, webhook.Config{URL: r.URL})
	defer s.Close()
	for _, partition := range []string{"a\nb", strings.Repeat("long", 100), strings.Repeat("long", 100) + "er"} {
		w, _, err := s.Open(t.Context(), partition)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), sinktest.Docs(100, `{"id":1,"name":"a"}`)); err != nil {
			t.Errorf("%.20q: %v", partition, err)
		}
	}
	if len(r.keys) != 3 || r.keys[1] == r.keys[2] || len(r.keys[1]) > 255 {
		t.Errorf("keys %q", r.keys)
	}
}

// TestSecretsStayInTheURL has errors that people and logs see.
func TestSecretsStayInTheURL(t *testing.T) {
	r := newReceiver(t)
	r.Close()
	s := newSink(t, webhook.Config{URL: strings.Replace(r.URL, "http://", "http://u:geheim@", 1) + "/geheim?token=geheim"})
	defer s.Close()
	w, _, err := s.Open(t.Context(), "part")
	if err != nil {
		t.Fatal(err)
	}
	_, bad := webhook.New(sink.Env{}, webhook.Config{URL: "ftp://u:geheim@x"})
	_, broken := webhook.New(sink.Env{}, webhook.Config{URL: "http://u:geheim@x:port"})
	for _, err := range []error{s.Traits().Check(t.Context()), w.Write(t.Context(), sinktest.Docs(100, `{"id":1,"name":"a"}`)), bad, broken} {
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("got %v", err)
		}
	}
}

func TestCheck(t *testing.T) {
	r := newReceiver(t)
	s := newSink(t, webhook.Config{URL: r.URL})
	defer s.Close()
	if err := s.Traits().Check(t.Context()); err != nil {
		t.Error(err)
	}
	r.Close()
	if err := s.Traits().Check(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) || event.IsPermanent(err) {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []webhook.Config{{}, {URL: "ftp://x"}, {URL: "http://"}, {URL: "http://x", Format: "xml"}, {URL: "http://x", Timeout: -1}, {URL: "http://x", Order: "no"}} {
		if _, err := webhook.New(sink.Env{}, c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestKind(t *testing.T) { sinktest.Kind(t, webhook.Kind()) }
