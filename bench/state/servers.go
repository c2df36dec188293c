package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/go-sql-driver/mysql" // the driver of MariaDB
	"github.com/redis/go-redis/v9"

	"github.com/perigeedb/perigee/internal/testserver"
)

// servers are a Redis and a MariaDB. A database of Redis is the archive of all events, and a turn gets a
// copy in another one.
type servers struct {
	redis     *testserver.RedisServer
	maria     *testserver.MariaDBServer
	db        *sql.DB
	archive   *redis.Client
	few, many *redis.Client   // of the turns with few and with many users
	lists     map[string]bool // in the archive
}

func startServers(ctx context.Context, folder string) (s *servers, err error) {
	s = &servers{lists: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.redis, err = testserver.StartRedis(ctx, filepath.Join(folder, "redis")); err != nil {
		return s, err
	}
	for i, client := range []**redis.Client{&s.few, &s.many, &s.archive} {
		*client = redis.NewClient(&redis.Options{Addr: s.redis.Address(), DB: i})
	}
	if s.maria, err = testserver.StartMariaDB(ctx, filepath.Join(folder, "mariadb")); err != nil {
		return s, err
	}
	s.db, err = sql.Open("mysql", s.maria.DSN(""))
	return s, err
}

func (s *servers) stop() (err error) {
	for _, c := range []*redis.Client{s.few, s.many, s.archive} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	if s.maria != nil {
		err = errors.Join(err, s.maria.Stop())
	}
	if s.redis != nil {
		err = errors.Join(err, s.redis.Stop())
	}
	return err
}

// A load is the events of a turn.
type load struct {
	events, users, lists int
}

func (l load) name(list int) string {
	return fmt.Sprintf("events-%d-%d-%d-%d", l.events, l.users, l.lists, list)
}

// fill copies the events to the lists events0, events1 and so on. The events of a user are all in one.
func (s *servers) fill(ctx context.Context, to *redis.Client, l load) error {
	if err := s.archiveEvents(ctx, l); err != nil {
		return err
	}
	for i := range l.lists {
		if err := s.archive.Copy(ctx, l.name(i), listName(i), to.Options().DB, true).Err(); err != nil {
			return fmt.Errorf("fill a list: %w", err)
		}
	}
	return nil
}

func listName(i int) string { return fmt.Sprintf("events%d", i) }

func (s *servers) archiveEvents(ctx context.Context, l load) error {
	if s.lists[l.name(0)] {
		return nil
	}
	random := rand.New(rand.NewPCG(1, 2))
	for first := 0; first < l.events; first += 1000 {
		docs := make([][]any, l.lists)
		for i := first; i < min(first+1000, l.events); i++ {
			user := random.IntN(l.users)
			docs[user%l.lists] = append(docs[user%l.lists], fmt.Sprintf(
				`{"id":%d,"user":"`+userFormat+`","event_name":"%s","time":"2026-11-22T10:%02d:%02dZ","campaign":%d,"url":"https://example.com/a/page/%d"}`,
				i, user, []string{"open", "click", "send"}[i%3], i/60%60, i%60, i%100, i%1000))
		}
		pipe := s.archive.Pipeline()
		for list := range docs {
			if len(docs[list]) > 0 {
				pipe.RPush(ctx, l.name(list), docs[list]...)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("make events: %w", err)
		}
	}
	s.lists[l.name(0)] = true
	return nil
}

const userFormat = "user-%09d@example.com"

// left returns how many events are in the lists.
func left(ctx context.Context, in *redis.Client, lists int) (left int64, err error) {
	for i := range lists {
		n, err := in.LLen(ctx, listName(i)).Result()
		if err != nil {
			return 0, err
		}
		left += n
	}
	return left, nil
}

// received returns how many bytes both servers have received.
func (s *servers) received(ctx context.Context) (bytes int64, err error) {
	var name string
	if err := s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Bytes_received'").Scan(&name, &bytes); err != nil {
		return 0, err
	}
	info, err := s.archive.Info(ctx, "stats").Result()
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(info, "total_net_input_bytes:")
	text, _, _ := strings.Cut(after, "\r")
	input, err := strconv.ParseInt(text, 10, 64)
	return bytes + input, err
}

const createTable = "CREATE TABLE %s.events (pk BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, id BIGINT NOT NULL, user VARCHAR(64) NOT NULL, " +
	"event_name VARCHAR(16) NOT NULL, time DATETIME(6) NOT NULL, n BIGINT NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"

const columns = "[{name: id, type: int64}, {name: user, type: string}, {name: event_name, type: string}, {name: time, type: timestamp}, {name: n, type: int64}]"

// createDatabase makes an empty database with an empty table.
func (s *servers) createDatabase(ctx context.Context, name string) error {
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name, fmt.Sprintf(createTable, name)} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// checkRows checks the number of rows, and with a state that no count of a user is there twice.
func (s *servers) checkRows(ctx context.Context, database string, want int, counted bool) error {
	var rows, counts int
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*), COUNT(DISTINCT user, n) FROM "+database+".events").Scan(&rows, &counts); err != nil {
		return err
	}
	if rows != want || counted && counts != want {
		return fmt.Errorf("got %d rows with %d different counts, want %d", rows, counts, want)
	}
	return nil
}
