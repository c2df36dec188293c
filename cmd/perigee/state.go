package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
)

type stateCommand struct {
	List stateListCommand `cmd:"" help:"List the states of pipelines and their units."`
	Show stateShowCommand `cmd:"" help:"Show the units of a state in detail."`
	Get  stateGetCommand  `cmd:"" help:"Print the value of a node."`
	Walk stateWalkCommand `cmd:"" help:"List nodes."`
	Dump stateDumpCommand `cmd:"" help:"Write all nodes of a unit as text."`

	Migrate  stateMigrateCommand  `cmd:"" help:"Convert a state to another version or scope."`
	Drop     stateDropCommand     `cmd:"" help:"Give up a state that a pipeline has had."`
	Verify   stateVerifyCommand   `cmd:"" help:"Check the copies, the homes and the archive of states."`
	Snapshot stateSnapshotCommand `cmd:"" help:"Make a snapshot of a state in its archive."`
	Restore  stateRestoreCommand  `cmd:"" help:"Restore a state from its archive at the last note of its home."`
}

type stateListCommand struct {
	configFlags
	State  string `arg:"" optional:"" help:"Show only this state."`
	Format string `enum:"table,json" default:"table" help:"table or json."`
}

func (stateListCommand) Help() string {
	return `A unit is one tree of nodes: that of a partition, or that of all with scope: pipeline. Its home, a sink of the
pipeline or the changelog in the data folder, keeps the last notes of what deliveries have changed, and
commits them together with the rows. The copy on this machine is behind by what waits for the disk; after
a crash the notes complete it.

Examples:
  perigee state list pipeline.yaml
  perigee state list pipeline.yaml users --format json`
}

func (l *stateListCommand) Run(c *console) error {
	return l.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		all, err := a.States(ctx, admin.StateFilter{State: l.State})
		if err != nil {
			return err
		}
		if l.Format == "json" {
			return newEncoder(c.out).Encode(all)
		}
		t := newTable("state", "unit", "pipeline", "home", "last note", "kept", "nodes", "on disk", "waiting", "in the copy")
		for _, u := range all {
			row := table.Row{u.State, firstLine(u.Unit, 40), u.Pipeline, u.Home, u.Last, keptNotes(u), "", "", "", "nothing"}
			if s := u.Copy; s != nil {
				row = append(row[:6], thousands(s.Nodes), byteCount(s.UsedBytes), thousands(s.WaitingNodes), whatCopyHas(&u))
			}
			t.AppendRow(row)
		}
		if len(all) == 0 {
			_, err := fmt.Fprintln(c.out, "no state has a unit yet")
			return err
		}
		if _, err := fmt.Fprintln(c.out, t.Render()); err != nil {
			return err
		}
		printData(c.out, a.Data())
		return nil
	})
}

// whatCopyHas says how far a copy is.
func whatCopyHas(u *admin.StateUnit) string {
	s := u.Copy
	text := "up to " + strconv.FormatUint(s.Last, 10)
	switch {
	case s.Refused != "":
		return text + ", cannot follow"
	case s.Following:
		return fmt.Sprintf("%s, follows, %s behind", text, thousands(s.Lag))
	}
	return text
}

// keptNotes says which notes the home has.
func keptNotes(u admin.StateUnit) string {
	if u.First > u.Last {
		return "none"
	}
	return fmt.Sprintf("%s, %s", thousands(u.Last-u.First+1), byteCount(u.Bytes))
}

// stateFlags name a unit of a state.
type stateFlags struct {
	configFlags
	State string `arg:"" help:"Name of the state."`
	Unit  string `help:"Unit, as perigee state list names it; required if there are several."`
	JSON  bool   `name:"json" help:"Print one JSON object per line."`
}

type stateGetCommand struct {
	stateFlags
	Path string `arg:"" help:"Path of the node, as in '^users(7,\"name\")'."`
}

func (stateGetCommand) Help() string {
	return `Prints what is committed. ` + nodePathHelp + `

Exit code: 0 if the node has a value, 1 otherwise.

Examples:
  perigee state get pipeline.yaml users '^visits("ada")'
  perigee state get pipeline.yaml users '^visits("ada")' --unit queue --json`
}

func (g *stateGetCommand) Run(c *console) error {
	path, err := parsePath(g.Path)
	if err != nil {
		return err
	}
	return g.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		for n, err := range a.StateNodes(ctx, admin.NodeQuery{State: g.State, Unit: g.Unit, Path: path.String(), One: true}) {
			if err != nil {
				return err
			}
			if g.JSON {
				return newEncoder(c.out).Encode(n)
			}
			_, err := fmt.Fprintln(c.out, n.Text())
			return err
		}
		return event.WithHint(fmt.Errorf("%v has no value in state %s", path, g.State), "list what there is: perigee state walk")
	})
}

type stateWalkCommand struct {
	stateFlags
	Path     string `arg:"" optional:"" help:"Root of the subtree (default: the whole unit)."`
	Children bool   `help:"List only the children of the node instead of all nodes below it."`
	From     string `placeholder:"SUBSCRIPT" help:"With --children: first subscript."`
	To       string `placeholder:"SUBSCRIPT" help:"With --children: last subscript."`
	Reverse  bool   `help:"List in reverse order."`
	Limit    int    `default:"1000" placeholder:"N" help:"Maximum number of nodes; 0 lists all (default: 1000)."`
}

func (stateWalkCommand) Help() string {
	return `Lists committed nodes with a value in a subtree, in order: "" first, then numbers by value, then strings by their
bytes. With --children it lists the children of one node; children without a value have descendants.

` + nodePathHelp + `

Examples:
  perigee state walk pipeline.yaml users --children
  perigee state walk pipeline.yaml users '^visits' --limit 10
  perigee state walk pipeline.yaml users '^visits' --json | jq -r .path`
}

func (w *stateWalkCommand) Run(c *console) error {
	q := admin.NodeQuery{State: w.State, Unit: w.Unit, Children: w.Children, From: w.From, To: w.To, Reverse: w.Reverse}
	if w.Path != "" {
		path, err := parsePath(w.Path)
		if err != nil {
			return err
		}
		q.Path = path.String()
	}
	if !w.Children && (w.From != "" || w.To != "") {
		return usageError("--from and --to need --children")
	}
	if w.Limit > 0 {
		q.Limit = w.Limit + 1
	}
	return w.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		list := newNodeList(c.out, w.JSON)
		for n, err := range a.StateNodes(ctx, q) {
			if err != nil {
				return err
			}
			if w.Limit > 0 && list.count == w.Limit {
				list.more = true
				break
			}
			if err := list.addRow(n, n.Path, n.Type, n.Text()); err != nil {
				return err
			}
		}
		return list.end(c.err)
	})
}
