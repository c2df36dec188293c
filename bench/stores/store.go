// Package stores opens the stores that the event store's benchmarks compare: Perigee's, DuckDB
// with a file of its own, Parquet files read by DuckDB, and QuestDB.
package stores

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/perigeedb/perigee/bench/dataset"
)

// Names of the stores.
const (
	Perigee     = "perigee"
	DuckDB      = "DuckDB"
	Parquet     = "Parquet"
	QuestDB     = "QuestDB"
	QuestDBSync = "QuestDB, sync"
	Raw         = "write and fdatasync"
)

// A Store is open in this process, or runs in a child of it.
type Store interface {
	// NewWriter returns a writer for one goroutine.
	NewWriter() (Writer, error)
	// Query reads the whole result.
	Query(ctx context.Context, sql string) (Result, error)
	// TimeLiteral returns a time, in microseconds since 1970, as SQL has it.
	TimeLiteral(us int64) string
	Close() error
}

// A Writer commits batches.
type Writer interface {
	// Prepare makes the batch of the n events from a position on, in the form that the store
	// takes.
	Prepare(first uint64, n int)
	// Commit returns when the store has acknowledged the batch.
	Commit(ctx context.Context) error
	Close() error
}

// Options are what a store needs.
type Options struct {
	Events      *dataset.Events
	Memory      int64    // limit of Perigee's store; 0 is its default
	Bloom       []string // columns with a bloom filter in Perigee's table
	QuestDBJars string   // the folder of QuestDB's jars
}

// Open opens the named store in folder.
func Open(ctx context.Context, name, folder string, o Options) (Store, error) {
	switch name {
	case Perigee:
		return openPerigee(folder, o)
	case DuckDB:
		return openDuckDB(folder, o.Events)
	case Parquet:
		return openParquet(folder)
	case QuestDB:
		return startQuestDB(ctx, folder, "nosync", o)
	case QuestDBSync:
		return startQuestDB(ctx, folder, "sync", o)
	case Raw:
		return openRaw(folder, o.Events)
	}
	return nil, fmt.Errorf("unknown store %q", name)
}

// A Result tells about the rows of a query's result.
type Result struct {
	Rows  int
	First string // the first value of the first row
	// Sum is of the rows in any order, without their floating-point numbers, whose last digits
	// depend on the order of summation. It is 0 if the store does not tell.
	Sum uint64
}

// addRow adds a row. text has all of its values except floating-point numbers.
func (r *Result) addRow(text []byte) {
	h := fnv.New64a()
	_, _ = h.Write(text)
	r.Sum += h.Sum64()
	r.Rows++
}

// Count returns how many rows a store has from a time on.
func Count(ctx context.Context, s Store, us int64) (int, error) {
	r, err := s.Query(ctx, "SELECT count(*) FROM "+dataset.Table+" WHERE time >= "+s.TimeLiteral(us))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(r.First)
}
