package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/perigeedb/perigee/engine/eventsql"
	"github.com/perigeedb/perigee/internal/durable"
)

type backupCommand struct {
	dataFlags
	File string `arg:"" help:"The backup, a tar archive that must not exist yet; - is standard output."`
}

func (backupCommand) Help() string {
	return `Writes all tables of the event store into one file, as they are when the command begins. An engine that
runs goes on receiving events. With the rows the backup has the position that each pipeline has come
to, so that a restored store continues behind them, each event once. What else is in the data folder, as
dead letters, is not part of it; node databases have "perigee node backup".

The file appears under its name when it is complete and on the disk. Files that the engine replaces
meanwhile take room until then.

Examples:
  perigee backup events-2026-11-23.tar
  perigee backup - --config pipeline.yaml | ssh backup@host 'cat > events.tar'`
}

func (b *backupCommand) Run(c *console) error {
	data, _, err := b.locate(c)
	if err != nil {
		return err
	}
	if b.File == "-" {
		return eventsql.Backup(context.Background(), data, c.out)
	}
	progress := newNodeProgress(c, "bytes", 0, false)
	hide := progress.show()
	err = createFile(b.File, func(w io.Writer) error {
		return eventsql.Backup(context.Background(), data, &countingWriter{w, progress})
	})
	hide()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "event store backed up into %s, %s\n", b.File, byteCount(progress.done.Load()))
	printData(c.out, data)
	return nil
}

type restoreCommand struct {
	File string `arg:"" help:"The backup; - is standard input."`
	dataFlags
}

func (restoreCommand) Help() string {
	return `Makes the event store that "perigee backup" has written in a data folder without one. No engine may run
there. Every file is checked: a backup that is damaged or cut off restores nothing.

Pipelines continue behind the events that the backup has, if the source still has those that follow.

Examples:
  perigee restore events-2026-11-23.tar --data restored
  ssh backup@host 'cat events.tar' | perigee restore - --config pipeline.yaml`
}

func (r *restoreCommand) Run(c *console) error {
	data, _, err := r.locate(c)
	if err != nil {
		return err
	}
	in, size := c.in, int64(0)
	if r.File != "-" {
		file, err := os.Open(r.File)
		if err != nil {
			return fmt.Errorf("open the backup: %w", err)
		}
		defer file.Close()
		in = file
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	progress := newNodeProgress(c, "bytes", uint64(size), false)
	hide := progress.show()
	err = eventsql.Restore(data, &countingReader{in, progress})
	hide()
	if err != nil {
		return err
	}
	fmt.Fprintln(c.out, "event store restored")
	printData(c.out, data)
	return nil
}

// createFile has write fill a new file, which appears under its name when it is complete and
// durable.
func createFile(name string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s exists already", name)
	}
	partial := name + ".partial"
	file, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create the file: %w", err)
	}
	buffered := bufio.NewWriterSize(file, 256<<10)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Link(partial, name) // unlike Rename it replaces no file that has come meanwhile
	}
	_ = os.Remove(partial) // it has its name, or is worth nothing
	if err == nil {
		err = durable.SyncDir(filepath.Dir(name))
	}
	return err
}

// A countingWriter reports the bytes that were written.
type countingWriter struct {
	io.Writer
	progress *nodeProgress
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.progress.set(w.progress.done.Load() + uint64(n))
	return n, err
}
