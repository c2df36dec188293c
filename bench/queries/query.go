package main

import (
	"fmt"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/bench/stores"
)

// A query is a question in two dialects.
type query struct {
	name          string
	duck, questDB string
	// extra queries are beside the ten, and are no part of their mean.
	extra bool
}

// sql returns the query as a store takes it.
func (q query) sql(store string) string {
	if store == stores.QuestDB {
		return q.questDB
	}
	return q.duck
}

// Titles of the queries that figures name.
const (
	latestQuery = "latest 100 errors"
	rareQuery   = "an event that occurs once in a million"
)

const (
	days          = 10
	dayMicros     = 24 * 60 * 60 * 1_000_000
	allColumns    = "id, time, event, user_id, hash, country, url, value, status, meta"
	oneDay        = "time >= TIMESTAMP '2026-01-06 00:00:00' AND time < TIMESTAMP '2026-01-07 00:00:00'"
	lastMinutes   = "time >= TIMESTAMP '2026-01-10 23:45:00'"
	questOneDay   = "time IN '2026-01-06'"
	questMinutes  = "time >= '2026-01-10T23:45:00Z'"
	minuteByEvent = "SELECT date_trunc('minute', time) AS minute, event, count(*) FROM events WHERE "
)

// queries returns the queries over rows that span ten days from dataset.Start.
func queries(rows uint64) []query {
	hash := dataset.Hash(rows / 3 * 2)
	rare := "SELECT " + allColumns + " FROM events WHERE event = '" + dataset.Fatal + "'"
	point := fmt.Sprintf("SELECT %s FROM events WHERE hash = '%s'", allColumns, hash)
	latest := "SELECT " + allColumns + " FROM events WHERE event = '" + dataset.Error + "' ORDER BY time DESC LIMIT 100"
	like := "SELECT count(*) FROM events WHERE url LIKE '%/checkout/item-12%'"
	return []query{
		{name: "1 day, per minute and event, count and mean",
			duck:    "SELECT date_trunc('minute', time) AS minute, event, count(*), avg(value) FROM events WHERE " + oneDay + " GROUP BY ALL",
			questDB: "SELECT time, event, count(), avg(value) FROM events WHERE " + questOneDay + " SAMPLE BY 1m"},
		{name: "all, per hour and event",
			duck:    "SELECT date_trunc('hour', time) AS hour, event, count(*) FROM events GROUP BY ALL",
			questDB: "SELECT time, event, count() FROM events SAMPLE BY 1h"},
		{name: "last 15 minutes, per minute and event",
			duck:    minuteByEvent + lastMinutes + " GROUP BY ALL",
			questDB: "SELECT time, event, count() FROM events WHERE " + questMinutes + " SAMPLE BY 1m"},
		{name: "top 10 users",
			duck:    "SELECT user_id, count(*) AS n FROM events GROUP BY user_id ORDER BY n DESC, user_id LIMIT 10",
			questDB: "SELECT user_id, count() AS n FROM events ORDER BY n DESC, user_id LIMIT 10"},
		{name: latestQuery, duck: latest, questDB: latest},
		{name: "one hash", duck: point, questDB: point},
		{name: "distinct users per day",
			duck:    "SELECT time_bucket(INTERVAL '1 day', time) AS day, count(DISTINCT user_id) FROM events GROUP BY ALL",
			questDB: "SELECT time, count_distinct(user_id) FROM events SAMPLE BY 1d"},
		{name: "1 day, per field of a JSON column",
			duck:    "SELECT meta->>'device' AS device, count(*) FROM events WHERE " + oneDay + " GROUP BY ALL",
			questDB: "SELECT json_extract(meta, '$.device')::varchar AS device, count() FROM events WHERE " + questOneDay},
		{name: "1 day, p99 per event",
			duck:    "SELECT event, quantile_cont(value, 0.99) FROM events WHERE " + oneDay + " GROUP BY ALL",
			questDB: "SELECT event, approx_percentile(value, 0.99) FROM events WHERE " + questOneDay},
		{name: "LIKE on an address", duck: like, questDB: like},
		{name: rareQuery, duck: rare, questDB: rare, extra: true},
	}
}
