package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/internal/config"
)

type listCommand struct {
	What string `arg:"" optional:"" enum:"sources,sinks,languages," default:"" help:"sources, sinks or languages; all of them when left out."`
}

func (listCommand) Help() string {
	return `Lists what is linked into this binary, and every setting with its type and meaning.

Examples:
  perigee list
  perigee list sinks`
}

func (l *listCommand) Run(c *console) error {
	wanted := func(what string) bool { return slices.Contains([]string{"", what}, l.What) }
	if wanted("sources") {
		for _, k := range sources() {
			heading(c.out, "source", k.Name, k.Doc)
			settings(c.out, config.Fields(k.Config), "  ")
		}
	}
	if wanted("sinks") {
		for _, k := range sinks(nil) {
			heading(c.out, "sink", k.Name, fmt.Sprintf("%s Guarantee: %s.", k.Doc, k.Guarantee))
			settings(c.out, config.Fields(k.Config), "  ")
		}
		fmt.Fprintln(c.out, "several sinks: sinks: {NAME: {KIND: {…}, routed: true}, …}")
		fmt.Fprintln(c.out, "  routed  bool: the sink gets nothing but what the script routes to it: return to(\"NAME\", event)")
	}
	if wanted("languages") {
		for _, k := range languages() {
			heading(c.out, "language", k.Name, k.Doc)
			settings(c.out, config.Fields(&config.ScriptSettings{}), "  ")
		}
	}
	return nil
}

func heading(w io.Writer, what, name, doc string) { fmt.Fprintf(w, "%s %s: %s\n", what, name, doc) }

// settings prints one line for each key, those of nested mappings below it.
func settings(w io.Writer, fields []config.Field, indent string) {
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
		settings(w, f.Fields, indent+"  ")
	}
}
