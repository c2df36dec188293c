package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/bench/stores"
)

// A bench is one run of the program.
type bench struct {
	jars, only string
	rows       uint64
	distinct   int
	rounds     int
	loadTime   time.Duration

	folder  string
	fresh   times // right after ingest
	restart times // after a restart
	files   fileTimes
	memory  float64 // peak of anonymous memory under ingest and heavy queries, in MB
}

// times are the milliseconds of each round, by query and store.
type times map[timeKey][]float64

type timeKey struct{ query, store string }

// contestants are the stores in the order of loading: the one that is measured right after
// ingest is the last.
var contestants = []string{stores.DuckDB, stores.Parquet, stores.QuestDB, stores.Perigee}

const (
	loadBatch   = 10_000
	loadWriters = 2
)

func (b *bench) run(ctx context.Context) (err error) {
	if b.folder, err = stores.MakeFolder("perigee-queries-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.folder)
	if err := os.Mkdir(b.data(), 0o700); err != nil {
		return err
	}
	logf("rendering %d rows", b.distinct)
	if err := dataset.Render(b.data(), b.distinct); err != nil {
		return err
	}
	if err := b.compareStores(ctx); err != nil {
		return err
	}
	if b.selected(stores.Perigee) {
		if err := errors.Join(b.compareFiles(ctx), b.measureMemory(ctx)); err != nil {
			return err
		}
	}
	b.printTables(os.Stdout)
	b.printFigures(os.Stdout)
	return nil
}

func (b *bench) data() string { return filepath.Join(b.folder, "data") }

// compareStores asks all queries right after ingest and after a restart.
func (b *bench) compareStores(ctx context.Context) error {
	sessions, err := b.load(ctx)
	defer func() { stop(sessions) }()
	if err != nil {
		return err
	}
	if b.fresh, err = b.ask(ctx, sessions); err != nil {
		return err
	}
	logf("restarting")
	if err := stop(sessions); err != nil {
		return err
	}
	if sessions, err = b.startAll(); err != nil {
		return err
	}
	b.restart, err = b.ask(ctx, sessions)
	return err
}

func (b *bench) settings(name string) stores.Settings {
	return stores.Settings{Store: name, Folder: filepath.Join(b.folder, strings.ToLower(name)), Data: b.data(), Rows: b.distinct,
		Clock: dataset.Clock{Step: days * dayMicros / int64(b.rows)}, Bloom: []string{"hash"}, Jars: b.jars}
}

// load fills the stores and leaves them open. Parquet files are copied from DuckDB's table.
func (b *bench) load(ctx context.Context) (sessions map[string]*stores.Session, err error) {
	sessions = map[string]*stores.Session{}
	for _, name := range contestants {
		if !b.selected(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return sessions, err
		}
		logf("loading %d rows into %s", b.rows, name)
		if name == stores.Parquet {
			if err := sessions[stores.DuckDB].CopyToParquet(b.settings(name).Folder); err != nil {
				return sessions, err
			}
		}
		session, err := stores.Start(b.settings(name))
		if err != nil {
			return sessions, err
		}
		sessions[name] = session
		if name == stores.Parquet {
			continue
		}
		if err := b.fill(session, name, b.rows); err != nil {
			return sessions, err
		}
	}
	return sessions, nil
}

// fill writes rows and waits until a query finds them.
func (b *bench) fill(session *stores.Session, name string, rows uint64) error {
	report, err := session.Write(stores.Load{Batch: loadBatch, Writers: loadWriters, Rows: rows})
	if err == nil {
		logf("  %.0f rows/s", report.Rate())
		_, err = session.Await()
	}
	if err != nil {
		return fmt.Errorf("fill %s: %w", name, err)
	}
	return nil
}

func (b *bench) startAll() (sessions map[string]*stores.Session, err error) {
	sessions = map[string]*stores.Session{}
	for _, name := range contestants {
		if b.selected(name) {
			if sessions[name], err = stores.Start(b.settings(name)); err != nil {
				delete(sessions, name)
				return sessions, err
			}
		}
	}
	return sessions, nil
}

// stop stops sessions and removes them from the map.
func stop(sessions map[string]*stores.Session) (err error) {
	for name, session := range sessions {
		err = errors.Join(err, session.Stop())
		delete(sessions, name)
	}
	return err
}

// selected reports whether a store takes part.
func (b *bench) selected(name string) bool {
	return slices.ContainsFunc(strings.Split(b.only, "|"), func(part string) bool { return strings.Contains(name, part) })
}

// ask asks each query of all stores in turns. The first round warms up and compares what they
// find.
func (b *bench) ask(ctx context.Context, sessions map[string]*stores.Session) (times, error) {
	measured := times{}
	for _, q := range queries(b.rows) {
		logf("%s", q.name)
		if err := compareResults(q, sessions); err != nil {
			return nil, err
		}
		for round := range b.rounds {
			for i := range contestants {
				if round%2 == 1 {
					i = len(contestants) - 1 - i
				}
				name := contestants[i]
				session := sessions[name]
				if session == nil {
					continue
				}
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				_, took, err := session.Query(q.sql(name))
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", name, q.name, err)
				}
				key := timeKey{q.name, name}
				measured[key] = append(measured[key], milliseconds(took))
			}
		}
	}
	return measured, nil
}

// compareResults runs a query once on every store and fails if they find different rows.
func compareResults(q query, sessions map[string]*stores.Session) error {
	var first *stores.Result
	for _, name := range contestants {
		session := sessions[name]
		if session == nil {
			continue
		}
		result, _, err := session.Query(q.sql(name))
		if err != nil {
			return fmt.Errorf("%s: %s: %w", name, q.name, err)
		}
		if first == nil {
			first = &result
		}
		if result.Rows == 0 || result.Rows != first.Rows || result.Sum != 0 && first.Sum != 0 && result.Sum != first.Sum {
			return fmt.Errorf("%s: %s finds %+v, another store %+v", q.name, name, result, *first)
		}
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
