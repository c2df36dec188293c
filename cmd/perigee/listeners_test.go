package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/engine/eventservice"
)

// TestPagesReachNoListener starts an engine that listens wherever it can, and asks each address
// as a program does, as a web page of another site does, and as one whose name means 127.0.0.1.
func TestPagesReachNoListener(t *testing.T) {
	folder := t.TempDir()
	monitors, events, sql := freeAddress(t), freeAddress(t), freeAddress(t)
	file := filepath.Join(folder, "pipeline.yaml")
	text := fmt.Sprintf("data: %s\nhttp: %s\npipelines:\n  p:\n    source:\n      http: {listen: %q}\n    sink:\n      file: {folder: %s}\n",
		filepath.Join(folder, "data"), monitors, events, filepath.Join(folder, "out"))
	queries := eventservice.Available() == nil // queries need cgo
	if queries {
		text += fmt.Sprintf("query: {listen: %q}\n", sql)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	engine := runEngine(t, file)
	engine.says("engine started")
	for _, to := range []struct{ name, address, request, body string }{
		{"metrics", monitors, "GET /metrics", ""},
		{"readiness", monitors, "GET /ready", ""},
		{"liveness", monitors, "GET /ping", ""},
		{"HTTP source", events, "POST /", `{"a":1}`},
		{"query", sql, "POST /query", "SELECT 1"},
	} {
		if to.address == sql && !queries {
			continue
		}
		for _, from := range []struct {
			name, host, header string
			refused            bool
		}{
			{"a program", to.address, "", false},
			{"the address line of a browser", "localhost", "Sec-Fetch-Site: none\r\n", false},
			{"a page of another site", to.address, "Sec-Fetch-Site: cross-site\r\n", true},
			{"a page of another port", to.address, "Sec-Fetch-Site: same-site\r\n", true},
			{"a page of another site, in an old browser", to.address, "Origin: https://evil.example\r\n", true},
			{"a page whose name means 127.0.0.1", "evil.example", "Sec-Fetch-Site: same-origin\r\n", true},
		} {
			request := fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", to.request, from.host, from.header, len(to.body), to.body)
			status := statusOf(t, to.address, request)
			if got := strings.Contains(status, " 403 "); got != from.refused || status == "" {
				t.Errorf("%s, asked by %s: %q, want refused: %v", to.name, from.name, status, from.refused)
			}
		}
	}
}

// freeAddress returns an address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// statusOf sends a request unchanged and returns the status line of the answer. It waits for the
// address.
func statusOf(t *testing.T, address, request string) string {
	t.Helper()
	var conn net.Conn
	eventually(t, "the engine listens on "+address, func() (ok bool) {
		var err error
		conn, err = net.Dial("tcp", address)
		return err == nil
	})
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(conn, request)
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line)
}
