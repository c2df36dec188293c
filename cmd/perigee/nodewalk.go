package main

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/nodedb"
)

type nodeWalkCommand struct {
	folderArgument
	Path     string `arg:"" optional:"" help:"Root of the subtree (default: the whole store)."`
	Children bool   `help:"List only the children of the node instead of all nodes below it."`
	From     string `placeholder:"SUBSCRIPT" help:"With --children: first subscript."`
	To       string `placeholder:"SUBSCRIPT" help:"With --children: last subscript."`
	Reverse  bool   `help:"List in reverse order."`
	Limit    int    `default:"1000" placeholder:"N" help:"Maximum number of nodes; 0 lists all (default: 1000)."`
	JSON     bool   `name:"json" help:"Print one JSON object per line."`
}

func (nodeWalkCommand) Help() string {
	return `Lists the nodes with a value in a subtree, in order: "" first, then numbers by value, then strings by their
bytes. With --children it lists the children of one node; children without a value have descendants.
With --children and without a path it lists the names in the store.

` + nodePathHelp + `

Examples:
  perigee node walk state --children
  perigee node walk state '^users(7)'
  perigee node walk state '^users' --children --from 100 --to 199
  perigee node walk state '^log' --reverse --limit 1 --json`
}

func (w *nodeWalkCommand) Run(c *console) error {
	var path nodedb.Path
	if w.Path != "" {
		var err error
		if path, err = parsePath(w.Path); err != nil {
			return err
		}
	}
	if !w.Children && (w.From != "" || w.To != "") {
		return usageError("--from and --to need --children")
	}
	return w.view(func(ctx context.Context, s *nodedb.Store) error {
		return s.View(ctx, func(tx *nodedb.Tx) error {
			list := newNodeList(c.out, w.JSON)
			for node, err := range w.nodes(ctx, tx, path) {
				if err != nil {
					return err
				}
				if w.Limit > 0 && list.count == w.Limit {
					list.more = true
					break
				}
				if err := list.add(node); err != nil {
					return err
				}
			}
			return list.end(c.err)
		})
	})
}

// nodes yields the nodes to list.
func (w *nodeWalkCommand) nodes(ctx context.Context, tx *nodedb.Tx, path nodedb.Path) iter.Seq2[nodedb.Node, error] {
	r := nodedb.Range{Reverse: w.Reverse}
	if !w.Children {
		return tx.Walk(ctx, path, r)
	}
	if w.From != "" {
		r.From = w.From
	}
	if w.To != "" {
		r.To = w.To
	}
	return func(yield func(nodedb.Node, error) bool) {
		for child, err := range tx.Children(ctx, path, r) {
			at := path.At(child.Subscript)
			if path.IsZero() {
				at = nodedb.Name(child.Subscript.String())
			}
			if !yield(nodedb.Node{Path: at, Value: child.Value}, err) {
				return
			}
		}
	}
}

// A nodeList prints nodes: as lines of JSON, or as a table.
type nodeList struct {
	out   io.Writer
	json  bool
	table table.Writer
	count int
	more  bool // the list is incomplete
}

// valueWidth is the width of the column of values, in characters.
const valueWidth = 80

func newNodeList(out io.Writer, json bool) *nodeList {
	return &nodeList{out: out, json: json, table: newTable("node", "type", "value")}
}

func (l *nodeList) add(n nodedb.Node) error {
	kind := n.Value.Kind().String()
	return l.addRow(nodeJSON{Path: n.Path, Type: kind, Value: n.Value}, n.Path, kind, n.Value.String())
}

// addRow adds a node, as JSON or by its columns.
func (l *nodeList) addRow(asJSON any, path any, kind, text string) error {
	l.count++
	if l.json {
		return newEncoder(l.out).Encode(asJSON)
	}
	l.table.AppendRow(table.Row{path, kind, firstLine(text, valueWidth)})
	return nil
}

// end prints the table, and reports to notes that the list is incomplete.
func (l *nodeList) end(notes io.Writer) error {
	if !l.json && l.count > 0 {
		if _, err := fmt.Fprintln(l.out, l.table.Render()); err != nil {
			return err
		}
	}
	if l.more {
		fmt.Fprintf(notes, "listed the first %s nodes; --limit 0 lists all\n", thousands(uint64(l.count)))
	}
	return nil
}
