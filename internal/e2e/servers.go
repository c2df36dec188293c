package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"path/filepath"

	_ "github.com/go-sql-driver/mysql" // the driver of Servers.DB

	"github.com/perigeedb/perigee/internal/testserver"
)

// The list that the email example reads, and the database and table that it writes.
const (
	List     = "pepi_queue"
	Database = "mail"
	Table    = "events"
)

// Servers holds a private Redis and a private MariaDB with an empty database, for an
// engine that runs the email example.
type Servers struct {
	Redis   *testserver.RedisServer
	MariaDB *testserver.MariaDBServer
	DB      *sql.DB // open on Database
	Data    string  // data folder of the engine
	HTTP    string  // address for the engine to listen on
}

// StartServers starts both servers with their data below folder.
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

// Env returns the environment variables that the email example's configuration uses.
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
