package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql" // the driver of the database below

	"github.com/perigeedb/perigee/internal/testserver"
)

// List and Database are what the email example reads from and writes to.
const (
	List     = "pepi_queue"
	Database = "mail"
	Table    = "events"
)

// Servers are a private Redis and a private MariaDB with an empty database, and
// what an engine needs to be told of them.
type Servers struct {
	Redis   *testserver.RedisServer
	MariaDB *testserver.MariaDBServer
	DB      *sql.DB // of Database
	Data    string  // the engine's data folder
	HTTP    string  // where the engine listens
}

// StartServers starts both in folders below folder.
func StartServers(ctx context.Context, folder string, redisFlags, mariadbFlags []string) (*Servers, error) {
	s := &Servers{Data: filepath.Join(folder, "perigee-data")}
	var err error
	if s.HTTP, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.Redis, err = testserver.StartRedis(ctx, filepath.Join(folder, "redis"), redisFlags...); err != nil {
		return nil, err
	}
	if s.MariaDB, err = testserver.StartMariaDB(ctx, filepath.Join(folder, "mariadb"), mariadbFlags...); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.createDatabase(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Servers) createDatabase(ctx context.Context) error {
	server, err := sql.Open("mysql", s.MariaDB.DSN(""))
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+Database); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	s.DB, err = sql.Open("mysql", s.MariaDB.DSN(Database))
	return err
}

// Env are the variables that the email example asks for.
func (s *Servers) Env() []string {
	return []string{
		"REDIS=" + s.Redis.Address(), "MYSQL=" + s.MariaDB.Address(), "MYSQL_USER=root", "MYSQL_PASSWORD=",
		"MYSQL_DATABASE=" + Database, "DATA=" + s.Data, "HTTP=" + s.HTTP,
	}
}

// Close stops the servers.
func (s *Servers) Close() {
	if s.DB != nil {
		s.DB.Close()
	}
	if s.MariaDB != nil {
		s.MariaDB.Stop()
	}
	if s.Redis != nil {
		s.Redis.Stop()
	}
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
