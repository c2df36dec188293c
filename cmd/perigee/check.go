package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/perigeedb/perigee/sink"
)

type checkCommand struct {
	configFlags
	Connect bool          `help:"Try every server too: credentials, grants, tables, queues. Nothing is changed."`
	Timeout time.Duration `default:"10s" placeholder:"TIME" help:"How long --connect may take."`
}

func (checkCommand) Help() string {
	return `Reads the configuration and loads its scripts as "perigee run" would, says every fault with file,
line and column, and otherwise what would be run, and what it promises: exactly once, at least once,
or less. It connects to nothing but the hosts that code comes from, and writes nothing. With --connect
it tries the servers as well.

Exit code: 0 when "perigee run" would start, 1 otherwise.

Examples:
  perigee check pipeline.yaml
  perigee check --connect pipeline.yaml
  MYSQL_PASSWORD=secret perigee check examples/email/redis-mysql.yaml`
}

func (k *checkCommand) Run(c *console) error {
	plan, err := assemble(context.Background(), k.configFlags, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	describe(c.out, plan)
	if k.Connect {
		err = plan.connect(c.out, k.Timeout)
	}
	if err = errors.Join(err, plan.close()); err == nil {
		fmt.Fprintln(c.out, "ok")
	}
	return err
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
		fmt.Fprintf(w, "pipeline %s: %s, %s, into %s\n", p.config.Name, p.config.Source.Kind, through, describeSinks(p.sinks))
		if why := p.source.Traits().AtMostOnce; why != "" {
			fmt.Fprintf(w, "  source %s: at most once: %s\n", p.config.Source.Kind, why)
		}
	}
	if pl.usesLua() {
		fmt.Fprintf(w, "lua: %s\n", describeLua())
	}
	address := pl.HTTP
	if address == "" {
		address = "off"
	}
	fmt.Fprintf(w, "data folder: %s\nhttp: %s\n", pl.Data, address)
}

// describeSinks says where rows go and how often one may land there. A pipeline is as
// exact as its weakest sink, so several are listed below what that is.
func describeSinks(all []outlet) string {
	if len(all) == 1 && all[0].config.Name == all[0].config.Kind {
		return fmt.Sprintf("%s (%s)", all[0].config.Kind, all[0].guarantee)
	}
	var lines strings.Builder
	var weak []string
	for _, o := range all {
		fmt.Fprintf(&lines, "\n  %s: %s (%s)", o.config.Name, o.config.Kind, o.guarantee)
		if o.config.Routed {
			lines.WriteString(", only what is routed to it")
		}
		if o.guarantee != sink.ExactlyOnce {
			weak = append(weak, o.config.Name)
		}
	}
	whole := string(sink.ExactlyOnce)
	if len(weak) > 0 {
		whole = fmt.Sprintf("%s, because of %s", sink.AtLeastOnce, strings.Join(weak, ", "))
	}
	return fmt.Sprintf("%d sinks (%s)%s", len(all), whole, &lines)
}
