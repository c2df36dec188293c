// Command perigee-lake publishes tables of an event store as Iceberg tables. An engine runs it
// when there is something to publish: it reads a lake.Order from standard input and writes a
// lake.Report to standard output. It is a program of its own because the libraries that it
// needs take more memory and time to start than the engine.
//
// It keeps nothing between runs. Two runs at once, also of several machines, do not disturb
// each other: of two commits to one table, one fails and is tried again from what the table
// then has. When it returns without an error, the table has what the order wants.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/apache/iceberg-go/io/gocloud/s3" // s3:// in warehouses
	_ "github.com/jackc/pgx/v5/stdlib"             // postgres:// as catalog
	_ "modernc.org/sqlite"                         // sqlite: as catalog

	"github.com/perigeedb/perigee/eventstore/lake"
)

const usage = `usage: perigee-lake publish < order.json > report.json

An engine runs this program for tables with the key lake; see docs/architecture.md.
`

func main() {
	if len(os.Args) != 2 || os.Args[1] != "publish" {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "perigee-lake:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var order lake.Order
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	report := lake.Report{Tables: []lake.TableReport{}}
	for i := range order.Tables {
		report.Tables = append(report.Tables, publish(ctx, &order.Tables[i]))
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
