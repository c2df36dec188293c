package nats_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// serveHere is the process of a server: it says where it listens and ends with
// its standard input.
func serveHere() {
	var given settings
	if err := json.Unmarshal([]byte(os.Getenv("NATS_SERVE")), &given); err != nil {
		fmt.Println(err)
		return
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: given.Port, JetStream: given.JetStream, StoreDir: given.StoreDir,
		Username: given.Username, Password: given.Password, NoSigs: true, NoLog: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Start()
	if s.ReadyForConnections(10 * time.Second) {
		fmt.Println(s.ClientURL())
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
}

// settings are the options that tests differ in.
type settings struct {
	Port               int
	JetStream          bool
	StoreDir           string
	Username, Password string
}

type process struct {
	command *exec.Cmd
	stdin   io.Closer
	url     string
}

func start(t testing.TB, given settings) *process {
	t.Helper()
	text, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "NATS_SERVE="+string(text))
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	p := &process{c, stdin, strings.TrimSpace(line)}
	if !strings.HasPrefix(line, "nats://") {
		p.kill()
		t.Fatalf("the server does not come up: %s", line)
	}
	return p
}

func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

func (p *process) port(t testing.TB) int {
	t.Helper()
	u, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (p *process) connect(t testing.TB) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(p.url, nats.UserInfo("u", "p"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
