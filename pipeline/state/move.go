package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/sink"
)

// A Move gives a unit the content that it had after an earlier note, together with a new position of a
// partition. It adds notes with the nodes that differ, and removes none: copies, followers and the
// archive take them as all others.
//
// From the first of these notes until both the unit and the position are set, Open refuses the unit. A
// move that was interrupted is completed by another one of the same partition.
type Move struct {
	Pipeline  string `json:"pipeline"`
	Partition string `json:"partition"`
	Next      uint64 `json:"next"` // the position
	Note      uint64 `json:"note"` // 0: before the first note
}

// command is the command that makes the move.
func (m *Move) command() string {
	return fmt.Sprintf("perigee position set CONFIG %s %d --partition %q --state %d", m.Pipeline, m.Next, m.Partition, m.Note)
}

// NodeChanges counts the nodes that a move has changed.
type NodeChanges struct {
	Set     uint64 `json:"set"`
	Removed uint64 `json:"removed"`
}

// moveNode has the Move of the unit that has begun and is not complete. Scripts cannot use its name.
var moveNode = nodedb.Name("^%move")

// moveBytes is how much memory the changes of one note take. Tests change it.
var moveBytes = 4 << 20

// pendingMove returns the move that was interrupted; nil if none was.
func pendingMove(tx *nodedb.Tx) (*Move, error) {
	v, err := tx.Get(moveNode)
	if err != nil || v.Kind() == nodedb.Absent {
		return nil, err
	}
	m := new(Move)
	if err := json.Unmarshal([]byte(v.String()), m); err != nil {
		return nil, fmt.Errorf("read node %v: %w", moveNode, err)
	}
	return m, nil
}

// pendingMove returns the move of the unit that was interrupted; nil if none was.
func (u *Unit) pendingMove(ctx context.Context) (m *Move, err error) {
	err = u.View(ctx, func(tx *nodedb.Tx) error {
		m, err = pendingMove(tx)
		return err
	})
	return m, err
}

// checkMoved refuses a unit whose move was interrupted.
func (u *Unit) checkMoved(ctx context.Context) error {
	m, err := u.pendingMove(ctx)
	if err != nil || m == nil {
		return err
	}
	return u.refuse(fmt.Errorf("setting unit %s of state %s to note %d and partition %s to position %d was interrupted", u.name, u.config.Name, m.Note, m.Partition, m.Next),
		"complete it: "+m.command())
}

// Move sets a unit and a position. home is the sink whose notes c.Home keeps, and timers names the changes
// that have no events. setPosition sets the position at all sinks; it may be called again. relative says
// that the position was computed from the present one: then a move that was interrupted is refused,
// which may have set it already.
func (c *Config) Move(ctx context.Context, m Move, relative bool, home sink.Sink, unit, timers string, setPosition func(context.Context) error) (changes NodeChanges, err error) {
	p, err := c.findPast(ctx, unit, m.Note)
	if err != nil {
		return changes, err
	}
	if err := p.u.createFolder(); err != nil {
		return changes, err
	}
	old, err := p.open(ctx)
	if err != nil {
		return changes, err
	}
	defer func() {
		err = errors.Join(err, old.Close())
		if err == nil { // else the next attempt uses it
			err = os.RemoveAll(p.building)
		}
	}()
	e, err := Edit(ctx, c, home, unit, timers)
	if err != nil {
		return changes, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := e.checkMove(ctx, m, relative, old); err != nil {
		return changes, err
	}
	w := moveWriter{e: e}
	if err := w.mark(ctx, m); err != nil {
		return changes, err
	}
	if err := w.copyFrom(ctx, old); err != nil {
		return w.changes, err
	}
	if err := setPosition(ctx); err != nil {
		return w.changes, err
	}
	return w.changes, w.unmark(ctx)
}

// checkMove refuses a move that would not do what its caller expects.
func (e *Editor) checkMove(ctx context.Context, m Move, relative bool, old *nodedb.Unit) error {
	pending, err := e.pendingMove(ctx)
	if err != nil {
		return err
	}
	if pending != nil && (relative || pending.Partition != m.Partition) {
		return event.WithHint(fmt.Errorf("setting unit %s to note %d and partition %s to position %d was interrupted", e.name, pending.Note, pending.Partition, pending.Next), "complete it first: "+pending.command())
	}
	var incomplete *Move
	err = old.View(ctx, func(tx *nodedb.Tx) error {
		incomplete, err = pendingMove(tx)
		return err
	})
	if err == nil && incomplete != nil {
		return event.WithHint(fmt.Errorf("after note %d, unit %s was in the middle of a move to note %d", m.Note, e.name, incomplete.Note), fmt.Sprintf("use --state %d, or a later note", incomplete.Note))
	}
	if err != nil {
		return err
	}
	first, err := e.firstUndelivered(ctx)
	if err == nil && first > 0 {
		err = event.WithHint(fmt.Errorf(undelivered, e.name, first), "resume the pipeline until it has written them, and pause it again")
	}
	return err
}

// A moveWriter writes the notes of a move.
type moveWriter struct {
	e       *Editor
	open    *Delivery // what is not committed yet; nil for nothing
	changes NodeChanges
}

// tx returns the transaction of the next note.
func (w *moveWriter) tx(ctx context.Context) (*nodedb.Tx, error) {
	if w.open == nil {
		if err := w.e.WaitForRoom(ctx, w.e.reportWait); err != nil {
			return nil, err
		}
		var err error
		if w.open, err = w.e.Begin(); err != nil {
			return nil, err
		}
	}
	return w.open.Tx(), nil
}

// flush commits what is not committed yet.
func (w *moveWriter) flush(ctx context.Context) error {
	d := w.open
	if d == nil {
		return nil
	}
	w.open = nil
	if err := w.e.Commit(ctx, d); err != nil {
		return err
	}
	w.e.config.callOnStep(InMove)
	return ctx.Err()
}

// mark says in the unit that a move has begun.
func (w *moveWriter) mark(ctx context.Context, m Move) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	tx, err := w.tx(ctx)
	if err != nil {
		return err
	}
	return tx.Set(moveNode, text)
}

// unmark says in the unit that the move is complete.
func (w *moveWriter) unmark(ctx context.Context) error {
	tx, err := w.tx(ctx)
	if err == nil {
		err = tx.Kill(moveNode)
	}
	if err != nil {
		return err
	}
	return w.flush(ctx)
}

// copyFrom makes the nodes those of an older state of the unit. It reads both in the order of their
// paths, and writes what differs. Time does not go back: a node that would have expired since is
// left out.
func (w *moveWriter) copyFrom(ctx context.Context, old *nodedb.Unit) error {
	from, to := readNodes(old), readNodes(w.e.copy)
	reported, seen := time.Now(), 0
	for {
		want, err := from.peek(ctx)
		if err != nil {
			return err
		}
		has, err := to.peek(ctx)
		if err != nil {
			return err
		}
		if want == nil && has == nil {
			return w.flush(ctx)
		}
		order := 0
		switch {
		case want == nil:
			order = 1
		case has == nil:
			order = -1
		default:
			order = want.Path.Compare(has.Path)
		}
		if order <= 0 {
			from.next()
		}
		if order >= 0 {
			to.next()
		}
		switch {
		case order > 0:
			want = nil
		case order < 0:
			has = nil
		}
		if err := w.replace(ctx, has, want); err != nil {
			return err
		}
		if seen++; time.Since(reported) >= 10*time.Second {
			reported = time.Now()
			w.e.log.Info("setting the state to an earlier note", "nodes compared", seen, "set", w.changes.Set, "removed", w.changes.Removed)
		}
	}
}

// replace replaces a node by one with the same path. Either may be nil.
func (w *moveWriter) replace(ctx context.Context, has, want *expiringNode) error {
	if want != nil && !want.expiry.IsZero() && !want.expiry.After(w.e.Now()) {
		want = nil
	}
	if want == nil && has == nil || want != nil && has != nil && want.Value == has.Value && want.expiry.Equal(has.expiry) {
		return nil
	}
	tx, err := w.tx(ctx)
	if err != nil {
		return err
	}
	if want == nil {
		w.changes.Removed++
		err = tx.KillValue(has.Path)
	} else {
		w.changes.Set++
		if err = tx.Set(want.Path, want.Value); err == nil && !want.expiry.IsZero() {
			_, err = tx.ExpireAt(want.Path, want.expiry)
		}
	}
	if err == nil && w.open.Bytes() >= moveBytes {
		err = w.flush(ctx)
	}
	return err
}
