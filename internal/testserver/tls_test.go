package testserver

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// An endTB notes how a test that it stands for ends.
type endTB struct {
	*testing.T
	end string
}

func (e *endTB) Fatalf(string, ...any) { e.end = "failed"; runtime.Goexit() }
func (e *endTB) Skipf(string, ...any)  { e.end = "skipped"; runtime.Goexit() }

// TestServerWithoutTLS: a test that needs TLS is skipped without it, but not in CI with a server
// of the system's packages, and never for another error.
func TestServerWithoutTLS(t *testing.T) {
	built := filepath.Join(t.TempDir(), "redis-server")
	linked := filepath.Join(t.TempDir(), "redis-server")
	if err := os.Symlink("/usr/bin/env", linked); err != nil {
		t.Fatal(err)
	}
	noTLS, another := errors.New("'tls-port 1' Bad directive"), errors.New("'tls-port 1' is in use")
	for _, test := range []struct {
		ci, path string
		err      error
		want     string
	}{
		{"", "/usr/bin/redis-server", nil, "goes on"},
		{"true", "/usr/bin/redis-server", nil, "goes on"},
		{"", "/usr/bin/redis-server", noTLS, "skipped"},
		{"true", "/usr/bin/redis-server", noTLS, "failed"},
		{"true", "/usr/lib/postgresql/15/bin/no-such-postgres", noTLS, "failed"},
		{"true", linked, noTLS, "failed"},
		{"true", "/usr/local/bin/no-such-redis-server", noTLS, "skipped"},
		{"true", built, noTLS, "skipped"},
		{"", "/usr/bin/redis-server", another, "failed"},
		{"true", built, another, "failed"},
	} {
		t.Setenv("CI", test.ci)
		e := &endTB{T: t, end: "goes on"}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			failOrSkip(e, test.err, test.path, "'tls-port", "Bad directive")
		}()
		if <-ended; e.end != test.want {
			t.Errorf("with CI=%s, %s that ends with %v: the test %s; want %s", test.ci, test.path, test.err, e.end, test.want)
		}
	}
}
