package state

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/sink"
)

// An Editor changes a unit beside the pipeline, which has to be stopped or paused: it takes the
// unit over, and its notes have no events.
type Editor struct {
	*Unit
	writer    sink.NoteWriter
	partition string
}

// editorScript is the name of the script in notes of editors.
const editorScript = "perigee"

// Edit takes over a unit. home is the sink whose notes c.Home keeps. The partition names the
// changes that have no events, such as that of the timers of the unit.
func Edit(ctx context.Context, c *Config, home sink.Sink, unit, partition string) (*Editor, error) {
	u := makeUnit(replica{config: c, name: unit})
	if err := u.takeOver(ctx); err != nil {
		return nil, fmt.Errorf("open unit %s of state %s: %w", unit, c.Name, errors.Join(err, u.close()))
	}
	u.start()
	writer, _, err := home.Open(ctx, partition)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open sink %s: %w", c.HomeName, err), u.Close())
	}
	return &Editor{u, writer.(sink.NoteWriter), partition}, nil
}

// Commit makes the changes of a delivery the next note.
func (e *Editor) Commit(ctx context.Context, d *Delivery) error {
	if err := d.Freeze(); err != nil {
		return err
	}
	data, err := e.Encode(d, Note{Script: editorScript, Partition: e.partition})
	if err != nil {
		return err
	}
	note := e.Next(data)
	if err := e.writer.WriteNote(ctx, &event.Output{Partition: e.partition}, e.Home(), note); err != nil {
		return fmt.Errorf("write note %d of unit %s: %w", note.Number, e.name, err)
	}
	e.Committed(note)
	if err := e.Apply(d, note); err != nil {
		return err
	}
	e.mu.Lock()
	isNext := e.delivered+1 == note.Number
	e.mu.Unlock()
	if isNext {
		e.Delivered(note.Number)
	}
	return nil
}

// killsMax is how many trees one note removes.
const killsMax = 1000

// Empty removes all nodes and timers.
func (e *Editor) Empty(ctx context.Context) error {
	for {
		d, err := e.Begin()
		if err != nil {
			return err
		}
		var names []string
		for child, err := range d.Tx().Children(ctx, nodedb.Path{}, nodedb.Range{Limit: killsMax, NoValues: true}) {
			if err != nil {
				return err
			}
			names = append(names, child.Subscript.String())
		}
		if len(names) == 0 {
			return d.Discard()
		}
		for _, name := range names {
			if err := d.Tx().Kill(nodedb.Name(name)); err != nil {
				return err
			}
		}
		if err := e.Commit(ctx, d); err != nil {
			return err
		}
	}
}

// Close ends the edit, and writes the copy to disk.
func (e *Editor) Close() error { return errors.Join(e.writer.Close(), e.Unit.Close()) }
