package httpserver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(handler, slog.New(slog.DiscardHandler))
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// ask sends a request as it is and returns the status line.
func ask(t *testing.T, address, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(conn, request)
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line)
}

func TestHosts(t *testing.T) {
	address := serve(t, func(http.ResponseWriter, *http.Request) {})
	for host, want := range map[string]string{
		"localhost": "200", "LocalHost:80": "200", "127.0.0.1": "200", "127.0.0.1:4290": "200", "[::1]:80": "200", "192.168.1.1": "200",
		"example.com": "403", "localhost.example.com": "403", "127.0.0.1.example.com:80": "403", "localhost.": "403", "2130706433": "403", "0x7f.1": "403",
	} {
		if got := ask(t, address, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); !strings.Contains(got, want) {
			t.Errorf("Host %s: %q, want %s", host, got, want)
		}
	}
	if got := ask(t, address, "GET http://example.com/ HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.Contains(got, "403") {
		t.Errorf("the host in the address of a request was not looked at: %q", got)
	}
}

// TestSites asks as a browser does for a page of this site, of another one, and for nobody's.
func TestSites(t *testing.T) {
	address := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, test := range []struct{ header, want string }{
		{"X: y", "200"}, {"Sec-Fetch-Site: none", "200"}, {"Sec-Fetch-Site: same-origin", "200"}, {"Origin: http://localhost", "200"},
		{"Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost", "200"},
		{"Sec-Fetch-Site: cross-site", "403"}, {"Sec-Fetch-Site: same-site", "403"}, {"Sec-Fetch-Site: x", "403"},
		{"Origin: https://evil.example", "403"}, {"Origin: http://localhost:3000", "403"}, {"Origin: null", "403"},
		{"Sec-Fetch-Site: cross-site\r\nOrigin: http://localhost", "403"},
	} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "ODD"} {
			if got := ask(t, address, method+" / HTTP/1.1\r\nHost: localhost\r\n"+test.header+"\r\n\r\n"); !strings.Contains(got, test.want) {
				t.Errorf("%s with %q: %q, want %s", method, test.header, got, test.want)
			}
		}
	}
}

func TestHeaderIsBounded(t *testing.T) {
	address := serve(t, func(http.ResponseWriter, *http.Request) {})
	if got := ask(t, address, "GET / HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 32<<10)+"\r\n\r\n"); !strings.Contains(got, "431") {
		t.Errorf("got %q", got)
	}
}

// TestIdleConnectionsMakeRoom opens more connections than the server keeps: as many idle ones
// are closed, before the server closes all that have sent no header.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	const more = 50
	address := serve(t, func(http.ResponseWriter, *http.Request) {})
	var open []net.Conn
	for range ConnectionsMax + more {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Skip("this process may not open so many connections")
		}
		defer conn.Close()
		open = append(open, conn)
	}
	if got := ask(t, address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.Contains(got, "200") {
		t.Errorf("got %q", got)
	}
	for end := time.Now().Add(HeaderTime / 2); len(open) > ConnectionsMax; {
		if time.Now().After(end) {
			t.Fatalf("%d connections are open", len(open))
		}
		open = slices.DeleteFunc(open, func(conn net.Conn) bool {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := conn.Read(make([]byte, 1))
			return err == io.EOF
		})
	}
}

// A recordedConn knows whether it was closed.
type recordedConn struct {
	net.Conn
	closed bool
}

func (c *recordedConn) Close() error {
	c.closed = true
	return nil
}

// TestWhichConnectionIsClosed opens one connection more than the server keeps: the one that waits
// for a request is closed, and where all have one, the new one is.
func TestWhichConnectionIsClosed(t *testing.T) {
	var all []*recordedConn
	observe := New(nil, slog.New(slog.DiscardHandler)).ConnState
	add := func() *recordedConn {
		c := &recordedConn{}
		all = append(all, c)
		observe(c, http.StateNew)
		return c
	}
	check := func(when string, want ...*recordedConn) {
		t.Helper()
		for i, c := range all {
			if c.closed != slices.Contains(want, c) {
				t.Errorf("%s: connection %d is closed: %v", when, i, c.closed)
			}
		}
	}
	for range ConnectionsMax {
		observe(add(), http.StateActive)
	}
	check("as many as the server keeps")
	idle := all[7]
	observe(idle, http.StateIdle)
	next := add()
	check("one is idle", idle)
	observe(idle, http.StateClosed)
	observe(next, http.StateActive)
	refused := add()
	check("none is idle", idle, refused)
	observe(refused, http.StateClosed)
	observe(all[3], http.StateClosed)
	observe(all[4], http.StateHijacked)
	add()
	add()
	check("two have ended", idle, refused)
}

// A recordedWriter remembers how much was written under each deadline.
type recordedWriter struct {
	http.ResponseWriter
	parts []int // bytes, one for each deadline
	room  int   // that remains
}

func (w *recordedWriter) SetWriteDeadline(time.Time) error {
	w.parts = append(w.parts, 0)
	return nil
}

func (w *recordedWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.room)
	w.room -= n
	w.parts[len(w.parts)-1] += n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// TestLongWriteHasManyDeadlines: a client that reads a long answer slowly, which a handler writes at
// once, has time for each part of it.
func TestLongWriteHasManyDeadlines(t *testing.T) {
	for _, test := range []struct {
		size, room int
		want       []int
	}{
		{0, answerPart, []int{0}},
		{1, answerPart, []int{1}},
		{answerPart, answerPart, []int{answerPart}},
		{2*answerPart + 7, 1 << 20, []int{answerPart, answerPart, 7}},
		{3 * answerPart, answerPart + 5, []int{answerPart, 5}},
	} {
		w := &recordedWriter{ResponseWriter: httptest.NewRecorder(), room: test.room}
		n, err := (&timedWriter{ResponseWriter: w, control: http.NewResponseController(w)}).Write(make([]byte, test.size))
		if !slices.Equal(w.parts, test.want) || n != min(test.size, test.room) || (err != nil) != (test.size > test.room) {
			t.Errorf("%d bytes: wrote %d of them, %v, in parts of %v, want %v", test.size, n, err, w.parts, test.want)
		}
	}
}

// TestLongAnswer reads a long answer, which a handler writes at once, over a connection.
func TestLongAnswer(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcde\n"), 3*answerPart/16+1)
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(want) })
	answer, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
	}
}
