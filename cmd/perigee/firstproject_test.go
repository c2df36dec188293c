package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/scaffold"
	"github.com/perigeedb/perigee/internal/testserver"
)

// firstKinds returns the kinds of sources and sinks of projects. Kafka and NATS, which no package
// of Debian has, are played where the environment names their folders.
func firstKinds() (sources, sinks []string) {
	sources = []string{"file", "generate", "http", "redis"}
	sinks = []string{"eventstore", "file", "http", "mysql", "postgres", "redis", "stdout"}
	if os.Getenv("PERIGEE_KAFKA_JARS") != "" {
		sources, sinks = append(sources, "kafka"), append(sinks, "kafka")
	}
	if os.Getenv("PERIGEE_NATS") != "" {
		sources = append(sources, "nats")
	}
	return sources, sinks
}

// startBrokers starts a Kafka and a NATS for a project that needs them, and returns the variables
// of their addresses and of the path of their commands.
func startBrokers(t *testing.T, source, sink string) (env []string) {
	t.Helper()
	path := ""
	if jars := os.Getenv("PERIGEE_KAFKA_JARS"); source == "kafka" || sink == "kafka" {
		env = append(env, "KAFKA="+testserver.Kafka(t).Address())
		commands := t.TempDir()
		for name, class := range map[string]string{"kafka-console-producer.sh": "kafka.tools.ConsoleProducer", "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer"} {
			text := fmt.Sprintf("#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp '%s/*' %s \"$@\"\n", jars, class)
			if err := os.WriteFile(filepath.Join(commands, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		path += commands + ":"
	}
	if source == "nats" {
		env = append(env, "NATS="+testserver.NATS(t).Address())
		path += os.Getenv("PERIGEE_NATS") + ":"
	}
	return append(env, "PATH="+path+os.Getenv("PATH"))
}

// servers are what projects connect to.
type servers struct {
	redis    *testserver.RedisServer
	maria    *testserver.MariaDBServer
	postgres *testserver.PostgreSQLServer
	receiver *bodyReceiver
}

// A bodyReceiver keeps the bodies that an HTTP sink posts.
type bodyReceiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies strings.Builder
}

func newReceiver(t *testing.T) *bodyReceiver {
	r := &bodyReceiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, _ = io.Copy(&r.bodies, request.Body)
	}))
	t.Cleanup(r.Close)
	return r
}

// taken returns what was posted since the last call.
func (r *bodyReceiver) taken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.bodies.Reset()
	return r.bodies.String()
}

// newServers starts the servers.
func newServers(t *testing.T) *servers {
	t.Helper()
	return &servers{testserver.Redis(t), maria.Server(t), testserver.PostgreSQL(t), newReceiver(t)}
}

// env returns the variables that a project reads, and those of the clients of databases, with new
// databases.
func (s *servers) env(t *testing.T) []string {
	t.Helper()
	port := func(address string) string {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return []string{
		"REDIS=" + s.redis.Address(), "RECEIVER=" + s.receiver.URL, "HTTP_PORT=" + port(free.Addr().String()),
		"MYSQL=" + s.maria.Address(), "MYSQL_DATABASE=" + s.maria.Database(t), "MYSQL_HOST=127.0.0.1", "MYSQL_TCP_PORT=" + port(s.maria.Address()),
		"POSTGRES=" + s.postgres.Address(), "POSTGRES_DATABASE=" + s.postgres.Database(t), "PGPORT=" + port(s.postgres.Address()),
	}
}

// playProjects makes a project of every pair of kinds, and types what init and its README print.
// Without PERIGEE_VERIFY_ROUNDS=all each kind is in one pair or two.
func playProjects(t *testing.T) *page {
	s, all := newServers(t), &page{path: "perigee init"}
	slowest, commands := time.Duration(0), 0
	sources, sinks := firstKinds()
	for i, source := range sources {
		for j, sink := range sinks {
			if os.Getenv("PERIGEE_VERIFY_ROUNDS") != "all" && i != j%len(sources) {
				continue
			}
			p := &page{path: source + " into " + sink, folder: newPageFolder(t), env: append(s.env(t), startBrokers(t, source, sink)...)}
			if out, err := exec.Command("redis-cli", "-u", "redis://"+s.redis.Address(), "FLUSHALL").CombinedOutput(); err != nil {
				t.Fatalf("redis-cli: %v: %s", err, out)
			}
			began := time.Now()
			typed := s.playProject(t, p, source, sink)
			slowest, commands = max(slowest, time.Since(began)), max(commands, typed)
			all.steps, all.failed = all.steps+p.steps, all.failed+p.failed
		}
	}
	fmt.Printf("figure first_pipeline_commands %d\nfigure first_pipeline_s %.1f\n", commands, slowest.Seconds())
	if commands > 5 || slowest > time.Minute {
		all.fails(t, "a pipeline needs %d commands and %s", commands, slowest)
	}
	for _, sink := range []string{"eventstore", "mysql", "postgres"} {
		p := &page{path: "awkward events into " + sink, folder: newPageFolder(t), env: s.env(t)}
		p.put(t, "odd.json", awkward)
		p.step(t, "perigee init . --from odd.json --sink "+sink)
		p.step(t, "perigee test")
		if out := p.step(t, "perigee run pipeline.yaml"); !strings.Contains(out, "rows=2 dropped=0 dead=0") {
			p.fails(t, "%s: run prints\n%s", p.path, out)
		}
		all.steps, all.failed = all.steps+p.steps, all.failed+p.failed
	}
	return all
}

// playProject makes a project, and types the commands that init prints and those of the README. It
// returns the number of commands until the tested pipeline has delivered the events.
func (s *servers) playProject(t *testing.T, p *page, source, sink string) (typed int) {
	t.Helper()
	out := p.step(t, fmt.Sprintf("perigee init . --source %s --sink %s", source, sink))
	project := scaffold.Example(source, sink)
	printed := project.Commands("pipeline.yaml")
	if !strings.HasSuffix(out, "next:\n  "+strings.Join(printed, "\n  ")+"\n") {
		p.fails(t, "%s: init prints\n%s", p.path, out)
	}
	readme, err := os.ReadFile(filepath.Join(p.folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range append(printed, project.Send(), project.Look()) {
		if !strings.Contains(string(readme), command) {
			p.fails(t, "%s: the README lacks %q:\n%s", p.path, command, readme)
		}
	}
	p.step(t, printed[0])
	p.step(t, printed[1])
	result := ""
	if project.Ends() {
		result = p.step(t, printed[2])
	} else {
		result = p.runWhileSending(t, printed[2], project.Send())
	}
	typed = p.steps
	if look := project.Look(); look != "" {
		if sink == "kafka" {
			look += " --timeout-ms 10000" // otherwise it waits for more
		}
		result = p.step(t, look)
	}
	if sink == "http" {
		result = s.receiver.taken()
	}
	want := "radia@example.org"
	if source == "generate" {
		want = "@"
	}
	if !strings.Contains(result, want) || strings.Contains(result, "mallory@") {
		p.fails(t, "%s: the result is\n%s", p.path, result)
	}
	return typed
}

// runWhileSending runs an engine, sends the events, and drains it when it has delivered them.
func (p *page) runWhileSending(t *testing.T, command, send string) string {
	t.Helper()
	p.steps++
	engine := exec.Command("sh", "-c", "exec "+command)
	var log syncBuffer
	engine.Dir, engine.Env, engine.Stdout, engine.Stderr = p.folder, append(os.Environ(), p.env...), &log, &log
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	defer engine.Process.Kill()
	eventually(t, p.path+": a partition is open", func() bool {
		return strings.Contains(log.String(), "partition opened") || strings.Contains(log.String(), "listening") ||
			strings.Contains(log.String(), "does not exist (yet)") // send makes the stream
	})
	p.step(t, send)
	status := &page{folder: p.folder, env: p.env}
	eventually(t, p.path+": all events are delivered", func() bool {
		out, _ := status.run(t, p.folder, "perigee status --format json")
		return bytes.Contains([]byte(out), []byte(`"events":10`))
	})
	engine.Process.Signal(syscall.SIGTERM)
	if err := engine.Wait(); err != nil {
		p.fails(t, "%s: %s: %v\n%s", p.path, command, err, log.String())
	}
	return log.String()
}
