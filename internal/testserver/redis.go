package testserver

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A RedisServer is a private Redis.
type RedisServer struct{ server }

// StartRedis starts a Redis with its data in dir. It does not persist anything unless
// flags turn that on, such as "--appendonly", "yes".
func StartRedis(ctx context.Context, dir string, flags ...string) (*RedisServer, error) {
	path, err := FindBinary("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	if dir, err = makeFolder(dir); err != nil {
		return nil, err
	}
	r := &RedisServer{server{name: "redis-server", path: path, dir: dir}}
	r.ready = r.ping
	r.command = func(port int) []string {
		fixed := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no"}
		return append(fixed, flags...)
	}
	return r, r.startFirst(ctx)
}

// SnapshotPath returns the file that SAVE writes, which a Redis without an append-only file
// loads at its start.
func (r *RedisServer) SnapshotPath() string { return filepath.Join(r.dir, "dump.rdb") }

// ping succeeds once Redis has loaded its data.
func (r *RedisServer) ping(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", r.Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	// A Redis with a password answers NOAUTH.
	if answer != "+PONG\r\n" && !strings.HasPrefix(answer, "-NOAUTH") {
		return fmt.Errorf("unexpected reply %q to PING", answer)
	}
	return nil
}

// makeFolder creates dir and returns its absolute path.
func makeFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o700)
}
