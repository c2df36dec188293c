package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// An S3Server is a private S3 service with an Iceberg REST catalog: a SeaweedFS with one volume
// server.
type S3Server struct {
	server
	ports [8]int // of its other parts
}

// The keys of an S3Server.
const (
	S3AccessKey = "perigee"
	S3SecretKey = "perigee-secret"
)

// StartS3 starts an S3 service with its data in dir. PERIGEE_SEAWEEDFS in the environment names the
// command weed; "tools/setup.sh seaweedfs" downloads it.
func StartS3(ctx context.Context, dir string) (*S3Server, error) {
	weed := os.Getenv("PERIGEE_SEAWEEDFS")
	if weed == "" {
		return nil, fmt.Errorf("no S3 service: run tools/setup.sh seaweedfs and set PERIGEE_SEAWEEDFS to the command weed")
	}
	dir, err := makeFolder(dir)
	if err != nil {
		return nil, err
	}
	s := &S3Server{server: server{name: "weed", path: weed, dir: dir}}
	for i := range s.ports {
		if s.ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	keys := filepath.Join(dir, "s3.json")
	text := fmt.Sprintf(`{"identities": [{"name": "perigee", "credentials": [{"accessKey": %q, "secretKey": %q}], "actions": ["Admin", "Read", "Write", "List"]}]}`, S3AccessKey, S3SecretKey)
	if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s.ready = s.ping
	s.command = func(port int) []string {
		flag := func(name string, port int) string { return "-" + name + "=" + strconv.Itoa(port) }
		return []string{
			"server", "-dir=" + dir, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-s3.config=" + keys, flag("s3.port", port),
			flag("master.port", s.ports[0]), flag("master.port.grpc", s.ports[1]), flag("volume.port", s.ports[2]), flag("volume.port.grpc", s.ports[3]),
			flag("filer.port", s.ports[4]), flag("filer.port.grpc", s.ports[5]), flag("s3.port.iceberg", s.ports[6]), flag("s3.port.grpc", s.ports[7]), "-s3.port.lance=0", "-master.volumeSizeLimitMB=64", "-volume.max=50",
		}
	}
	return s, s.startFirst(ctx)
}

// Endpoint returns the URL of the service.
func (s *S3Server) Endpoint() string { return "http://" + s.Address() }

// Catalog returns the URL of the Iceberg REST catalog, which knows the buckets of
// CreateTableBucket. Its credential has the form S3AccessKey:S3SecretKey.
func (s *S3Server) Catalog() string { return fmt.Sprintf("http://127.0.0.1:%d", s.ports[6]) }

// CreateTableBucket creates a bucket for the tables of the Iceberg REST catalog.
func (s *S3Server) CreateTableBucket(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // the shell waits for ever if the service has ended
	defer cancel()
	for {
		shell := exec.CommandContext(ctx, s.path, "shell", fmt.Sprintf("-master=127.0.0.1:%d.%d", s.ports[0], s.ports[1]), fmt.Sprintf("-filer=127.0.0.1:%d.%d", s.ports[4], s.ports[5]))
		shell.Stdin = strings.NewReader("s3tables.bucket -create -account admin -name " + name + "\n")
		out, err := shell.CombinedOutput()
		if strings.Contains(string(out), "ARN: ") {
			return nil
		}
		select { // the filer starts after the service
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("create the table bucket %s: %w: %s", name, errors.Join(err, ctx.Err()), out)
		}
	}
}

// ping succeeds once the service accepts connections.
func (s *S3Server) ping(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Address())
	if err != nil {
		return err
	}
	return conn.Close()
}
