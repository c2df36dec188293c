package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/nodedb"
)

type nodeDumpCommand struct {
	folderArgument
	Paths  []string `arg:"" optional:"" name:"path" help:"Subtrees (default: the whole store)."`
	Output string   `short:"o" placeholder:"FILE" help:"Output file (default: standard output)."`
}

func (nodeDumpCommand) Help() string {
	return `Writes one line for each node with a value, without control characters, in the format of M's zwrite, which
"perigee node load" reads. The dump shows the store at one moment, even while others write. It does not
contain times to live; a backup does.

Examples:
  perigee node dump state > state.zwr
  perigee node dump state '^users' '^orders(2026)' -o part.zwr
  perigee node dump state | zstd > state.zwr.zst`
}

func (d *nodeDumpCommand) Run(c *console) error {
	var paths []nodedb.Path
	for _, text := range d.Paths {
		path, err := parsePath(text)
		if err != nil {
			return err
		}
		paths = append(paths, path)
	}
	return d.view(func(ctx context.Context, s *nodedb.Store) error {
		out, commit, err := outputFile(c, d.Output)
		if err != nil {
			return err
		}
		stat, err := s.Stat()
		if err != nil {
			return err
		}
		progress := newNodeProgress(c, "nodes", stat.Nodes, terminal.Is(c.out) && d.Output == "")
		if len(paths) > 0 {
			progress.total = 0
		}
		defer progress.show()()
		buffered := bufio.NewWriterSize(out, 256<<10)
		err = s.Dump(ctx, buffered, progress.set, paths...)
		if err == nil {
			err = buffered.Flush()
		}
		return commit(err)
	})
}

// outputFile creates the file of a dump; without a name, the dump goes to standard output. commit
// completes the dump, or removes it if err is not nil.
func outputFile(c *console, name string) (out io.Writer, commit func(err error) error, err error) {
	if name == "" {
		return c.out, func(err error) error { return err }, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("create the dump: %w", err)
	}
	return file, func(err error) error {
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			_ = os.Remove(name) // the caller reports that the dump failed
		}
		return err
	}, nil
}

type nodeLoadCommand struct {
	folderArgument
	File string `arg:"" optional:"" help:"The dump (default: standard input)."`
}

func (nodeLoadCommand) Help() string {
	return `Sets the nodes of a dump, in transactions of 10,000 lines; other nodes stay. It reads dumps of "perigee node
dump" and M's extracts in ZWR format. It creates a missing folder. At an invalid line it stops and names
the line; earlier transactions stay, and you can load the corrected dump again.

Examples:
  perigee node load state state.zwr
  zstdcat state.zwr.zst | perigee node load state`
}

func (l *nodeLoadCommand) Run(c *console) error {
	in, size := c.in, int64(0)
	if l.File != "" {
		file, err := os.Open(l.File)
		if err != nil {
			return fmt.Errorf("open the dump: %w", err)
		}
		defer file.Close()
		in = file
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	return l.with(nodedb.Options{}, func(ctx context.Context, s *nodedb.Store) error {
		progress := newNodeProgress(c, "bytes", uint64(size), false)
		hide := progress.show()
		nodes, err := s.Load(ctx, &countingReader{in, progress}, nil)
		hide()
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s nodes loaded\n", thousands(nodes))
		return nil
	})
}

// A countingReader reports the bytes that were read.
type countingReader struct {
	io.Reader
	progress *nodeProgress
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.progress.set(r.progress.done.Load() + uint64(n))
	return n, err
}

// A nodeProgress is a progress bar on a terminal that counts nodes or bytes.
type nodeProgress struct {
	display *display
	unit    string
	total   uint64 // 0 if unknown
	quiet   bool
	done    atomic.Uint64
}

func newNodeProgress(c *console, unit string, total uint64, quiet bool) *nodeProgress {
	return &nodeProgress{display: newDisplay(c.err), unit: unit, total: total, quiet: quiet}
}

func (p *nodeProgress) set(done uint64) { p.done.Store(done) }

// show shows the bar until the returned function is called.
func (p *nodeProgress) show() (hide func()) {
	if p.quiet {
		return func() {}
	}
	before := uint64(0)
	return p.display.show(func(elapsed time.Duration) string {
		done := p.done.Load()
		rate := perSecond(done-min(before, done), elapsed)
		before = done
		if p.total == 0 {
			return fmt.Sprintf("%s %s  %s/s", thousands(done), p.unit, thousands(rate))
		}
		return fmt.Sprintf("%s %s of %s %s  %s/s", bar(min(done, p.total), p.total), thousands(done), thousands(p.total), p.unit, thousands(rate))
	})
}

// spin shows the elapsed time of work without measurable progress, until the returned function is called.
func spin(c *console, what string) (hide func()) { return newDisplay(c.err).spin(what) }

// spin shows for how long something has run.
func (s *display) spin(what string) (hide func()) {
	start := time.Now()
	return s.show(func(time.Duration) string {
		return fmt.Sprintf("%s: %s", what, time.Since(start).Round(time.Second))
	})
}
