package http_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	httpsource "github.com/perigeedb/perigee/source/http"
)

// hold opens connections that send text and nothing more, until the test ends.
func hold(t *testing.T, to, text string, connections int) {
	t.Helper()
	for range connections {
		conn, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := fmt.Fprint(conn, text); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStalledBodiesHoldNobodyUp opens posts that announce much, or have sent most of a
// body, and stop.
func TestStalledBodiesHoldNobodyUp(t *testing.T) {
	for name, sent := range map[string]int{"nothing sent": 0, "most sent": 1<<20 - 10} {
		t.Run(name, func(t *testing.T) {
			_, to := start(t, t.TempDir(), httpsource.Config{MaxBody: 1 << 20})
			hold(t, to, fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", 1<<20, strings.Repeat(" ", sent)), 8)
			for range 5 {
				if status, answer := post(t, to, `{"a":1}`); status != 200 { // it does not wait for the others
					t.Fatalf("%d %s", status, answer)
				}
			}
		})
	}
}

// TestRefusalsAreBounded posts lines that are all refused.
func TestRefusalsAreBounded(t *testing.T) {
	_, to := start(t, t.TempDir(), httpsource.Config{})
	status, answer := post(t, to, strings.Repeat("x\n", 5000))
	if status != 400 || strings.Count(answer, `"event":`) != 100 || !strings.HasSuffix(answer, `"refused_more":4900}`) {
		t.Errorf("%d, %d events listed, ends in %q", status, strings.Count(answer, `"event":`), answer[max(0, len(answer)-40):])
	}
}

func TestBodiesAreBounded(t *testing.T) {
	_, to := start(t, t.TempDir(), httpsource.Config{})
	for name, c := range map[string]struct{ body, encoding string }{
		"lines":       {strings.Repeat("x\n", 100_001), ""},
		"elements":    {"[" + strings.Repeat("1,", 100_001) + "1]", ""},
		"empty lines": {gzipped(strings.Repeat("\n", 8<<20)), "gzip"},
		"bomb":        {gzipped(strings.Repeat("x\n", 4<<20)), "gzip"},
	} {
		if status, answer := post(t, to, c.body, "Content-Encoding", c.encoding); status != 413 {
			t.Errorf("%s: %d %.100s, want 413", name, status, answer)
		}
	}
}

// TestHugeLength announces bodies whose length overflows a sum.
func TestHugeLength(t *testing.T) {
	_, to := start(t, t.TempDir(), httpsource.Config{})
	for _, length := range []string{"9223372036854775807", "9223372036854771712", "16777217"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n{}", length)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != 413 {
			t.Errorf("Content-Length %s: %v, %v", length, response, err)
			continue
		}
		response.Body.Close()
	}
}
