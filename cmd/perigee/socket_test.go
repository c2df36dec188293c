package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/server"
)

// serve answers on the socket of a data folder, as an engine does.
func serve(t *testing.T, answer func(io.Writer, *http.Request) error) (data string) {
	t.Helper()
	data = t.TempDir()
	l, err := net.Listen("unix", filepath.Join(data, server.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Handler: answering(answer)}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return data
}

func TestAskEngine(t *testing.T) {
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
		}, large, "the engine broke its answer off: unexpected EOF", "its log says why"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data := serve(t, test.answer)
			var out bytes.Buffer
			asked, err := askEngine(data, "POST", "/query", url.Values{"format": {"csv"}}, strings.NewReader("SELECT 1"), &out)
			if !asked {
				t.Fatal("the engine was not asked")
			}
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

func TestAskNoEngine(t *testing.T) {
	data := t.TempDir()
	asked, err := askEngine(data, "GET", "/dlq", nil, nil, io.Discard)
	if asked || err != nil {
		t.Errorf("without a socket: asked %v, %v", asked, err)
	}
	l, err := net.Listen("unix", filepath.Join(data, server.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if asked, err := askEngine(data, "GET", "/dlq", nil, nil, io.Discard); asked || err != nil {
		t.Errorf("beside the socket of an engine that was killed: asked %v, %v", asked, err)
	}
}

func TestFirstLine(t *testing.T) {
	for in, want := range map[string]string{"": "", "abc": "abc", "abc\ndef": "abc…", "abcdefgh": "abcde…", "\xff": "\uFFFD", "a\tb\x1b[": "a b ["} {
		if got := firstLine(in, 6); got != want {
			t.Errorf("firstLine(%q) = %q, want %q", in, got, want)
		}
	}
}
