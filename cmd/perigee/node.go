package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
)

type nodeCommand struct {
	Get     nodeGetCommand     `cmd:"" help:"Print the value of a node."`
	Set     nodeSetCommand     `cmd:"" help:"Set the value of a node."`
	Kill    nodeKillCommand    `cmd:"" help:"Delete a node and its descendants."`
	Walk    nodeWalkCommand    `cmd:"" help:"List nodes."`
	Dump    nodeDumpCommand    `cmd:"" help:"Write nodes as text."`
	Load    nodeLoadCommand    `cmd:"" help:"Set the nodes of a dump."`
	Check   nodeCheckCommand   `cmd:"" help:"Read the whole store and list its faults."`
	Backup  nodeBackupCommand  `cmd:"" help:"Copy a store; other processes may write meanwhile."`
	Restore nodeRestoreCommand `cmd:"" help:"Restore a store from a backup."`
	Stat    nodeStatCommand    `cmd:"" help:"Show figures about a store."`
	Compact nodeCompactCommand `cmd:"" help:"Return the space of deleted nodes to the file system."`
}

// nodePathHelp describes paths in the help of commands.
const nodePathHelp = `A path is a name and subscripts, as in ^users(7,"name"). Quote it with single quotes for the shell. Write
strings in double quotes, double a double quote in them, and write $C(10) for the byte 10, as in
"a"_$C(10)_"b". 7 and "7" are one subscript.`

// folderArgument is the folder of the store.
type folderArgument struct {
	Folder string `arg:"" help:"Folder of the store."`
}

// view opens the store read-only and calls use.
func (f folderArgument) view(use func(ctx context.Context, s *nodedb.Store) error) error {
	return f.with(nodedb.Options{ReadOnly: true}, use)
}

// with opens the store, calls use and closes it. SIGINT and SIGTERM end the context.
func (f folderArgument) with(o nodedb.Options, use func(ctx context.Context, s *nodedb.Store) error) error {
	store, err := nodedb.Open(f.Folder, o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err = use(ctx, store)
	if closed := store.Close(); err == nil {
		err = closed
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// nodeArgument is a path in a store.
type nodeArgument struct {
	folderArgument
	Path string `arg:"" help:"Path of the node, as in '^users(7,\"name\")'."`
}

func (n nodeArgument) parse() (nodedb.Path, error) { return parsePath(n.Path) }

func parsePath(text string) (nodedb.Path, error) {
	p, err := nodedb.ParsePath(text)
	switch {
	case errors.Is(err, nodedb.ErrUnavailable):
		return p, err
	case err != nil:
		return p, usageError(fmt.Sprintf("%v; a path looks like '^users(7,\"name\")'", err))
	case !strings.HasPrefix(text, "^"):
		return p, usageError(fmt.Sprintf("invalid path %[1]s: the name of a stored node begins with ^; write '^%[1]s'", text))
	}
	return p, nil
}

type nodeGetCommand struct {
	nodeArgument
	JSON bool `name:"json" help:"Print a JSON object with path, type, value and time to live."`
}

func (nodeGetCommand) Help() string {
	return nodePathHelp + `

Exit code: 0 if the node has a value, 1 otherwise.

Examples:
  perigee node get state '^users(7,"name")'
  perigee node get state '^sessions("k3j9")' --json | jq .ttl_ms`
}

// nodeJSON is a node as the commands print it.
type nodeJSON struct {
	Path  nodedb.Path  `json:"path"`
	Type  string       `json:"type"`
	Value nodedb.Value `json:"value"`
	TTL   *int64       `json:"ttl_ms,omitempty"`
}

func (g *nodeGetCommand) Run(c *console) error {
	path, err := g.parse()
	if err != nil {
		return err
	}
	return g.view(func(ctx context.Context, s *nodedb.Store) error {
		return s.View(ctx, func(tx *nodedb.Tx) error {
			value, err := tx.Get(path)
			switch {
			case err != nil:
				return err
			case !value.Exists():
				return missing(tx, path, g.Folder)
			case !g.JSON:
				_, err = fmt.Fprintln(c.out, value)
				return err
			}
			ttl, limited, err := tx.TTL(path)
			if err != nil {
				return err
			}
			node := nodeJSON{Path: path, Type: value.Kind().String(), Value: value}
			if limited {
				ms := ttl.Milliseconds()
				node.TTL = &ms
			}
			return newEncoder(c.out).Encode(node)
		})
	})
}

// missing returns the error for a node without a value.
func missing(tx *nodedb.Tx, path nodedb.Path, folder string) error {
	_, descendants, err := tx.Data(path)
	if err != nil {
		return err
	}
	if descendants {
		return event.WithHint(fmt.Errorf("%v has no value", path), fmt.Sprintf("it has descendants: perigee node walk %s '%v'", folder, path))
	}
	return fmt.Errorf("%v has no value", path)
}

type nodeSetCommand struct {
	nodeArgument
	Value  string        `arg:"" help:"Value: a number, true, false, or any other text."`
	String bool          `help:"Store the value as text, even if it looks like a number, true or false."`
	TTL    time.Duration `name:"ttl" placeholder:"TIME" help:"Delete the value after this time, such as 90m."`
	New    bool          `help:"Fail if the node has a value."`
}

func (nodeSetCommand) Help() string {
	return nodePathHelp + `

A value that looks like a number is stored as a number, and true and false as booleans; --string stores text.
The command creates a missing folder. The value is durable when the command ends.

Examples:
  perigee node set state '^users(7,"name")' Ada
  perigee node set state '^zip("Bonn")' --string 53111
  perigee node set state '^sessions("k3j9")' 7 --ttl 30m --new`
}

func (w *nodeSetCommand) Run(*console) error {
	path, err := w.parse()
	if err != nil {
		return err
	}
	var value any = w.Value
	if !w.String {
		value = nodedb.ParseValue(w.Value)
	}
	return w.with(nodedb.Options{}, func(ctx context.Context, s *nodedb.Store) error {
		return s.Update(ctx, func(tx *nodedb.Tx) error {
			if w.New {
				if done, err := tx.SetNew(path, value); err != nil || !done {
					return errorOr(err, fmt.Errorf("%v has a value; leave out --new to replace it", path))
				}
			} else if err := tx.Set(path, value); err != nil {
				return err
			}
			if w.TTL == 0 {
				return nil
			}
			_, err := tx.Expire(path, w.TTL)
			return err
		})
	})
}

// errorOr returns the first error that is not nil.
func errorOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

type nodeKillCommand struct {
	nodeArgument
	Value bool `name:"value" help:"Delete only the node's value and keep its descendants."`
	Yes   bool `short:"y" help:"Do not ask for confirmation."`
}

func (nodeKillCommand) Help() string {
	return `Deletes a node with all its descendants. For a node with descendants, the command asks for confirmation on a
terminal; elsewhere --yes is required.

` + nodePathHelp + `

Examples:
  perigee node kill state '^users(7,"name")'
  perigee node kill state '^users(7)' --yes
  perigee node kill state '^users(7)' --value`
}

func (k *nodeKillCommand) Run(c *console) error {
	path, err := k.parse()
	if err != nil {
		return err
	}
	if _, err := os.Stat(k.Folder); err != nil { // Open would create it
		return fmt.Errorf("open store: %w", err)
	}
	return k.with(nodedb.Options{}, func(ctx context.Context, s *nodedb.Store) error {
		if k.Value {
			return s.Update(ctx, func(tx *nodedb.Tx) error { return tx.KillValue(path) })
		}
		if !k.Yes {
			if err := k.confirm(ctx, c, s, path); err != nil {
				return err
			}
		}
		return s.Update(ctx, func(tx *nodedb.Tx) error { return tx.Kill(path) })
	})
}

// confirm asks before a node with descendants is deleted.
func (k *nodeKillCommand) confirm(ctx context.Context, c *console, s *nodedb.Store, path nodedb.Path) error {
	var descendants bool
	var count uint64
	err := s.View(ctx, func(tx *nodedb.Tx) (err error) {
		if _, descendants, err = tx.Data(path); err == nil && descendants {
			count, err = tx.Count(ctx, path)
		}
		return err
	})
	if err != nil || !descendants {
		return err
	}
	return c.confirm(fmt.Sprintf("Delete %v with %s values?", path, thousands(count)))
}

type nodeStatCommand struct {
	folderArgument
	JSON bool `name:"json" help:"Print one JSON object."`
}

func (nodeStatCommand) Help() string {
	return `Shows the number of nodes of a store, its disk space, and the numbers of its processes, readers and locks.

Examples:
  perigee node stat state
  perigee node stat state --json | jq .nodes`
}

func (t *nodeStatCommand) Run(c *console) error {
	return t.view(func(_ context.Context, s *nodedb.Store) error {
		stat, err := s.Stat()
		if err != nil {
			return err
		}
		if t.JSON {
			return newEncoder(c.out).Encode(stat)
		}
		return printStat(c.out, stat)
	})
}

func printStat(w io.Writer, s nodedb.Stat) error {
	table := newTable("figure", "value", "meaning")
	for _, row := range [][3]any{
		{"nodes", thousands(s.Nodes), "nodes with a value"},
		{"expiring", thousands(s.Expiring), "nodes with a time to live"},
		{"used", byteCount(s.UsedBytes), "space of the file used by nodes"},
		{"free", byteCount(s.FreeBytes), "space of the file for new nodes; compact returns it"},
		{"map", byteCount(s.MapBytes), "largest size of the file before the map grows"},
		{"commits", thousands(s.Commits), "commits so far"},
		{"depth", s.Depth, "depth of the tree of pages"},
		{"processes", s.Processes, "processes with the store open, including this one"},
		{"readers", s.Readers, "snapshots in use by all processes"},
		{"locks", s.Locks, "locks held by sessions"},
	} {
		table.AppendRow(row[:])
	}
	_, err := fmt.Fprintln(w, table.Render())
	return err
}

// byteCount writes n with a unit.
func byteCount(n uint64) string {
	const step = 1024
	unit, x := 0, float64(n)
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; x >= step && unit < len(units)-1; unit++ {
		x /= step
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", x, units[unit])
}
