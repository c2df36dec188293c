package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// An email has the fields of an event that the worker uses.
type email struct {
	ID       int64  `json:"id"`
	Name     string `json:"event_name"`
	Email    string `json:"email"`
	Campaign string `json:"campaign"`
	Time     string `json:"time"`
	URL      string `json:"url"`
}

// runWorker drains a list as a careful engineer would without exactly-once delivery: it reads batches
// without removing them, inserts as many at a time as ours has lanes, and then removes them together. A
// crash loses nothing, and inserts again what was inserted and not removed.
func runWorker(ctx context.Context, redisAddress, dsn string) error {
	db, err := openDB(dsn, lanes)
	if err != nil {
		return err
	}
	defer db.Close()
	client := redis.NewClient(&redis.Options{Addr: redisAddress})
	defer client.Close()
	const chunk = lanes * batchEvents
	read := func(first int64) ([]string, error) { return client.LRange(ctx, list, first, first+chunk-1).Result() }
	all, err := read(0)
	for len(all) > 0 && err == nil {
		var group errgroup.Group
		var next []string
		group.Go(func() (err error) { next, err = read(int64(len(all))); return err })
		for batch := range slices.Chunk(all, batchEvents) {
			group.Go(func() error {
				values, err := transform(batch)
				if err != nil {
					return err
				}
				return insert(ctx, db, values)
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		err = client.LTrim(ctx, list, int64(len(all)), -1).Err()
		all = next
	}
	return err
}

// transform does what the email example's script does, for the columns of the table.
func transform(batch []string) ([]any, error) {
	values := make([]any, 0, len(batch)*len(columns))
	for _, doc := range batch {
		var e email
		if err := json.Unmarshal([]byte(doc), &e); err != nil {
			return nil, fmt.Errorf("decode %q: %w", doc, err)
		}
		_, domain, valid := strings.Cut(e.Email, "@")
		if e.Name == "spam" || !valid {
			continue
		}
		dash := strings.LastIndexByte(e.Campaign, '-')
		number, err := strconv.Atoi(e.Campaign[dash+1:])
		if err != nil {
			return nil, err
		}
		at, err := parseTime(e.Time)
		if err != nil {
			return nil, err
		}
		values = append(values, e.ID, e.Name, e.Email, domain, e.Campaign[:dash], number, at, e.URL)
	}
	return values, nil
}
