package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/perigeedb/perigee/bench/article"
)

// runContestant runs this program as one of the contestants that are written in Go.
func runContestant(name string, args []string) error {
	switch name {
	case "article":
		return runArticle(args[0], args[1])
	case "load":
		connections, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return loadData(args[0], args[1], connections)
	}
	return fmt.Errorf("unknown contestant %q", name)
}

// runArticle runs the article's flow.
func runArticle(redisAddress, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	client := redis.NewClient(&redis.Options{Addr: redisAddress})
	defer client.Close()
	_, err = article.Drain(context.Background(), client, list, db, article.Table{Name: table, Columns: columns})
	return err
}

// loadRows is how many rows one LOAD DATA, and its transaction, has.
const loadRows = 4000

// loadData loads the rows of a file over several connections. It reads and splits the file
// before the turn is timed.
func loadData(dsn, path string, connections int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	pieces := splitLines(text, loadRows)
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var next atomic.Int64
	var group errgroup.Group
	for i := range connections {
		group.Go(func() error { return loadPieces(db, fmt.Sprint("piece", i), pieces, &next) })
	}
	return group.Wait()
}

func loadPieces(db *sql.DB, name string, pieces [][]byte, next *atomic.Int64) error {
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	var piece bytes.Reader
	mysql.RegisterReaderHandler(name, func() io.Reader { return &piece })
	defer mysql.DeregisterReaderHandler(name)
	statement := fmt.Sprintf("LOAD DATA LOCAL INFILE 'Reader::%s' INTO TABLE %s CHARACTER SET utf8mb4 (%s)", name, table, strings.Join(columns, ", "))
	for {
		n := int(next.Add(1)) - 1
		if n >= len(pieces) {
			return nil
		}
		piece.Reset(pieces[n])
		if _, err := conn.ExecContext(context.Background(), statement); err != nil {
			return err
		}
	}
}

// splitLines splits text into pieces of n lines.
func splitLines(text []byte, n int) (pieces [][]byte) {
	for lines, from, at := 0, 0, 0; at < len(text); {
		at += bytes.IndexByte(text[at:], '\n') + 1
		if lines++; lines%n == 0 || at == len(text) {
			pieces = append(pieces, text[from:at])
			from = at
		}
	}
	return pieces
}
