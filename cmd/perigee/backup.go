package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

type backupCommand struct {
	dataFlags
	File string `arg:"" help:"Name of the backup, a tar archive; it must not exist. - is standard output."`
}

func (backupCommand) Help() string {
	return `Writes all tables of the event store into one file, as they are when the command begins. A running engine
continues to receive events. The backup also contains the position of each pipeline, so that a restored
store continues after its last row and stores each event once. It does not contain other parts of the
data folder, such as dead letters. Use "perigee node backup" for node databases.

The file appears under its name only when it is complete and on the disk. Files that the engine replaces
meanwhile use disk space until then.

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
		return eventservice.Backup(context.Background(), data, c.out)
	}
	progress := newNodeProgress(c, "bytes", 0, false)
	hide := progress.show()
	err = createFile(b.File, func(w io.Writer) error {
		return eventservice.Backup(context.Background(), data, &countingWriter{w, progress})
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
	return `Restores an event store from a backup of "perigee backup", into a data folder that has no event store and
no running engine. The command verifies every file, and restores nothing from a damaged or truncated
backup.

Pipelines continue after the last event in the backup, if the source still has the following events.

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
	err = eventservice.Restore(data, &countingReader{in, progress})
	hide()
	if err != nil {
		return err
	}
	fmt.Fprintln(c.out, "event store restored")
	printData(c.out, data)
	return nil
}

// createFile calls write to fill a new file, which appears under its name only when it is
// complete and durable.
func createFile(name string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(name); err == nil {
		return event.WithHint(fmt.Errorf("%s exists already", name), "choose another name, or remove the file")
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
		err = os.Link(partial, name) // unlike Rename, Link never replaces an existing file
	}
	_ = os.Remove(partial)
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
