package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/bench/process"
	"github.com/perigeedb/perigee/bench/stores"
)

// fileTimes are the milliseconds of the last 15 minutes over few and many files.
type fileTimes struct {
	few, many           []float64
	fewFiles, manyFiles int
}

const (
	fewDays, manyDays = 20, 2000
	sparseRowsMax     = 2_000_000 // spread over the days
	denseRows         = 15_000    // in the last 15 minutes
	denseStep         = 60_000    // microseconds
)

// compareFiles asks for the last 15 minutes where the rows before them are spread over few
// days, and where they are spread over many: the store has a file for each day.
func (b *bench) compareFiles(ctx context.Context) error {
	few, fewFiles, err := b.spread("few", fewDays)
	if err != nil {
		return err
	}
	defer func() { _ = few.Stop() }()
	many, manyFiles, err := b.spread("many", manyDays)
	if err != nil {
		return err
	}
	defer func() { _ = many.Stop() }()
	b.files = fileTimes{fewFiles: fewFiles, manyFiles: manyFiles}
	for range b.rounds + 1 { // the first warms up
		for _, side := range []struct {
			session *stores.Session
			days    int64
			times   *[]float64
		}{{few, fewDays, &b.files.few}, {many, manyDays, &b.files.many}} {
			if err := ctx.Err(); err != nil {
				return err
			}
			_, took, err := side.session.Query(minuteByEvent + "time >= TIMESTAMP '" + lastTime(side.days).Format("2006-01-02 15:04:05") + "' GROUP BY ALL")
			if err != nil {
				return err
			}
			*side.times = append(*side.times, milliseconds(took))
		}
	}
	b.files.few, b.files.many = b.files.few[1:], b.files.many[1:]
	return nil
}

// lastTime returns when the last 15 minutes begin.
func lastTime(days int64) time.Time { return time.UnixMicro(dataset.Start + days*dayMicros).UTC() }

// spread fills a store with rows that are spread over days, waits until it is at rest, and
// returns it open with the number of its Parquet files.
func (b *bench) spread(folder string, days int64) (*stores.Session, int, error) {
	logf("spreading rows over %d days", days)
	settings := b.settings(stores.Perigee)
	settings.Folder = filepath.Join(b.folder, folder)
	sparse := min(sparseRowsMax, b.rows)
	settings.Clock = dataset.Clock{SparseRows: sparse, SparseStep: days * dayMicros / int64(sparse), Step: denseStep}
	session, err := stores.Start(settings)
	if err != nil {
		return nil, 0, err
	}
	err = b.fill(session, stores.Perigee, sparse+denseRows)
	var files int
	if err == nil {
		files, err = stores.AwaitRest(settings.Folder)
	}
	if err != nil {
		return nil, 0, errors.Join(err, session.Stop())
	}
	return session, files, nil
}

const (
	memoryLimit = 512 << 20
	memoryRate  = 100_000 // rows/s that are written meanwhile
)

// measureMemory writes at a fixed rate into a store with a limit of memory, whose rows it has
// from the comparison, and asks all queries meanwhile.
func (b *bench) measureMemory(ctx context.Context) error {
	logf("ingest and queries at the same time, with a limit of %d MiB", memoryLimit>>20)
	settings := b.settings(stores.Perigee)
	settings.Memory, settings.Written = memoryLimit, b.rows
	session, err := stores.Start(settings)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, session.Kill)()
	peak := process.WatchMemory(session.PID(), process.ResidentAnonymous)
	load := stores.Load{Batch: loadBatch, Writers: loadWriters, Time: b.loadTime, Rate: memoryRate}
	for _, q := range queries(b.rows) {
		load.Queries = append(load.Queries, q.duck)
	}
	report, err := session.Write(load)
	b.memory = float64(peak()) / 1e6
	if err == nil {
		logf("  %.0f rows/s, %d queries; %d failed %v", report.Rate(), report.Queries, len(report.Failed), report.Failed)
	}
	return errors.Join(err, session.Stop())
}
