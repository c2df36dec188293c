package resp_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/internal/testserver"
)

func dial(t *testing.T, s resp.Server) *resp.Conn {
	t.Helper()
	if err := s.Prepare(""); err != nil {
		t.Fatal(err)
	}
	c, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestReadReply(t *testing.T) {
	c := dial(t, resp.Server{Address: testserver.Redis(t).Address()})
	for _, test := range []struct {
		script string
		want   any
	}{
		{"return 7", int64(7)},
		{"return 'text'", "text"},
		{"return {ok = 'fine'}", "fine"},
		{"return false", nil},
		{"return {}", []any{}},
		{"return {1, {'a', false}, redis.error_reply('MY fault')}", nil},
	} {
		got, err := c.Do(t.Context(), "EVAL", test.script, "0")
		if strings.Contains(test.script, "fault") {
			test.want = []any{int64(1), []any{"a", nil}, resp.ReplyError("MY fault")}
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.script, diff)
		}
	}
	_, err := c.Do(t.Context(), "NONSENSE")
	var refused resp.ReplyError
	if !errors.As(err, &refused) || refused.Code() != "ERR" {
		t.Errorf("an unknown command is %v", err)
	}
	if v, err := c.Do(t.Context(), "PING"); v != "PONG" || err != nil {
		t.Errorf("after an error reply: %v, %v", v, err)
	}
}

func TestInfo(t *testing.T) {
	c := dial(t, resp.Server{Address: testserver.Redis(t).Address()})
	if v, err := c.Version(t.Context()); err != nil || v < 500 {
		t.Errorf("version %d, %v", v, err)
	}
	if _, err := c.Do(t.Context(), "ACL", "SETUSER", "default", "-set"); err != nil {
		t.Fatal(err)
	}
	denied, err := c.DeniedCommand(t.Context(), []string{"GET", "a"}, []string{"SET", "a", "b"})
	if err != nil || !strings.Contains(denied, "set") {
		t.Errorf("denied %q, %v", denied, err)
	}
	if _, err := c.Do(t.Context(), "ACL", "SETUSER", "default", "-acl"); err != nil {
		t.Fatal(err)
	}
	if denied, err := c.DeniedCommand(t.Context(), []string{"SET", "a", "b"}); denied != "" || err != nil {
		t.Errorf("a user that may not ask: %q, %v", denied, err)
	}
}

// TestBrokenReplies: what a broken server sends is an error, and not io.EOF.
func TestBrokenReplies(t *testing.T) {
	for _, sent := range []string{"", "\r\n", "x\r\n", ":\r\n", ":x\r\n", "$3\r\nab", "$-x\r\n", "*2\r\n:1\r\n", ":1\n",
		strings.Repeat("+", 300<<10)} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _ = io.WriteString(conn, sent)
				conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
			}
		}()
		c := dial(t, resp.Server{Address: l.Addr().String()})
		if v, err := c.Do(t.Context(), "PING"); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%.20q is %v, %v", sent, v, err)
		}
		c.Close()
		l.Close()
	}
}

func TestTLS(t *testing.T) {
	folder := t.TempDir()
	cert, key := testserver.WriteCertificate(t, folder)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	testserver.Redis(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	address := fmt.Sprintf("127.0.0.1:%d", port)
	c := dial(t, resp.Server{Address: address, TLS: true, CA: cert})
	if v, err := c.Do(t.Context(), "PING"); v != "PONG" || err != nil {
		t.Errorf("PING says %v, %v", v, err)
	}
	untrusted, err := (&resp.Server{Address: address, TLS: true}).Dial(t.Context())
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("an untrusted certificate: %v, %v", untrusted, err)
	}
	named, err := (&resp.Server{Address: strings.Replace(address, "127.0.0.1", "localhost", 1), TLS: true, CA: cert}).Dial(t.Context())
	if _, ok := errors.AsType[x509.HostnameError](err); !ok {
		t.Errorf("a certificate for another name: %v, %v", named, err)
	}
}

// TestTLSFails checks that Dial closes the connection when the CA file is missing.
func TestTLSFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := resp.Server{Address: l.Addr().String(), TLS: true, CA: filepath.Join(t.TempDir(), "gone.pem")}
	if _, err := s.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "read ca") {
		t.Fatalf("got %v", err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestPrepare(t *testing.T) {
	for want, s := range map[string]resp.Server{
		"":                         {},
		`invalid port "66379"`:     {Address: "localhost:66379"},
		"without redis://":         {Address: "redis://localhost:6379"},
		"missing port":             {Address: "localhost"},
		"without a password":       {Username: "u"},
		"ca is given without tls:": {CA: "x"},
	} {
		err := s.Prepare("")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error()+event.HintOf(err), want)) {
			t.Errorf("%+v: %v, hint %q, want %q in one of them", s, err, event.HintOf(err), want)
		}
	}
}

func TestSocket(t *testing.T) {
	folder, err := os.MkdirTemp("", "perigee-resp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "s")
	testserver.Redis(t, "--unixsocket", path)
	c := dial(t, resp.Server{Address: path, DB: 2})
	if v, err := c.Do(t.Context(), "PING"); v != "PONG" || err != nil {
		t.Errorf("PING says %v, %v", v, err)
	}
}

func TestParseLength(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		rest string
		ok   bool
	}{
		{"$3\r\nabc", 3, "abc", true}, {"$0\r\n", 0, "", true}, {"$1234567890\r\nx", 1234567890, "x", true}, {"$10\r\n", 10, "", true},
		{"", 0, "", false}, {"$", 0, "", false}, {"$\r\n", 0, "", false}, {"$3", 0, "", false}, {"$3\r", 0, "", false}, {"*3\r\n", 0, "", false},
		{"$-1\r\n", 0, "", false}, {"$3x\r\n", 0, "", false}, {"$/\r\n", 0, "", false}, {"$:\r\n", 0, "", false}, {"$12345678901234\r\n", 0, "", false},
	} {
		n, rest, ok := resp.ParseLength([]byte(test.text), '$')
		if n != test.n || string(rest) != test.rest || ok != test.ok {
			t.Errorf("%q: %d, %q, %v", test.text, n, rest, ok)
		}
	}
}

// TestFailedTLSCloses holds that a connection whose handshake fails is closed.
func TestFailedTLSCloses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write([]byte("-no TLS here\r\n"))
		_, err = io.Copy(io.Discard, c)
		ended <- err
	}()
	s := resp.Server{Address: l.Addr().String(), TLS: true}
	_, err = s.Dial(t.Context())
	if _, ok := errors.AsType[tls.RecordHeaderError](err); !ok {
		t.Fatalf("a handshake with a server without TLS: %v", err)
	}
	if err := <-ended; err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server waits for the end of the connection: %v", err)
	}
}

// TestQuestionsOnABrokenConnection: only what the server refuses counts as no answer.
func TestQuestionsOnABrokenConnection(t *testing.T) {
	c := dial(t, resp.Server{Address: testserver.Redis(t).Address()})
	c.Close()
	if v, err := c.Version(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("version %d, %v", v, err)
	}
	if info, err := c.Info(t.Context(), "server"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("info %v, %v", info, err)
	}
	if denied, err := c.DeniedCommand(t.Context(), []string{"GET", "a"}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("denied %q, %v", denied, err)
	}
}

// TestVersionIsNotSaid: a server that refuses, or says something else, has version 0.
func TestVersionIsNotSaid(t *testing.T) {
	for answer, want := range map[string]int{
		"-NOPERM no\r\n":                         0,
		"$5\r\na:b\r\n\r\n":                      0,
		"$21\r\nredis_version:unknown\r\n":       0,
		"$19\r\nredis_version:7.2.4\r\n":         702,
		"$18\r\nredis_version:6.0x\r\n":          600,
		"$24\r\n# Server\r\nredis_version:8\r\n": 0,
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _ = io.WriteString(conn, answer)
				conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
			}
		}()
		c := dial(t, resp.Server{Address: l.Addr().String()})
		if v, err := c.Version(t.Context()); v != want || err != nil {
			t.Errorf("%q is %d, %v; want %d", answer, v, err, want)
		}
		c.Close()
		l.Close()
	}
}
