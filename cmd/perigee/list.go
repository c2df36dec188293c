package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventsql"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/script/stubs"
)

type listCommand struct {
	What   string `arg:"" optional:"" help:"sources, sinks, tables, languages, metrics, functions or system-tables (of SQL), or the name of one kind (default: all of these); or stubs, the LuaCATS definitions of what scripts can use."`
	Config string `type:"path" placeholder:"FILE" help:"Also list the SQL functions of this configuration."`
	Into   string `type:"path" placeholder:"FOLDER" help:"With stubs: write a file for each module into this folder."`
}

func (listCommand) Help() string {
	return `Lists the sources, sinks and languages of this binary, with the type and the meaning of every setting. It
also lists the metrics at /metrics, and the functions and the system tables for queries. With --config it
includes the SQL functions of that configuration.

"perigee list stubs" prints definitions for editors: the event, to, and every module with its parameters and
results, in LuaCATS form. With --into it writes the files that .luarc.json of "perigee init" names.

Examples:
  perigee list
  perigee list sinks
  perigee list redis
  perigee list metrics
  perigee list functions --config pipeline.yaml
  perigee list stubs --into .perigee/lua`
}

func (l *listCommand) Run(c *console) error {
	if l.What == "stubs" {
		return l.printStubs(c)
	}
	if l.Into != "" {
		return usageError("--into needs stubs: perigee list stubs --into FOLDER")
	}
	kinds, found := linked(), false
	wanted := func(group, name string) bool {
		match := l.What == "" || l.What == group || l.What == name
		found = found || match
		return match
	}
	for _, k := range kinds.Sources {
		if wanted("sources", k.Name) {
			printHeading(c.out, "source", k.Name, k.Doc)
			printFields(c.out, config.Fields(k.Config), "  ")
		}
	}
	for _, k := range kinds.Sinks {
		if wanted("sinks", k.Name) {
			printHeading(c.out, "sink", k.Name, fmt.Sprintf("%s Guarantee: %s.", k.Doc, k.Guarantee))
			printFields(c.out, config.Fields(k.Config), "  ")
		}
	}
	if wanted("sinks", "sinks") {
		fmt.Fprintln(c.out, "several sinks: sinks: {NAME: {KIND: {…}, routed: true}, …}")
		fmt.Fprintln(c.out, "  routed  bool: the sink gets only rows that the script routes to it: return to(\"NAME\", event)")
	}
	if wanted("tables", "tables") {
		fmt.Fprintln(c.out, "tables of the event store: tables: {NAME: {…}, …}")
		printFields(c.out, config.Fields(&config.Table{}), "  ")
	}
	for _, k := range kinds.Languages {
		if wanted("languages", k.Name) {
			printHeading(c.out, "language", k.Name, k.Doc)
			printFields(c.out, config.Fields(&config.ScriptSettings{}), "  ")
		}
	}
	if wanted("metrics", "metrics") {
		printMetrics(c.out)
	}
	if wanted("functions", "functions") {
		for _, g := range eventsql.Functions() {
			fmt.Fprintf(c.out, "%s in SQL: %s\n", g.Name, strings.Join(g.Names, " "))
		}
		if err := l.printConfigured(c); err != nil {
			return err
		}
	}
	if wanted("system-tables", "system-tables") {
		for _, t := range eventsql.SystemTables() {
			fmt.Fprintf(c.out, "system table %s: %s\n", t.Name, t.Doc)
			for _, column := range t.Columns {
				fmt.Fprintf(c.out, "  %-17s  %s: %s\n", column.Name, column.Type, column.Doc)
			}
		}
	}
	if !found {
		return l.unknown(kinds)
	}
	return nil
}

// printStubs prints the definitions, or writes them into files.
func (l *listCommand) printStubs(c *console) error {
	for _, file := range stubs.Files() {
		if l.Into == "" {
			fmt.Fprintf(c.out, "-- %s\n%s\n", file.Name, file.Text)
			continue
		}
		if err := os.MkdirAll(l.Into, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(l.Into, file.Name), []byte(file.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// printConfigured prints the SQL functions of the configuration.
func (l *listCommand) printConfigured(c *console) error {
	if l.Config == "" {
		return nil
	}
	conf, err := configFlags{Config: l.Config}.load(context.Background(), c)
	if err != nil {
		return err
	}
	for _, f := range conf.Functions {
		fmt.Fprintf(c.out, "function of the configuration in SQL: %s(row), %s\n", f.Name, f.Type)
	}
	return nil
}

func (l *listCommand) unknown(kinds engine.Kinds) error {
	known := []string{"sources", "sinks", "tables", "languages", "metrics", "functions", "system-tables", "stubs"}
	for _, k := range kinds.Sources {
		known = append(known, k.Name)
	}
	for _, k := range kinds.Sinks {
		known = append(known, k.Name)
	}
	for _, k := range kinds.Languages {
		known = append(known, k.Name)
	}
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	hint := "known: " + strings.Join(known, ", ")
	if near := nearest.Name(l.What, known); near != "" {
		hint = fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	return event.WithHint(usageError(fmt.Sprintf("unknown kind or list %q", l.What)), hint)
}

func printHeading(w io.Writer, what, name, doc string) {
	fmt.Fprintf(w, "%s %s: %s\n", what, name, doc)
}

// printFields prints one line for each key, and those of nested mappings below it.
func printFields(w io.Writer, fields []config.Field, indent string) {
	width := 0
	for _, f := range fields {
		width = max(width, len(f.Key))
	}
	for _, f := range fields {
		kind := f.Kind
		if f.Required {
			kind += ", required"
		}
		line := fmt.Sprintf("%s%-*s  %s", indent, width, f.Key, kind)
		if f.Help != "" {
			line += ": " + f.Help
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		printFields(w, f.Fields, indent+"  ")
	}
}

func printMetrics(w io.Writer) {
	for _, m := range append(engine.Metrics(), eventsql.Metrics()...) {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "{" + strings.Join(m.Labels, ",") + "}"
		}
		fmt.Fprintf(w, "metric %s%s: %s. %s\n", m.Name, labels, m.Type, m.Help)
	}
}
