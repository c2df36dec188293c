package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/bench/process"
	"github.com/perigeedb/perigee/bench/stores"
)

// A bench is one run of the program.
type bench struct {
	binary, jars, only string
	rows, rounds, rate int
	writers            int
	time, openTime     time.Duration
	events             uint64

	folder   string
	closed   map[closedKey][]turn
	open     map[string][]turn
	pipeline pipelineRates
	engine   engineCosts
}

// A closedKey names a series of turns at full speed.
type closedKey struct {
	store string
	batch int
}

// A turn is one run of one store.
type turn struct {
	stores.Report
	catchUp time.Duration // after the end, until a query found all rows
	cpu     float64       // microseconds of CPU time of all processes, per row
	bytes   float64       // on disk, per row
	memory  float64       // peak of anonymous memory of all processes, in MB
}

const (
	smallBatch = 1_000
	largeBatch = 10_000
	step       = 10 // microseconds of event time between two rows
)

var batches = []int{smallBatch, largeBatch}

// contestants are the stores in the order of their turns.
var contestants = []string{stores.Perigee, stores.DuckDB, stores.QuestDBSync, stores.QuestDB, stores.Raw}

func (b *bench) run(ctx context.Context) (err error) {
	if b.folder, err = stores.MakeFolder("perigee-events-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.folder)
	if err := os.Mkdir(b.data(), 0o700); err != nil {
		return err
	}
	logf("rendering %d rows", b.rows)
	if err := dataset.Render(b.data(), b.rows); err != nil {
		return err
	}
	b.closed, b.open = map[closedKey][]turn{}, map[string][]turn{}
	for round := range b.rounds {
		if err := b.runStores(ctx, round); err != nil {
			return err
		}
	}
	if b.selected(stores.Perigee) {
		if err := errors.Join(b.measurePipeline(ctx), b.measureEngine(ctx)); err != nil {
			return err
		}
	}
	b.printTables(os.Stdout)
	b.printFigures(os.Stdout)
	return nil
}

func (b *bench) data() string { return filepath.Join(b.folder, "data") }

// runStores gives every store its turns of a round. Every other round takes the stores in
// reverse order.
func (b *bench) runStores(ctx context.Context, round int) error {
	order := slices.DeleteFunc(slices.Clone(contestants), func(name string) bool { return !b.selected(name) })
	if round%2 == 1 {
		slices.Reverse(order)
	}
	for _, batch := range batches {
		for _, name := range order {
			logf("round %d of %d: %s, commits of %d", round+1, b.rounds, name, batch)
			load := stores.Load{Batch: batch, Writers: b.writers, Time: b.time}
			if name == stores.Raw {
				load.Writers = 1
			}
			t, err := b.runTurn(ctx, name, load)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			logf("  %.0f rows/s", t.Rate())
			key := closedKey{name, batch}
			b.closed[key] = append(b.closed[key], t)
		}
	}
	for _, name := range order {
		logf("round %d of %d: %s, %d rows/s", round+1, b.rounds, name, b.rate)
		load := stores.Load{Batch: smallBatch, Writers: openWriters, Time: b.openTime, Rate: b.rate}
		probed := load
		probed.Probe = true
		loads := []stores.Load{load, probed}
		if name == stores.Raw { // its rows cannot be read
			load.Writers = 1
			loads = []stores.Load{load}
		}
		t, err := b.runTurn(ctx, name, loads...)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.open[name] = append(b.open[name], t)
	}
	return nil
}

// openWriters is how many commits may be under way in the open loop.
const openWriters = 4

// selected reports whether a store takes part.
func (b *bench) selected(name string) bool {
	return slices.ContainsFunc(strings.Split(b.only, "|"), func(part string) bool { return strings.Contains(name, part) })
}

// runTurn warms an empty store up and writes loads into it. The report is that of the first;
// of a second it adds when rows were visible.
func (b *bench) runTurn(ctx context.Context, name string, loads ...stores.Load) (t turn, err error) {
	folder := filepath.Join(b.folder, "store")
	defer os.RemoveAll(folder)
	session, err := stores.Start(b.settings(name, folder))
	if err != nil {
		return t, err
	}
	defer context.AfterFunc(ctx, session.Kill)()
	peak := process.WatchMemory(session.PID(), process.ResidentAnonymous)
	warmUp := loads[0]
	warmUp.Time /= 6
	before, err := session.Write(warmUp)
	if err != nil {
		return t, errors.Join(err, session.Stop())
	}
	rows := before.Rows
	for i, load := range loads {
		worked := process.TreeTime(session.PID())
		report, err := session.Write(load)
		if err != nil {
			return t, errors.Join(err, session.Stop())
		}
		worked = process.TreeTime(session.PID()) - worked
		if i == 0 {
			t.Report, t.cpu = report, float64(worked.Microseconds())/float64(report.Rows)
		}
		t.Visible = report.Visible
		rows += report.Rows
	}
	if name != stores.Raw {
		if t.catchUp, err = session.Await(); err == nil {
			_, err = stores.AwaitRest(folder)
		}
		if err != nil {
			return t, errors.Join(err, session.Stop())
		}
	}
	t.memory = float64(peak()) / 1e6
	if err := session.Stop(); err != nil {
		return t, err
	}
	if size, err := diskBytes(folder); err != nil {
		return t, err
	} else if name != stores.Raw {
		t.bytes = float64(size) / float64(rows)
	}
	return t, nil
}

func (b *bench) settings(name, folder string) stores.Settings {
	return stores.Settings{Store: name, Folder: folder, Data: b.data(), Rows: b.rows, Clock: dataset.Clock{Step: step}, Jars: b.jars}
}

// diskBytes returns what the files of a folder occupy.
func diskBytes(folder string) (total int64, err error) {
	const block = 512
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Sys().(*syscall.Stat_t).Blocks * block
		}
		return err
	})
	return total, err
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// least returns the smaller of two ratios, or the one that is known.
func least(a, b float64) float64 { return min(cmp.Or(a, b), cmp.Or(b, a)) }
