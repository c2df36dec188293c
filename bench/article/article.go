// Package article implements the flow of a 2018 write-up on email events: a Lua script in
// Redis removes a hundred events at a time, goroutines build an INSERT of each hundred,
// and one writer executes them.
//
// Benchmarks compare the engine with it. Like the original it loses events: those that
// were removed but not yet inserted when the process dies.
package article

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	goroutines = 10  // as published
	batchSize  = 100 // as published
)

// popScript is the published script: it removes and returns the first n events of a list.
var popScript = redis.NewScript(`
local taken = redis.call('lrange', KEYS[1], 0, ARGV[1] - 1)
redis.call('ltrim', KEYS[1], ARGV[1], -1)
return taken`)

// event holds the fields that the flow uses.
type event struct {
	ID       int64     `json:"id"`
	Name     string    `json:"event_name"`
	Email    string    `json:"email"`
	Campaign string    `json:"campaign"`
	Time     time.Time `json:"time"`
	IP       string    `json:"ip"`
	URL      string    `json:"url"`
	Meta     struct {
		Device  string `json:"device"`
		Attempt int    `json:"attempt"`
	} `json:"meta"`
}

// class classifies events as the email example's script does.
var class = map[string]string{"sent": "delivery", "bounce": "delivery", "open": "engagement", "click": "engagement"}

// AllColumns are the columns that the flow can fill.
var AllColumns = []string{"id", "event_name", "email", "domain", "class", "topic", "campaign_number", "time", "ip", "device", "retried", "url"}

// A Table is the table to insert into.
type Table struct {
	Name    string
	Columns []string // some of All
}

// Drain moves events from the list into the table until the list is empty, and
// returns how many it moved.
func Drain(ctx context.Context, client *redis.Client, list string, db *sql.DB, table Table) (int, error) {
	inserts := make(chan string)
	taken := make([]int, goroutines)
	faults := make([]error, goroutines+1)

	var takers sync.WaitGroup
	for i := range goroutines {
		takers.Go(func() { taken[i], faults[i] = popBatches(ctx, client, list, table, inserts) })
	}
	var writer sync.WaitGroup
	writer.Go(func() { faults[goroutines] = executeInserts(ctx, db, inserts) })
	takers.Wait()
	close(inserts)
	writer.Wait()

	total := 0
	for _, n := range taken {
		total += n
	}
	for _, err := range faults {
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// popBatches removes batches until the list is empty and sends an INSERT for each.
func popBatches(ctx context.Context, client *redis.Client, list string, table Table, inserts chan<- string) (int, error) {
	total, head, row := 0, table.insertHead(), table.rowFormat()
	for {
		records, err := popScript.Run(ctx, client, []string{list}, batchSize).StringSlice()
		if err != nil {
			return total, fmt.Errorf("take from %s: %w", list, err)
		}
		if len(records) == 0 {
			return total, nil
		}
		insert, err := buildInsert(head, row, records)
		if err != nil {
			return total, err
		}
		if insert != "" {
			inserts <- insert
		}
		total += len(records)
	}
}

// verbs are the formats of the columns, in the order of AllColumns.
var verbs = []string{"%[1]d", "'%[2]s'", "'%[3]s'", "'%[4]s'", "'%[5]s'", "'%[6]s'", "'%[7]s'", "'%[8]s'", "'%[9]s'", "'%[10]s'", "%[11]t", "'%[12]s'"}

func (t Table) insertHead() string {
	return "INSERT INTO " + t.Name + " (" + strings.Join(t.Columns, ", ") + ") VALUES "
}

// rowFormat returns the format of one row.
func (t Table) rowFormat() string {
	written := make([]string, len(t.Columns))
	for i, column := range t.Columns {
		written[i] = verbs[slices.Index(AllColumns, column)]
	}
	return "(" + strings.Join(written, ",") + ")"
}

// buildInsert processes records as the email example's script does and returns one INSERT
// of those that it keeps, or "" if it drops all.
func buildInsert(head, row string, records []string) (string, error) {
	var q strings.Builder
	for _, record := range records {
		var e event
		if err := json.Unmarshal([]byte(record), &e); err != nil {
			return "", fmt.Errorf("decode %q: %w", record, err)
		}
		_, domain, valid := strings.Cut(e.Email, "@")
		if e.Name == "spam" || !valid {
			continue
		}
		dash := strings.LastIndexByte(e.Campaign, '-')
		topic, number := e.Campaign[:dash], e.Campaign[dash+1:]
		if q.Len() == 0 {
			q.WriteString(head)
		} else {
			q.WriteByte(',')
		}
		fmt.Fprintf(&q, row, e.ID, escape(e.Name), escape(e.Email),
			escape(domain), class[e.Name], escape(topic), escape(number), e.Time.UTC().Format("2006-01-02 15:04:05.000000"),
			escape(e.IP), escape(e.Meta.Device), e.Meta.Attempt > 1, escape(e.URL))
	}
	return q.String(), nil
}

var escaper = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

func escape(s string) string { return escaper.Replace(s) }

// executeInserts executes the inserts one after another, as the original's single writer does.
func executeInserts(ctx context.Context, db *sql.DB, inserts <-chan string) error {
	var failed error
	for q := range inserts {
		if failed != nil {
			continue // receive all: the senders must not block
		}
		if _, err := db.ExecContext(ctx, q); err != nil {
			failed = fmt.Errorf("insert: %w", err)
		}
	}
	return failed
}
