//go:build linux && cgo

// Package segment writes Parquet files: it sorts the rows of log frames, merges sorted files,
// and rewrites files with new values. The files of an Output are durable once its Wait has
// returned nil. Nothing here is safe for concurrent use.
package segment

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/durable"
)

// An Output collects the files of one segment. Files are synced while the next ones are
// written: with a file for each of many days, most of the time goes to waiting for the disk.
type Output struct {
	segment    uint64
	parts      int // files written so far
	groupBytes int64
	Level      int // zstd level
	syncing    errgroup.Group
	published  []string // paths
}

// The zstd levels. Appends wait for sealing, and its files are soon merged, so sealing uses a
// fast level. Level 3 makes event files 4 % smaller than level 1 and takes a sixth longer.
const (
	SealLevel  = 1
	mergeLevel = 3
)

// syncsMax is the maximum number of files that are synced concurrently.
const syncsMax = 16

// NewOutput returns the output for a segment. wide reports that its rows are as large as a
// row group, or larger.
func NewOutput(segment uint64, wide bool) *Output {
	o := &Output{segment: segment, groupBytes: rowGroupBytes, Level: mergeLevel}
	if wide {
		o.groupBytes = leastGroupBytes
	}
	o.syncing.SetLimit(syncsMax)
	return o
}

// nextName returns the name of the segment's next file.
func (o *Output) nextName(day string) string {
	o.parts++
	return manifest.FileName(day, o.segment, o.parts-1)
}

// publish moves a file and its companions to their folder and starts to sync them. Wait waits
// for the syncs.
func (o *Output) publish(folder string, paths ...string) {
	for _, path := range paths {
		o.published = append(o.published, filepath.Join(folder, filepath.Base(path)))
	}
	o.syncing.Go(func() error { return moveDurably(folder, paths) })
}

// Wait waits until all files are durable.
func (o *Output) Wait() error { return o.syncing.Wait() }

// Abandon removes the files, which no manifest will list.
func (o *Output) Abandon() (err error) {
	_ = o.Wait()
	for _, path := range o.published {
		if failed := os.Remove(path); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// moveDurably moves files to a folder. When it returns, the files and their names are
// durable.
func moveDurably(folder string, paths []string) error {
	if err := durable.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, path := range paths {
		if err := syncFile(path); err != nil {
			return err
		}
		if err := os.Rename(path, filepath.Join(folder, filepath.Base(path))); err != nil {
			return err
		}
	}
	return durable.SyncDir(folder)
}

func syncFile(path string) error {
	file, err := durable.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// A Writer writes files of one output through one connection. It is not safe for concurrent
// use.
type Writer struct {
	ctx      context.Context
	conn     *duckdb.Conn
	connect  func() (*duckdb.Conn, error)
	settings protocol.Settings
	out      *Output
}

// NewWriter returns a writer for a request. connect opens further connections to the database
// of conn.
func NewWriter(ctx context.Context, conn *duckdb.Conn, connect func() (*duckdb.Conn, error), settings protocol.Settings, out *Output) *Writer {
	return &Writer{ctx: ctx, conn: conn, connect: connect, settings: settings, out: out}
}
