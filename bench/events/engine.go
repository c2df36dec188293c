package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/bench/process"
	"github.com/perigeedb/perigee/bench/stores"
)

// engineCosts are what the engine and its store cost at start and at rest.
type engineCosts struct {
	restart []float64 // seconds from the start of a process until a query is answered, after kill -9
	eval    []float64 // milliseconds of perigee eval
	idle    float64   // resident memory of an engine with an idle store, in MB
}

func (b *bench) measureEngine(ctx context.Context) (err error) {
	for round := range b.rounds {
		logf("round %d of %d: restart after kill -9", round+1, b.rounds)
		seconds, err := b.measureRestart(ctx)
		if err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		b.engine.restart = append(b.engine.restart, seconds)
	}
	if b.engine.eval, err = b.measureEval(ctx); err != nil {
		return err
	}
	b.engine.idle, err = b.measureIdle(ctx)
	return err
}

// measureRestart kills a store that is written to at full speed, starts it again, and checks
// that it has all acknowledged rows.
func (b *bench) measureRestart(ctx context.Context) (float64, error) {
	settings := b.settings(stores.Perigee, filepath.Join(b.folder, "store"))
	defer os.RemoveAll(settings.Folder)
	session, err := stores.Start(settings)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, session.Kill)()
	const slices = 8
	load := stores.Load{Batch: largeBatch, Writers: b.writers, Time: b.openTime / slices}
	acknowledged := uint64(0)
	for range slices {
		report, err := session.Write(load)
		if err != nil {
			return 0, errors.Join(err, session.Stop())
		}
		acknowledged += report.Rows
	}
	time.AfterFunc(load.Time/2, session.Kill)
	_, _ = session.Write(load) // it is killed meanwhile
	began := time.Now()
	if session, err = stores.Start(settings); err != nil {
		return 0, err
	}
	found, _, err := session.Query("SELECT count(*) FROM " + dataset.Table)
	took := time.Since(began)
	if rows, _ := strconv.ParseUint(found.First, 10, 64); err == nil && rows < acknowledged {
		err = fmt.Errorf("%d rows of %d that were acknowledged are there", rows, acknowledged)
	}
	return took.Seconds(), errors.Join(err, session.Stop())
}

const evalRuns = 21

// measureEval returns the milliseconds of runs of perigee eval.
func (b *bench) measureEval(ctx context.Context) (times []float64, err error) {
	for range evalRuns {
		command := exec.CommandContext(ctx, b.binary, "eval", "-e", "return event")
		command.Stdin = strings.NewReader("{}\n")
		began := time.Now()
		if text, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("eval: %w\n%s", err, text)
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	return times, nil
}

// idleTime is how long an engine rests before its memory is read.
const idleTime = 10 * time.Second

// measureIdle returns the resident memory of an engine that waits for more events, after a
// few.
func (b *bench) measureIdle(ctx context.Context) (float64, error) {
	source := filepath.Join(b.folder, "few.ndjson")
	if err := b.writeDocuments(source, smallBatch); err != nil {
		return 0, err
	}
	config, err := b.writeConfig(engine{Source: source, Sink: intoStore, Follow: true})
	if err != nil {
		return 0, err
	}
	logf("an idle engine")
	command := exec.CommandContext(ctx, b.binary, "run", config)
	var log bytes.Buffer
	command.Stderr = &log
	if err := command.Start(); err != nil {
		return 0, err
	}
	time.Sleep(idleTime)
	bytes := process.Memory(command.Process.Pid, process.Resident)
	_ = command.Process.Signal(syscall.SIGTERM)
	if err := command.Wait(); err != nil {
		return 0, fmt.Errorf("run: %w\n%s", err, log.String())
	}
	return float64(bytes) / 1e6, nil
}
