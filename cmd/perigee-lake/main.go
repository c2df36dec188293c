// Command perigee-lake publishes tables of an event store as Iceberg tables. An engine runs it
// when there is something to publish: it reads a lake.Order from standard input and writes a
// lake.Report to standard output. It is a program of its own because the libraries that it
// needs take more memory and time to start than the engine.
//
// It keeps nothing between runs. Concurrent runs, even on several machines, are safe: if two commit
// to one table, one commit fails and its run retries from the new state. When it returns without an
// error, the table has what the order wants.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	_ "github.com/apache/iceberg-go/io/gocloud/s3" // s3:// in warehouses
	_ "github.com/jackc/pgx/v5/stdlib"             // postgres:// as catalog
	_ "modernc.org/sqlite"                         // sqlite: as catalog

	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/release"
)

const usage = `usage: perigee-lake publish < order.json > report.json
       perigee-lake --version

An engine runs this program for tables with the key lake. It must have the version of the engine.
`

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "publish":
	case len(os.Args) == 2 && slices.Contains([]string{"version", "--version", "-v"}, os.Args[1]):
		fmt.Printf("perigee-lake %s\n%s %s/%s\n", release.Build(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(lake.ErrEnded)
	}()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "perigee-lake:", err)
		if errors.Is(err, errVersion) {
			os.Exit(lake.ExitVersion)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	order, err := readOrder(os.Stdin)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(publishAll(ctx, order, defaultLimits))
}

var errVersion = errors.New("the versions differ")

// readOrder reads an order of this version.
func readOrder(r io.Reader) (*lake.Order, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the order: %w", err)
	}
	var of struct{ Version string } // first, because another version has other fields
	if err := json.Unmarshal(text, &of); err != nil {
		return nil, fmt.Errorf("read the order: %w", err)
	}
	if of.Version != release.Version {
		return nil, fmt.Errorf("%w: this is perigee-lake %s, and the engine is perigee %s", errVersion, release.Version, cmp.Or(of.Version, "of an unknown version"))
	}
	order := new(lake.Order)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(order); err != nil {
		return nil, fmt.Errorf("read the order: %w", err)
	}
	return order, nil
}
