package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/internal/testserver"
)

//go:embed m/*.m
var routineFiles embed.FS

// bufferCount is the size of M's cache in blocks of 4 KiB: all nodes of a run fit.
const bufferCount = 65536

// mSide runs jobs as M routines.
type mSide struct {
	folder   string
	database *testserver.GTM
}

func startM(ctx context.Context, folder string) (*mSide, error) {
	routines, err := fs.Sub(routineFiles, "m")
	if err != nil {
		return nil, err
	}
	// The file has room for everything, so that a load does not pay for its growth.
	database, err := testserver.StartGTM(ctx, folder, routines, testserver.GTMOptions{Buffers: bufferCount, Allocation: bufferCount})
	if err != nil {
		return nil, err
	}
	return &mSide{folder: folder, database: database}, nil
}

// run runs a label of bench.m in a fresh process.
func (m *mSide) run(ctx context.Context, label string, args ...int) (measurement, error) {
	var words []string
	for _, arg := range args {
		words = append(words, strconv.Itoa(arg))
	}
	out, err := m.database.Run(ctx, label+"^bench", words...)
	if err != nil {
		return measurement{}, err
	}
	var microseconds float64
	var result measurement
	if _, err := fmt.Sscan(out, &microseconds, &result.operations, &result.found); err != nil {
		return measurement{}, fmt.Errorf("routine %s: unexpected output %q: %w", label, out, err)
	}
	result.took = time.Duration(microseconds * float64(time.Microsecond))
	return result, nil
}

// stop ends the database and removes its files.
func (m *mSide) stop() error {
	if err := m.database.Stop(); err != nil {
		return err
	}
	return os.RemoveAll(m.folder)
}
