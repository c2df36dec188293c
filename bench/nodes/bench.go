package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A bench is one comparison.
type bench struct {
	siblings, operations, children, rounds int
	modules                                modules

	results map[string]*result // by title of the job
}

// A measurement is one run of a job.
type measurement struct {
	took       time.Duration
	operations int
	found      string
}

// nanoseconds returns the time of one operation.
func (m measurement) nanoseconds() float64 { return float64(m.took) / float64(m.operations) }

// A result holds the nanoseconds per operation of each contestant in each round.
type result struct {
	rounds [contestants][]float64
}

// run measures everything and prints it.
func (b *bench) run(ctx context.Context, folder string) error {
	b.results = map[string]*result{}
	for _, j := range b.jobs() {
		b.results[j.title] = &result{}
	}
	for round := range b.rounds {
		if err := b.runRound(ctx, filepath.Join(folder, fmt.Sprint("round", round)), round); err != nil {
			return err
		}
	}
	memory, err := b.measureMemory(ctx, filepath.Join(folder, "memory"))
	if err != nil {
		return err
	}
	clearProgress()
	b.printTable(os.Stdout)
	b.printFigures(os.Stdout)
	memory.print(os.Stdout)
	return nil
}

// A side runs the programs of some contestants.
type side interface {
	run(ctx context.Context, program string, args ...int) (measurement, error)
}

// runRound runs all jobs on fresh databases. Every other round takes the contestants of each
// job in reverse order.
func (b *bench) runRound(ctx context.Context, folder string, round int) (err error) {
	sides, end, err := b.start(ctx, folder)
	if err != nil {
		return err
	}
	defer func() {
		if endErr := end(); err == nil {
			err = endErr
		}
	}()
	for n, j := range b.jobs() {
		found := ""
		for c := range contestants {
			if round%2 == 1 {
				c = contestants - 1 - c
			}
			program := j.programs()[c]
			if program == "" {
				continue
			}
			showProgress("round %d of %d, job %d of %d: %s", round+1, b.rounds, n+1, len(b.jobs()), j.title)
			m, err := sides[c].run(ctx, program, j.count, j.nodes, j.batch)
			if err != nil {
				return err
			}
			if found == "" {
				found = m.found
			}
			if m.operations != j.count || m.found != found {
				return fmt.Errorf("job %q: a contestant made %d operations and found %s; expected %d and %s", j.title, m.operations, m.found, j.count, found)
			}
			b.results[j.title].rounds[c] = append(b.results[j.title].rounds[c], m.nanoseconds())
		}
	}
	return nil
}

// programs returns what each contestant runs.
func (j job) programs() [contestants]string {
	return [contestants]string{plainM: j.m, transactionsM: j.mTransactions, fromLuaJIT: j.lua, fromLua54: j.lua}
}

// start creates the databases of a round. end removes them.
func (b *bench) start(ctx context.Context, folder string) (sides [contestants]side, end func() error, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return sides, nil, err
	}
	jit, err := b.luaSide(luaJIT, folder)
	if err != nil {
		return sides, nil, err
	}
	plain, err := b.luaSide(lua54, folder)
	if err != nil {
		return sides, nil, err
	}
	m, err := startM(ctx, filepath.Join(folder, "m"))
	if err != nil {
		return sides, nil, err
	}
	return [contestants]side{plainM: m, transactionsM: m, fromLuaJIT: jit, fromLua54: plain}, func() error {
		if err := m.stop(); err != nil {
			return err
		}
		return os.RemoveAll(folder)
	}, nil
}

// luaSide prepares a Lua with an empty store in folder.
func (b *bench) luaSide(i interpreter, folder string) (*luaSide, error) {
	program, err := writeProgram(folder)
	if err != nil {
		return nil, err
	}
	return newLuaSide(i, program, b.modules, filepath.Join(folder, "store-"+i.binary))
}

// showProgress says how far the run is, on a terminal only.
func showProgress(format string, args ...any) {
	info, err := os.Stderr.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
	}
}

func clearProgress() { showProgress("") }

// faster returns the nanoseconds of M in each round, of its faster way.
func (r *result) faster() []float64 {
	times := slices.Clone(r.rounds[plainM])
	for i, t := range r.rounds[transactionsM] {
		times[i] = min(times[i], t)
	}
	return times
}
