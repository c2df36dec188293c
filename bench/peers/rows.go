package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of MariaDB
)

const table = "events"

const createTable = `CREATE TABLE ` + table + ` (
	pk BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	id BIGINT NOT NULL, event_name VARCHAR(16) NOT NULL, email VARCHAR(120) NOT NULL, domain VARCHAR(80) NOT NULL,
	topic VARCHAR(40) NOT NULL, campaign_number INT NOT NULL, time DATETIME(6) NOT NULL, url VARCHAR(200) NOT NULL,
	KEY campaign (campaign_number, time)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

// columns are the columns of the table, without its counter.
var columns = []string{"id", "event_name", "email", "domain", "topic", "campaign_number", "time", "url"}

// openDB opens a pool of connections whose statements are one round trip: the driver puts the values
// into the statement.
func openDB(dsn string, connections int) (*sql.DB, error) {
	if strings.Contains(dsn, "?") {
		dsn += "&interpolateParams=true"
	} else {
		dsn += "?interpolateParams=true"
	}
	db, err := sql.Open("mysql", dsn)
	if err == nil {
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
	}
	return db, err
}

// insert inserts rows, whose values follow each other, in one statement.
func insert(ctx context.Context, db *sql.DB, values []any) error {
	n := len(values) / len(columns)
	if n == 0 {
		return nil
	}
	row := "(?" + strings.Repeat(",?", len(columns)-1) + ")"
	statement := "INSERT INTO " + table + " (" + strings.Join(columns, ",") + ") VALUES " + row + strings.Repeat(","+row, n-1)
	_, err := db.ExecContext(ctx, statement, values...)
	return err
}

// parseTime returns what MariaDB takes for a time of an event.
func parseTime(text string) (string, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return "", fmt.Errorf("time of an event: %w", err)
	}
	return t.UTC().Format("2006-01-02 15:04:05.000000"), nil
}
