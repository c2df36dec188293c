// Package article is our own version of the flow that a 2018 write-up on email
// events describes: a Lua script in Redis takes a hundred events at a time,
// goroutines make an INSERT of each hundred, and one writer executes them.
//
// It is the incumbent of our figures, and it is lossy on purpose, as the
// original: what was taken and not yet inserted is gone when the process dies.
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
	batch      = 100 // as published
)

// take is the published script: the first n events of a list, removed.
var take = redis.NewScript(`
local taken = redis.call('lrange', KEYS[1], 0, ARGV[1] - 1)
redis.call('ltrim', KEYS[1], ARGV[1], -1)
return taken`)

// event is what the flow reads of an event.
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

// class is what the email example's script knows of the kinds of events.
var class = map[string]string{"sent": "delivery", "bounce": "delivery", "open": "engagement", "click": "engagement"}

// All are the columns that the flow can fill.
var All = []string{"id", "event_name", "email", "domain", "class", "topic", "campaign_number", "time", "ip", "device", "retried", "url"}

// A Table is where the events go.
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
		takers.Go(func() { taken[i], faults[i] = takeAll(ctx, client, list, table, inserts) })
	}
	var writer sync.WaitGroup
	writer.Go(func() { faults[goroutines] = write(ctx, db, inserts) })
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

// takeAll takes batches until there are none, and sends an INSERT for each.
func takeAll(ctx context.Context, client *redis.Client, list string, table Table, inserts chan<- string) (int, error) {
	total, head, row := 0, table.head(), table.row()
	for {
		records, err := take.Run(ctx, client, []string{list}, batch).StringSlice()
		if err != nil {
			return total, fmt.Errorf("take from %s: %w", list, err)
		}
		if len(records) == 0 {
			return total, nil
		}
		insert, err := insertOf(head, row, records)
		if err != nil {
			return total, err
		}
		if insert != "" {
			inserts <- insert
		}
		total += len(records)
	}
}

// verbs are how the columns are written, by their place in All.
var verbs = []string{"%[1]d", "'%[2]s'", "'%[3]s'", "'%[4]s'", "'%[5]s'", "'%[6]s'", "'%[7]s'", "'%[8]s'", "'%[9]s'", "'%[10]s'", "%[11]t", "'%[12]s'"}

func (t Table) head() string {
	return "INSERT INTO " + t.Name + " (" + strings.Join(t.Columns, ", ") + ") VALUES "
}

// row is the format of one row.
func (t Table) row() string {
	written := make([]string, len(t.Columns))
	for i, column := range t.Columns {
		written[i] = verbs[slices.Index(All, column)]
	}
	return "(" + strings.Join(written, ",") + ")"
}

// insertOf processes records as the email example's script does, and makes one
// statement of them; it is empty when none is left.
func insertOf(head, row string, records []string) (string, error) {
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

// write executes the inserts one after the other, as the single writer of the original.
func write(ctx context.Context, db *sql.DB, inserts <-chan string) error {
	var failed error
	for q := range inserts {
		if failed != nil {
			continue // the takers must not block
		}
		if _, err := db.ExecContext(ctx, q); err != nil {
			failed = fmt.Errorf("insert: %w", err)
		}
	}
	return failed
}
