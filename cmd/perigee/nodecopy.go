package main

import (
	"context"
	"fmt"

	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/nodedb"
)

type nodeCheckCommand struct {
	folderArgument
}

func (nodeCheckCommand) Help() string {
	return `Reads every page, key and value of the store, and compares its counts and its index of times to live with the
nodes. Other processes may write meanwhile.

Exit code: 0 without faults, 1 otherwise.

Example:
  perigee node check state`
}

func (k *nodeCheckCommand) Run(c *console) error {
	return k.view(func(_ context.Context, s *nodedb.Store) error {
		hide := spin(c, "checking")
		var lines []string
		faults, err := s.Check(func(fault string) {
			if len(lines) < faultsShown {
				lines = append(lines, fault)
			}
		})
		hide()
		for _, line := range lines {
			fmt.Fprintln(c.out, terminal.EscapeLine(line))
		}
		if faults > len(lines) {
			fmt.Fprintf(c.out, "and %s more\n", thousands(uint64(faults-len(lines))))
		}
		switch {
		case err != nil:
			return err
		case faults > 0:
			return fmt.Errorf("%s: %s; replace the store by a backup, or dump its readable nodes", s.Folder(), countOf(faults, "fault"))
		}
		stat, err := s.Stat()
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "ok: %s nodes\n", thousands(stat.Nodes))
		return nil
	})
}

// faultsShown is the maximum number of faults that check prints.
const faultsShown = 100

type nodeBackupCommand struct {
	folderArgument
	Target string `arg:"" help:"Folder of the backup; it must be missing or empty."`
}

func (nodeBackupCommand) Help() string {
	return `Copies the store as it is at one moment; other processes may read and write meanwhile. The copy is a store
without the space of deleted nodes. Every command works on it.

Examples:
  perigee node backup state backups/2026-11-22
  perigee node restore backups/2026-11-22 state`
}

func (b *nodeBackupCommand) Run(c *console) error {
	return b.view(func(_ context.Context, s *nodedb.Store) error {
		hide := spin(c, "copying")
		err := s.Backup(b.Target)
		hide()
		if err == nil {
			fmt.Fprintf(c.out, "copied %s to %s\n", b.Folder, b.Target)
		}
		return err
	})
}

type nodeRestoreCommand struct {
	Backup string `arg:"" help:"Folder of the backup."`
	Folder string `arg:"" help:"Folder of the new store; it must be missing or empty."`
}

func (nodeRestoreCommand) Help() string {
	return `Copies a backup into a new folder. To replace a store, first stop its processes and rename its folder.

Example:
  mv state state.broken && perigee node restore backups/2026-11-22 state`
}

func (r *nodeRestoreCommand) Run(c *console) error {
	hide := spin(c, "copying")
	err := nodedb.Restore(r.Backup, r.Folder)
	hide()
	if err == nil {
		fmt.Fprintf(c.out, "restored %s from %s\n", r.Folder, r.Backup)
	}
	return err
}

type nodeCompactCommand struct {
	folderArgument
}

func (nodeCompactCommand) Help() string {
	return `Rewrites a store without the space of deleted nodes. Without compact, the file keeps this space for new
nodes. First stop all processes that have the store open.

Example:
  perigee node compact state`
}

func (m *nodeCompactCommand) Run(c *console) error {
	hide := spin(c, "compacting")
	err := nodedb.Compact(m.Folder)
	hide()
	if err == nil {
		fmt.Fprintf(c.out, "compacted %s\n", m.Folder)
	}
	return err
}
