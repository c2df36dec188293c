package main

import (
	"context"

	"github.com/perigeedb/perigee/engine/eventsql"
)

type queryCommand struct {
	SQL string `arg:"" name:"sql" help:"One statement that reads, such as SELECT."`
	dataFlags
	Format string `enum:"table,json,ndjson,csv" default:"table" help:"table, json, ndjson or csv."`
}

func (queryCommand) Help() string {
	return `Queries the event store in the engine's data folder. If an engine runs there, it answers, and sees
every event that it has committed. The table dead_letters has what "perigee dlq list" shows.

Examples:
  perigee query 'SELECT event_name, count(*) FROM events GROUP BY 1'
  perigee query --config pipeline.yaml --format csv 'FROM events LIMIT 10' > events.csv
  perigee query 'SELECT stage, error, count(*) FROM dead_letters GROUP BY ALL ORDER BY 3 DESC'
  perigee query 'SHOW TABLES'`
}

func (q *queryCommand) Run(c *console) error {
	data, _, err := q.locate(c)
	if err != nil {
		return err
	}
	return eventsql.Query(context.Background(), data, q.SQL, q.Format, c.out)
}
