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
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/script/stubs"
)

type listCommand struct {
	What   string `arg:"" optional:"" help:"config, pipeline, sources, sinks, tables, languages, metrics, functions or system-tables (of SQL), or the name of one kind (default: all of these); or stubs, the LuaCATS definitions of what scripts can use."`
	Config string `type:"path" placeholder:"FILE" help:"Also list the SQL functions of this configuration."`
	Into   string `type:"path" placeholder:"FOLDER" help:"With stubs: write a file for each module into this folder."`
}

func (listCommand) Help() string {
	return `Lists every key of a configuration and of a pipeline, and the sources, sinks and languages of this binary, each
with type, default, example and meaning. It also lists the metrics at /metrics, and the functions and the
system tables for queries. With --config it includes the SQL functions of that configuration.

"perigee list stubs" prints definitions for editors: the event, to, and every module with its parameters and
results, in LuaCATS form. With --into it writes the files that .luarc.json of "perigee init" names.

Examples:
  perigee list
  perigee list config
  perigee list pipeline
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
	keys := kinds.Describe()
	if wanted("config", "config") {
		fmt.Fprintln(c.out, "the configuration")
		printFields(c.out, withoutPipeline(keys.Keys), "  ")
	}
	if wanted("pipeline", "pipeline") {
		fmt.Fprintln(c.out, "a pipeline: pipelines: {NAME: {…}, …}")
		printFields(c.out, keys.Pipeline(), "  ")
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
		printFields(c.out, config.SinkKeys(), "  ")
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
		for _, g := range eventservice.Functions() {
			fmt.Fprintf(c.out, "%s in SQL: %s\n", g.Name, strings.Join(g.Names, " "))
		}
		if err := l.printConfigured(c); err != nil {
			return err
		}
	}
	if wanted("system-tables", "system-tables") {
		for _, t := range eventservice.SystemTables() {
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
	known := []string{"config", "pipeline", "sources", "sinks", "tables", "languages", "metrics", "functions", "system-tables", "stubs"}
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

// withoutPipeline returns the keys of a configuration without those of a pipeline, which are
// a list of their own.
func withoutPipeline(keys []config.Field) []config.Field {
	keys = slices.Clone(keys)
	for i := range keys {
		if keys[i].Key == "pipelines" {
			keys[i].Help += "; perigee list pipeline lists the keys of one"
			keys[i].Fields = nil
		}
	}
	return keys
}

// printFields prints one line for each key, and those of nested mappings below it.
func printFields(w io.Writer, fields []config.Field, indent string) {
	width := 0
	for _, f := range fields {
		width = max(width, len(f.Key))
	}
	for _, f := range fields {
		fmt.Fprintf(w, "%s%-*s  %s: %s%s\n", indent, width, f.Key, typeOf(f), f.Help, describeValues(f))
		printFields(w, f.Fields, indent+"  ")
	}
}

// typeOf returns the type of a key, with its unit.
func typeOf(f config.Field) string {
	kind := f.Kind
	if f.Unit != "" {
		kind += " (" + f.Unit + ")"
	}
	if f.Required {
		kind += ", required"
	}
	return kind
}

// describeValues returns default and example of a key, in parentheses.
func describeValues(f config.Field) string {
	var parts []string
	if value := defaultOf(f); value != "" {
		parts = append(parts, "default "+value)
	}
	if example := f.ExampleOf(); example != "" && f.Kind != "bool" {
		parts = append(parts, "such as "+example)
	}
	if f.Since != config.FirstVersion {
		parts = append(parts, "since "+f.Since)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// defaultOf returns the default of a key as a reader sees it.
func defaultOf(f config.Field) string {
	if f.Env != "" {
		return "$" + f.Env
	}
	return strings.TrimSuffix(strings.TrimPrefix(f.Default, "("), ")")
}

func printMetrics(w io.Writer) {
	for _, m := range append(engine.Metrics(), eventservice.Metrics()...) {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "{" + strings.Join(m.Labels, ",") + "}"
		}
		fmt.Fprintf(w, "metric %s%s: %s. %s\n", m.Name, labels, m.Type, m.Help)
	}
}
