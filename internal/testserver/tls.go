package testserver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A SkippingTB can skip a test: not every build of a server has TLS.
type SkippingTB interface {
	TB
	Skipf(format string, args ...any)
}

// RedisWithTLS starts a Redis that takes TLS alone at encrypted, with the certificate in the
// file cert, beside plain connections at its own address. It skips the test if this build of
// Redis has no TLS.
func RedisWithTLS(t SkippingTB, flags ...string) (r *RedisServer, encrypted, cert string) {
	t.Helper()
	cert, key := WriteCertificate(t, tempDir(t, "certificate"))
	port, err := freePort()
	if err != nil {
		t.Fatalf("a port for TLS: %v", err)
	}
	r, err = StartRedis(context.Background(), tempDir(t, "redis"), append(flags, "--tls-port", strconv.Itoa(port),
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")...)
	path, _ := FindBinary("redis-server", "redis-server")
	failOrSkip(t, err, path, "'tls-port", "Bad directive")
	t.Cleanup(func() { killAtCleanup(t, r) })
	return r, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), cert
}

// PostgreSQLWithTLS starts a PostgreSQL that takes plain connections and TLS, with the
// certificate in the file cert. It skips the test if this build of PostgreSQL has no TLS.
func PostgreSQLWithTLS(t SkippingTB, flags ...string) (p *PostgreSQLServer, cert string) {
	t.Helper()
	folder := tempDir(t, "certificate")
	cert, key := WriteCertificate(t, folder)
	as, err := postgresAccount(folder)
	if as != nil { // the server rejects a key that others may read
		err = errors.Join(err, os.Chown(cert, as.uid, as.gid), os.Chown(key, as.uid, as.gid))
	}
	if err != nil {
		t.Fatalf("give the certificate to PostgreSQL: %v", err)
	}
	p, err = StartPostgreSQL(context.Background(), tempDir(t, "postgres"),
		append(flags, "-c", "ssl=on", "-c", "ssl_cert_file="+cert, "-c", "ssl_key_file="+key)...)
	path, _ := findPostgreSQL("postgres")
	failOrSkip(t, err, path, "SSL is not supported by this build")
	t.Cleanup(func() { killAtCleanup(t, p) })
	return p, cert
}

// failOrSkip ends the test if the server at path did not start: it skips it if the error has all
// words that a build without TLS uses. In CI a test is skipped for a build that somebody made
// alone: the server of Debian has TLS.
func failOrSkip(t SkippingTB, err error, path string, words ...string) {
	t.Helper()
	if err == nil {
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("a server with TLS for the test: %v", err)
		}
	}
	if os.Getenv("CI") == "true" && isPackaged(path) {
		t.Fatalf("%s has no TLS, which CI needs: %v", path, err)
	}
	t.Skipf("this build of the server has no TLS: %v", err)
}

// isPackaged reports whether a binary is where packages of the system put theirs.
func isPackaged(path string) bool {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return strings.HasPrefix(path, "/usr/") && !strings.HasPrefix(path, "/usr/local/")
}
