package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
)

type checkCommand struct{ configFlags }

func (checkCommand) Help() string {
	return `Reads the configuration and loads its scripts as "perigee run" would, says every fault with file,
line and column, and otherwise what would be run. It connects to nothing but the hosts that code
comes from, and writes nothing.

Exit code: 0 when "perigee run" would start, 1 otherwise.

Examples:
  perigee check pipeline.yaml
  MYSQL_PASSWORD=secret perigee check examples/email/redis-mysql.yaml`
}

func (k *checkCommand) Run(c *console) error {
	plan, err := assemble(context.Background(), k.configFlags, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	describe(c.out, plan)
	return plan.close()
}

// describe says what a configuration will do.
func describe(w io.Writer, pl *plan) {
	for _, p := range pl.parts {
		through := "unchanged"
		if p.config.Script != nil {
			through = "through " + p.code
		}
		for _, column := range p.config.Computed {
			through += ", with " + column.Name
		}
		fmt.Fprintf(w, "pipeline %s: %s, %s, into %s (%s)\n", p.config.Name,
			p.config.Source.Kind, through, p.config.Sink.Kind, p.guarantee)
	}
	address := pl.HTTP
	if address == "" {
		address = "off"
	}
	fmt.Fprintf(w, "data folder: %s\nhttp: %s\nok\n", pl.Data, address)
}
