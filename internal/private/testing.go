package private

import (
	"context"
	"os"
	"sync"
)

// T is the part of testing.TB that is used here, so that programs that start
// servers need not be linked with the testing package.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Redis starts a Redis that is gone when the test ends; flags are as for StartRedis.
func Redis(t T, flags ...string) *RedisServer {
	t.Helper()
	r, err := StartRedis(context.Background(), tempDir(t, "redis"), flags...)
	if err != nil {
		t.Fatalf("a Redis for the test: %v", err)
	}
	t.Cleanup(func() { gone(t, &r.server) })
	return r
}

// MariaDB starts a MariaDB that is gone when the test ends; flags are as for
// StartMariaDB. It takes the better part of a second: see SharedMariaDB.
func MariaDB(t T, flags ...string) *MariaDBServer {
	t.Helper()
	m, err := StartMariaDB(context.Background(), tempDir(t, "mariadb"), flags...)
	if err != nil {
		t.Fatalf("a MariaDB for the test: %v", err)
	}
	t.Cleanup(func() { gone(t, &m.server) })
	return m
}

// Database makes a fresh database, which is dropped when the test ends, and
// returns its name.
func (m *MariaDBServer) Database(t T) string {
	t.Helper()
	name, err := m.CreateDatabase(context.Background())
	if err != nil {
		t.Fatalf("a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := m.DropDatabase(context.Background(), name); err != nil && m.running() {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return name
}

// SharedMariaDB is one MariaDB for all the tests of a package, started when the
// first of them asks. TestMain closes it:
//
//	var maria private.SharedMariaDB
//
//	func TestMain(m *testing.M) {
//		code := m.Run()
//		maria.Close()
//		os.Exit(code)
//	}
type SharedMariaDB struct {
	Flags []string // as for StartMariaDB

	once   sync.Once
	dir    string
	server *MariaDBServer
	err    error
}

// Server returns the server, for t to make databases in. No test may stop it.
func (s *SharedMariaDB) Server(t T) *MariaDBServer {
	t.Helper()
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "perigee-mariadb-"); s.err == nil {
			s.server, s.err = StartMariaDB(context.Background(), s.dir, s.Flags...)
		}
	})
	if s.err != nil {
		t.Fatalf("a MariaDB for the tests: %v", s.err)
	}
	return s.server
}

// Close ends the server and removes its data.
func (s *SharedMariaDB) Close() {
	if s.server != nil {
		_ = s.server.Kill()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// tempDir is a folder with a short path, unlike a test's own.
func tempDir(t T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "perigee-"+name+"-")
	if err != nil {
		t.Fatalf("a folder for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's folder: %v", err)
		}
	})
	return dir
}

func gone(t T, s *server) {
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Errorf("end of the test: %v", err)
	}
}
