package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A NATSServer is a private NATS with JetStream.
type NATSServer struct{ server }

// StartNATS starts a NATS with its data in dir. PERIGEE_NATS in the environment names the
// folder with nats-server; "tools/setup.sh nats" builds it.
func StartNATS(ctx context.Context, dir string) (*NATSServer, error) {
	binaries := os.Getenv("PERIGEE_NATS")
	if binaries == "" {
		return nil, fmt.Errorf("no NATS: run tools/setup.sh nats and set PERIGEE_NATS to .build/nats")
	}
	dir, err := makeFolder(dir)
	if err != nil {
		return nil, err
	}
	n := &NATSServer{server{name: "nats-server", path: filepath.Join(binaries, "nats-server"), dir: dir}}
	n.ready = n.ping
	n.command = func(port int) []string {
		return []string{"--addr", "127.0.0.1", "--port", strconv.Itoa(port), "--jetstream", "--store_dir", dir}
	}
	return n, n.startFirst(ctx)
}

// ping succeeds once the server greets a client.
func (n *NATSServer) ping(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", n.Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	greeting := make([]byte, 4)
	if _, err := conn.Read(greeting); err != nil {
		return err
	}
	if !strings.HasPrefix(string(greeting), "INFO") {
		return fmt.Errorf("unexpected greeting %q", greeting)
	}
	return nil
}
