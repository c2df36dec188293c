package console_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/e2e"
	"github.com/perigeedb/perigee/internal/testserver"
)

const browserConfig = `
http: %s
console: {token: a-token}
tables:
  visits:
    columns:
      - {name: id, type: int64}
      - {name: event_name, type: string}
      - {name: email, type: string}
      - {name: time, type: timestamp}
      - {name: visits, type: int64}
    time: time
    retention: 3650d
pipelines:
  mails:
    source:
      redis: {address: "%s", list: mails}
    script: mails.lua
    sink:
      mysql:
        address: "%s"
        user: root
        database: %s
        table: mails
        create: true
        primary_key: [id]
        columns:
          - {name: id, type: int64, required: true}
          - {name: email, type: string, required: true, sql: VARCHAR(120)}
          - {name: domain, type: string, sql: VARCHAR(80)}
          - {name: words, type: int32}
  visits:
    source: {generate: {events: 1000000, rate: 500}}
    script: visits.lua
    state: {name: visits}
    sink: {eventstore: {table: visits}}
`

const mailsLua = `local domains = require "domains"

-- count returns the words of a text.
local function count(text)
  local n = 0
  for _ in text:gmatch("%S+") do n = n + 1 end
  return n
end

function main(event)
  if event.id % 97 == 0 then error("no consent: " .. event.email) end
  event.domain = domains.of(event.email)
  event.words = count(event.email .. " opened " .. event.campaign)
  local seen = function() return event.id end
  event.seen = seen()
  return event
end
`

// TestBrowser drives every page in Chromium, with tools/console/test.mjs, against an engine of the
// built command with Redis and MariaDB. It runs where PERIGEE_CONSOLE_TOOLS names the folder in which
// tools/console/build.sh has installed its packages. PERIGEE_CONSOLE_SHOTS is where screenshots go.
func TestBrowser(t *testing.T) {
	tools := os.Getenv("PERIGEE_CONSOLE_TOOLS")
	if tools == "" {
		t.Skip("make test-console runs this test")
	}
	redis, maria := testserver.Redis(t), testserver.MariaDB(t)
	folder := t.TempDir()
	database, err := maria.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	for name, text := range map[string]string{
		"pipeline.yaml": fmt.Sprintf(browserConfig, address, redis.Address(), maria.Address(), database),
		"mails.lua":     mailsLua,
		"domains.lua":   "local M = {}\nfunction M.of(email)\n  return email:match(\"@(.+)$\")\nend\nreturn M\n",
		"visits.lua": "local nodedb = require \"nodedb\"\nfunction main(event)\n  event.visits = nodedb.incr(\"^visits\", event.email, 1)\n" +
			"  nodedb.set(\"^last\", event.email, \"at\", event.time)\n  return event\nend\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	push(t, redis.Address())
	engine, err := e2e.StartProcess("../bin/perigee", filepath.Join(folder, "pipeline.yaml"), filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	if err := engine.WaitReady(ctx, address); err != nil {
		log, _ := os.ReadFile(filepath.Join(folder, "log"))
		t.Fatalf("%v\n%s", err, log)
	}
	command := exec.CommandContext(ctx, "node", "tools/console/test.mjs", tools, "http://"+address, "a-token", os.Getenv("PERIGEE_CONSOLE_SHOTS"))
	command.Dir, command.Stdout, command.Stderr = "..", os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
}

// hostileEvent becomes a dead letter with markup in every text that pages show of it.
const hostileEvent = `{"id":97,"email":"<img src=x onerror=document.title='pwned'><script>document.title='pwned'</script>","campaign":"\"><svg onload=document.title='pwned'>"}`

// push fills the list mails until the test ends: an event with markup, and ordinary ones.
func push(t *testing.T, redis string) {
	t.Helper()
	conn, err := net.Dial("tcp", redis)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "*3\r\n$5\r\nRPUSH\r\n$5\r\nmails\r\n$%d\r\n%s\r\n", len(hostileEvent), hostileEvent); err != nil {
		t.Fatal(err)
	}
	pusher, err := e2e.NewPusher(redis, "mails", 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for count := uint64(200); pusher.PushUpTo(ctx, count) == nil && ctx.Err() == nil; count += 200 {
			select {
			case <-ctx.Done():
			case <-time.After(250 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended; pusher.Close() })
}
