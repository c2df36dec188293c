package testserver

import (
	"context"
	"os"
	"sync"
)

// TB is the part of testing.TB that this package needs, so that programs that start servers
// do not link the testing package.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Redis starts a Redis for the duration of a test; flags are as for StartRedis.
func Redis(t TB, flags ...string) *RedisServer {
	t.Helper()
	r, err := StartRedis(context.Background(), tempDir(t, "redis"), flags...)
	if err != nil {
		t.Fatalf("a Redis for the test: %v", err)
	}
	t.Cleanup(func() { killAtCleanup(t, r) })
	return r
}

// MariaDB starts a MariaDB for the duration of a test; flags are as for StartMariaDB. It
// takes most of a second: see SharedMariaDB.
func MariaDB(t TB, flags ...string) *MariaDBServer {
	t.Helper()
	m, err := StartMariaDB(context.Background(), tempDir(t, "mariadb"), flags...)
	if err != nil {
		t.Fatalf("a MariaDB for the test: %v", err)
	}
	t.Cleanup(func() { killAtCleanup(t, m) })
	return m
}

// PostgreSQL starts a PostgreSQL for the duration of a test; flags are as for
// StartPostgreSQL. It takes most of a second: see SharedPostgreSQL.
func PostgreSQL(t TB, flags ...string) *PostgreSQLServer {
	t.Helper()
	p, err := StartPostgreSQL(context.Background(), tempDir(t, "postgres"), flags...)
	if err != nil {
		t.Fatalf("a PostgreSQL for the test: %v", err)
	}
	t.Cleanup(func() { killAtCleanup(t, p) })
	return p
}

// Kafka starts a Kafka for the duration of a test. It takes seconds: see SharedKafka.
func Kafka(t TB) *KafkaServer {
	t.Helper()
	k, err := StartKafka(context.Background(), tempDir(t, "kafka"))
	if err != nil {
		t.Fatalf("a Kafka for the test: %v", err)
	}
	t.Cleanup(func() { killAtCleanup(t, k) })
	return k
}

// NATS starts a NATS for the duration of a test.
func NATS(t TB) *NATSServer {
	t.Helper()
	n, err := StartNATS(context.Background(), tempDir(t, "nats"))
	if err != nil {
		t.Fatalf("a NATS for the test: %v", err)
	}
	t.Cleanup(func() { killAtCleanup(t, n) })
	return n
}

// Database creates a database for the duration of a test and returns its name.
func (m *MariaDBServer) Database(t TB) string {
	t.Helper()
	return createTestDatabase(t, m)
}

// Database creates a database for the duration of a test and returns its name.
func (p *PostgreSQLServer) Database(t TB) string {
	t.Helper()
	return createTestDatabase(t, p)
}

// A databaseServer is a server that holds databases.
type databaseServer interface {
	CreateDatabase(ctx context.Context) (string, error)
	DropDatabase(ctx context.Context, name string) error
	running() bool
}

func createTestDatabase(t TB, s databaseServer) string {
	t.Helper()
	name, err := s.CreateDatabase(context.Background())
	if err != nil {
		t.Fatalf("a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := s.DropDatabase(context.Background(), name); err != nil && s.running() {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return name
}

// SharedMariaDB is one MariaDB for all tests of a package. The first call of Server starts
// it, and TestMain closes it:
//
//	var maria testserver.SharedMariaDB
//
//	func TestMain(m *testing.M) {
//		code := m.Run()
//		maria.Close()
//		os.Exit(code)
//	}
type SharedMariaDB struct {
	Flags []string // as for StartMariaDB
	sharedServer[*MariaDBServer]
}

// Server returns the running server. Tests must not stop it.
func (s *SharedMariaDB) Server(t TB) *MariaDBServer {
	t.Helper()
	return s.get(t, StartMariaDB, s.Flags)
}

// SharedPostgreSQL is one PostgreSQL for all tests of a package; see SharedMariaDB.
type SharedPostgreSQL struct {
	Flags []string // as for StartPostgreSQL
	sharedServer[*PostgreSQLServer]
}

// Server returns the running server. Tests must not stop it.
func (s *SharedPostgreSQL) Server(t TB) *PostgreSQLServer {
	t.Helper()
	return s.get(t, StartPostgreSQL, s.Flags)
}

// sharedServer is one server, started on first use.
type sharedServer[S interface{ Kill() error }] struct {
	once   sync.Once
	dir    string
	server S
	err    error
}

func (s *sharedServer[S]) get(t TB, start func(ctx context.Context, dir string, flags ...string) (S, error), flags []string) S {
	t.Helper()
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "perigee-shared-"); s.err == nil {
			s.server, s.err = start(context.Background(), s.dir, flags...)
		}
	})
	if s.err != nil {
		t.Fatalf("a server for the tests: %v", s.err)
	}
	return s.server
}

// Close kills the server and removes its data.
func (s *sharedServer[S]) Close() {
	if s.dir == "" {
		return
	}
	if s.err == nil {
		_ = s.server.Kill()
	}
	_ = os.RemoveAll(s.dir)
}

// tempDir creates a folder with a short path, unlike TB.TempDir.
func tempDir(t TB, name string) string {
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

func killAtCleanup(t TB, s interface{ Kill() error }) {
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Errorf("kill the test's server: %v", err)
	}
}

// SharedKafka is one Kafka for all tests of a package; see SharedMariaDB. It takes seconds
// to start.
type SharedKafka struct {
	Flags []string // as for StartKafka
	sharedServer[*KafkaServer]
}

// Server returns the running server. Tests must not stop it.
func (s *SharedKafka) Server(t TB) *KafkaServer {
	t.Helper()
	return s.get(t, StartKafka, s.Flags)
}
