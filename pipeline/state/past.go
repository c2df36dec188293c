package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/sink"
)

// A PastNote describes an earlier note of a unit.
type PastNote struct {
	Number uint64    `json:"number"`          // 0: before the first note
	Last   uint64    `json:"last"`            // number of the last note of the unit
	Clock  time.Time `json:"clock,omitzero"`  // of the note
	Next   *uint64   `json:"next,omitempty"`  // position of the partition after the note; nil: unknown
	Behind bool      `json:"behind,omitzero"` // the clock follows the times of events, and is later now
}

// past finds the content of a unit as of an earlier note. It owns nothing at the home, and changes
// nothing but the folder in which it restores the content.
type past struct {
	*restore
	number  uint64
	status  sink.UnitStatus
	history *archive.History
	target  *target
}

// findPast finds the way to the content of a unit as of a note. An error with a hint says why there is
// none.
func (c *Config) findPast(ctx context.Context, name string, number uint64) (*past, error) {
	u := makeUnit(replica{config: c, name: name})
	u.home = &unownedUnit{c, name}
	status, err := u.home.Status(ctx)
	if err != nil {
		return nil, err
	}
	if number > status.Last {
		return nil, event.WithHint(fmt.Errorf("unit %s of state %s has no note %d yet: its last one is %d", name, c.Name, number, status.Last), "perigee state list shows the last note of each unit")
	}
	p := &past{restore: u.newRestore(c.folderOf(name)), number: number, status: status, history: &archive.History{}}
	p.building = p.folder + "~past"
	if p.store != nil {
		if p.history, err = p.store.List(ctx); err != nil {
			return nil, err
		}
	}
	if p.target, err = p.findTarget(ctx); err != nil {
		return nil, err
	}
	base, err := findBase(ctx, p.store, p.history, p.target, nil)
	if err == nil && base == nil {
		err = p.unreachable(ctx, p.target.end)
	}
	return p, err
}

// findTarget returns the note on the way that the archive has to lead to: the one before the first that
// the home keeps, or that of the number if it is older.
func (p *past) findTarget(ctx context.Context) (*target, error) {
	if p.number == 0 {
		return &target{}, nil
	}
	end, err := p.u.firstKept(ctx, p.status)
	if err != nil {
		return nil, err
	}
	if p.number >= end.Number {
		return &target{end, p.number, p.u.sumAtHome}, nil
	}
	chain, err := p.history.ChainTo(ctx, end)
	if err != nil {
		return nil, err
	}
	at, found, err := chain.Point(ctx, p.number)
	if err == nil && !found {
		err = p.unreachable(ctx, end)
	}
	return &target{end: at, last: p.number}, err
}

// unreachable says why the content cannot be restored.
func (p *past) unreachable(ctx context.Context, end archive.Point) error {
	c := p.u.config
	missing, hint := fmt.Sprintf("state %s has no archive", c.Name), "choose a later note; with an archive, older ones can be restored: archive: {to: s3://BUCKET/PREFIX, keep: 7d}"
	if p.store != nil {
		var err error
		if missing, err = p.missing(ctx, p.history, end); err != nil {
			return err
		}
		hint = fmt.Sprintf("choose a later note; perigee state verify CONFIG %s --unit %q lists what the archive has, and what is damaged", c.Name, p.u.name)
	}
	return event.WithHint(fmt.Errorf("the content of unit %s as of note %d cannot be restored: sink %s keeps only the changes from note %d on, and %s",
		p.u.name, p.number, c.HomeName, p.status.First, missing), hint)
}

// open restores the content in a folder beside the copy, or continues to, and opens it.
func (p *past) open(ctx context.Context) (unit *nodedb.Unit, err error) {
	found, err := p.restoreTo(ctx, p.history, p.target)
	if err == nil && !found || archive.IsUnreadable(err) {
		return nil, errors.Join(err, p.unreachable(ctx, p.target.end))
	}
	if err != nil {
		return nil, err
	}
	if unit, err = nodedb.OpenUnit(p.building, nodedb.UnitOptions{FlushAge: p.u.config.FlushAge}); err != nil {
		return nil, fmt.Errorf("open what was restored of unit %s: %w", p.u.name, err)
	}
	if err := p.applyKept(ctx, unit); err != nil {
		return nil, errors.Join(err, unit.Close())
	}
	return unit, nil
}

// applyKept applies the notes of the home that follow those of the archive.
func (p *past) applyKept(ctx context.Context, unit *nodedb.Unit) error {
	applied, _, sum := unit.Positions()
	at := archive.Point{Number: applied, Sum: sum}
	if at.Number < p.number {
		err := p.u.home.Notes(ctx, at.Number+1, func(n *sink.Note) error {
			if n.Number > p.number {
				return errEnough
			}
			note, err := decodeNote(n)
			if err == nil {
				err = checkNote(n, at)
			}
			if err != nil {
				return fmt.Errorf("note %d of unit %s in sink %s: %w", n.Number, p.u.name, p.u.config.HomeName, err)
			}
			at = archive.Point{Number: n.Number, Sum: n.Sum}
			return applyNote(unit, note)
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	if at.Number != p.number {
		return fmt.Errorf("unit %s is restored up to note %d, want %d", p.u.name, at.Number, p.number)
	}
	return nil
}

// PastNote describes a note to which the unit can be set, and the position that a partition had after
// it. An error with a hint says why it cannot be set to that.
func (c *Config) PastNote(ctx context.Context, unit string, number uint64, partition string) (*PastNote, error) {
	p, err := c.findPast(ctx, unit, number)
	if err != nil {
		return nil, err
	}
	n := &PastNote{Number: number, Last: p.status.Last, Behind: c.EventTime != nil && number < p.status.Last}
	return n, p.describe(ctx, n, partition)
}

const (
	pastNotes    = 1000 // of the home, in which the position of a partition is looked for
	pastSegments = 8    // of the archive
)

// describe sets the clock of a note, and the position after it: that after the last note of the
// partition, since other notes are those of timers or of other partitions.
func (p *past) describe(ctx context.Context, of *PastNote, partition string) error {
	foundIn := uint64(0)
	look := func(n *sink.Note) error {
		if n.Number > p.number {
			return errEnough
		}
		note, err := decodeNote(n)
		if err != nil {
			return fmt.Errorf("note %d of unit %s: %w", n.Number, p.u.name, err)
		}
		if n.Number == p.number {
			of.Clock = note.Clock
		}
		if note.Partition == partition && note.Range.Count > 0 && n.Number > foundIn {
			next := note.Range.End()
			of.Next, foundIn = &next, n.Number
		}
		return nil
	}
	if p.number >= p.status.First && p.number > 0 {
		err := p.u.home.Notes(ctx, max(p.status.First, p.number-min(p.number, pastNotes), 1), look)
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	if foundIn > 0 {
		return nil
	}
	chain, err := p.history.ChainTo(ctx, p.target.end)
	if err != nil {
		return err
	}
	for i, s := range chain.Backward() {
		if i == pastSegments || s.Last <= foundIn {
			break
		}
		notes, err := p.store.ReadSegment(ctx, s.SegmentName)
		if archive.IsUnreadable(err) {
			break // the position stays unknown
		}
		for _, n := range notes {
			if err == nil && n.Number <= s.Last {
				err = look(n)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
