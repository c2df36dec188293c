package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/perigeedb/perigee/admin"
)

type stateDumpCommand struct {
	configFlags
	State  string `arg:"" help:"Name of the state."`
	Unit   string `help:"Unit, as perigee state list names it; required if there are several."`
	Path   string `arg:"" optional:"" help:"Root of the subtree (default: the whole unit)."`
	Format string `enum:"ndjson,zwrite" default:"ndjson" help:"ndjson or zwrite."`
	Output string `short:"o" placeholder:"FILE" help:"Output file (default: standard output)."`
}

func (stateDumpCommand) Help() string {
	return `Writes one line for each committed node with a value, in order: JSON with path, type and value, or the format
of M's zwrite, which "perigee node load" reads. Times to live are not in it. A dump of more than
10,000 nodes is read in parts of 10,000: each shows one moment, and the next one a later moment if the pipeline
runs. Stop the pipeline for a dump of one moment.

Examples:
  perigee state dump pipeline.yaml users > users.ndjson
  perigee state dump pipeline.yaml users '^visits' --unit queue --format zwrite -o visits.zwr`
}

func (d *stateDumpCommand) Run(c *console) error {
	q := admin.NodeQuery{State: d.State, Unit: d.Unit, Lines: d.Format == "zwrite"}
	if d.Path != "" {
		path, err := parsePath(d.Path)
		if err != nil {
			return err
		}
		q.Path = path.String()
	}
	return d.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		out, commit, err := outputFile(c, d.Output)
		if err != nil {
			return err
		}
		buffered := bufio.NewWriterSize(out, 256<<10)
		return commit(errors.Join(d.write(ctx, a, q, buffered), buffered.Flush()))
	})
}

func (d *stateDumpCommand) write(ctx context.Context, a *admin.Admin, q admin.NodeQuery, w io.Writer) error {
	encoder := newEncoder(w)
	for n, err := range a.StateNodes(ctx, q) {
		if err != nil {
			return err
		}
		if d.Format == "ndjson" {
			err = encoder.Encode(n)
		} else {
			_, err = fmt.Fprintln(w, n.Line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
