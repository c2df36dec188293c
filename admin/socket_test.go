package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers on the socket of a data folder, as an engine does.
func serve(t *testing.T, answer func(io.Writer, *http.Request) error) (data string) {
	t.Helper()
	data = t.TempDir()
	l, err := net.Listen("unix", filepath.Join(data, datafolder.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: Handler(answer)}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return data
}

func TestPost(t *testing.T) {
	large := strings.Repeat("row\n", 100_000)
	tests := []struct {
		name   string
		answer func(io.Writer, *http.Request) error
		want   string
		fails  string
		hint   string
	}{
		{"an answer", func(w io.Writer, r *http.Request) error {
			body, _ := io.ReadAll(r.Body)
			_, err := fmt.Fprint(w, large, r.URL.Query().Get("format"), string(body))
			return err
		}, large + "csvSELECT 1", "", ""},
		{"an error", func(io.Writer, *http.Request) error {
			return event.WithHint(errors.New("no table \"x\"\nline 2"), "create it")
		}, "", "no table \"x\"\nline 2", "create it"},
		{"an error after a part", func(w io.Writer, _ *http.Request) error {
			fmt.Fprint(w, large)
			return errors.New("broke off")
		}, large, "the engine ended the connection during its answer: unexpected EOF", "read the reason in the log of the engine"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data := serve(t, test.answer)
			var out bytes.Buffer
			err := Post(t.Context(), data, "/query", url.Values{"format": {"csv"}}, strings.NewReader("SELECT 1"), &out, nil)
			if got := fmt.Sprint(err); err == nil && test.fails != "" || err != nil && got != test.fails {
				t.Errorf("error %v, want %q", err, test.fails)
			}
			if err != nil && event.HintOf(err) != test.hint {
				t.Errorf("hint %q, want %q", event.HintOf(err), test.hint)
			}
			if out.String() != test.want {
				t.Errorf("answer has %d bytes, want %d", out.Len(), len(test.want))
			}
		})
	}
}

// TestPiecesArriveAtOnce lets an answer go on only when its reader has its beginning.
func TestPiecesArriveAtOnce(t *testing.T) {
	arrived := make(chan struct{})
	data := serve(t, func(w io.Writer, _ *http.Request) error {
		fmt.Fprint(w, "first")
		w.(http.Flusher).Flush()
		select {
		case <-arrived:
		case <-time.After(10 * time.Second):
			return errors.New("nobody got the first piece")
		}
		_, err := fmt.Fprint(w, "second")
		return err
	})
	out := &firstWrite{arrived: arrived}
	if err := Post(t.Context(), data, "/query", nil, nil, out, nil); err != nil || string(out.bytes) != "firstsecond" {
		t.Errorf("answer %q, error %v", out.bytes, err)
	}
}

// A firstWrite closes a channel when something is written.
type firstWrite struct {
	bytes   []byte
	once    sync.Once
	arrived chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { close(f.arrived) })
	f.bytes = append(f.bytes, p...)
	return len(p), nil
}

func TestNoEngine(t *testing.T) {
	data := t.TempDir()
	if running, err := IsRunning(data); running || err != nil {
		t.Errorf("without a socket: running %v, %v", running, err)
	}
	l, err := net.Listen("unix", filepath.Join(data, datafolder.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if err := Post(t.Context(), data, "/query", nil, nil, io.Discard, nil); !errors.Is(err, ErrNoEngine) {
		t.Errorf("beside the socket of an engine that was killed: %v", err)
	}
}

// TestMalformedRequest sends no JSON, or too little of it, to operations: none is called.
func TestMalformedRequest(t *testing.T) {
	called := false
	type request struct{ N int }
	for name, handler := range map[string]http.Handler{
		"one": Handle(func(context.Context, request) (int, error) { called = true; return 1, nil }),
		"stream": handleStream(func(context.Context, request) iter.Seq2[int, error] {
			called = true
			return func(func(int, error) bool) {}
		}),
	} {
		for _, body := range []string{"", "{", "[]", `{"N":"x"}`} {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest("POST", "/", strings.NewReader(body)))
			if called || answer.Code == http.StatusOK || !strings.Contains(answer.Body.String(), "decode the request") {
				t.Errorf("%s: %q is answered with %d %s", name, body, answer.Code, answer.Body)
			}
		}
	}
}
