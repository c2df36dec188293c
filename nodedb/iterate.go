package nodedb

import (
	"context"
	"iter"
	"strings"
	"time"
)

// A Range selects the items of an iteration. The zero Range selects all.
type Range struct {
	// From and To are inclusive bounds; nil means no bound. From is the first in the direction of
	// iteration. For Children they are subscripts. For Walk they are subscripts of children, or
	// Paths below the node, and include their descendants.
	From, To any
	Limit    int // maximum number of items; 0: no limit
	Reverse  bool
	NoValues bool // omit the values, which is faster
}

// A Child is a child of a node.
type Child struct {
	Subscript Value
	Value     Value // Absent if only its descendants have values
}

// A Node is a node that has a value.
type Node struct {
	Path  Path
	Value Value
}

// Children iterates over the children of a node in order. It sees changes made during the iteration
// after its current position. It stops with an error, and when ctx ends.
//
// For the zero Path it iterates over the names of the store.
func (n *nodes) Children(ctx context.Context, p Path, r Range) iter.Seq2[Child, error] {
	return func(yield func(Child, error) bool) {
		scan := nativeScan{reverse: r.Reverse, values: !r.NoValues, limit: uint64(max(r.Limit, 0))}
		var err error
		if scan.from, err = ValueOf(r.From); err == nil {
			scan.to, err = ValueOf(r.To)
		}
		if err == nil {
			err = n.iterate(ctx, "iterate over", p, scan, func(subscript Value, _ string, value Value) bool {
				return yield(Child{subscript, value}, nil)
			})
		}
		if err != nil {
			yield(Child{}, err)
		}
	}
}

// Walk iterates depth first over the nodes of a subtree that have a value, the node itself
// included. For the zero Path it walks the whole store. With a bound it starts at the first node
// within it.
func (n *nodes) Walk(ctx context.Context, p Path, r Range) iter.Seq2[Node, error] {
	return func(yield func(Node, error) bool) {
		scan, err := r.walk(p)
		if err != nil {
			yield(Node{}, err)
			return
		}
		err = n.iterate(ctx, "walk", p, scan, func(_ Value, key string, value Value) bool {
			return yield(Node{Path{key: key}, value}, nil)
		})
		if err != nil {
			yield(Node{}, err)
		}
	}
}

// walk returns the scan of a Walk.
func (r Range) walk(p Path) (scan nativeScan, err error) {
	scan = nativeScan{descendants: true, self: true, reverse: r.Reverse, values: !r.NoValues, limit: uint64(max(r.Limit, 0))}
	from, err := boundOf(p, r.From)
	if err != nil {
		return scan, err
	}
	to, err := boundOf(p, r.To)
	if err != nil {
		return scan, err
	}
	// The descendants of a node end before its key followed by 0xFF.
	const end = "\xff"
	if r.Reverse && from != "" {
		from += end
	} else if !r.Reverse && to != "" {
		to += end
	}
	if from != "" {
		scan.from = Value{kind: String, text: from}
	}
	if to != "" {
		scan.to = Value{kind: String, text: to}
	}
	return scan, nil
}

// boundOf returns the key of a bound of a walk of p, "" for nil.
func boundOf(p Path, bound any) (string, error) {
	if bound == nil {
		return "", nil
	}
	at, isPath := bound.(Path)
	switch {
	case isPath && (at.IsZero() || !strings.HasPrefix(at.key, p.key)):
		return "", invalid("walk", "the bound %v is not below %v", at, p)
	case !isPath && p.IsZero():
		return "", invalid("walk", "invalid bound %v: a walk of the whole store takes a Path", bound)
	case !isPath:
		at = p.At(bound)
	}
	return at.key, at.err
}

// iterate calls use with each item of a scan until use returns false. It reads each item under the
// session's mutex, because use, or another goroutine, may close the session, which owns the items.
func (n *nodes) iterate(ctx context.Context, op string, p Path, scan nativeScan, use func(subscript Value, key string, value Value) bool) error {
	return n.eachBatch(ctx, op, p, scan, func(it nativeIterator, count int) (bool, error) {
		for i := range count {
			var subscript, value Value
			var key string
			err := n.call(op, p, func(nativeSession) error {
				subscript, key, value = it.item(i)
				return nil
			})
			if err != nil || !use(subscript, key, value) {
				return false, err
			}
		}
		return true, nil
	})
}

// eachBatch calls use with each batch of a scan until use returns false or an error. use reads the
// batch within n.call.
func (n *nodes) eachBatch(ctx context.Context, op string, p Path, scan nativeScan, use func(it nativeIterator, count int) (bool, error)) error {
	if err := n.usable(op, p); err != nil {
		return err
	}
	it, err := n.session.iterate(p.key, scan)
	if err != nil {
		return named(err, op, p)
	}
	defer n.session.closeIterator(it)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var count int
		err := n.call(op, p, func(nativeSession) (err error) {
			count, err = it.fill()
			return err
		})
		if err != nil || count == 0 {
			return err
		}
		if more, err := use(it, count); !more || err != nil {
			return err
		}
	}
}

// Count returns the number of nodes in a subtree that have a value, the node itself included.
func (n *nodes) Count(ctx context.Context, p Path) (count uint64, err error) {
	var at position
	err = n.inSteps(ctx, func() (more bool, err error) {
		err = n.call("count", p, func(core nativeSession) (err error) {
			more, err = core.count(p.key, &at, &count)
			return err
		})
		return more, err
	})
	return count, err
}

// Merge copies the value and the descendants of a node to another node. Neither node may be a
// descendant of the other.
func (tx *Tx) Merge(ctx context.Context, to, from Path) error {
	if from.err != nil {
		return from.err
	}
	var at position
	return tx.inSteps(ctx, func() (more bool, err error) {
		err = tx.change("merge into", to, func(core nativeSession) (err error) {
			more, err = core.merge(to.key, from.key, &at)
			return err
		})
		return more, err
	})
}

// Merge is Tx.Merge in a transaction of its own.
func (s *Session) Merge(ctx context.Context, to, from Path) error {
	_, err := update(ctx, s.session, func(tx *Tx) error { return tx.Merge(ctx, to, from) })
	return err
}

// KillRange deletes the children of a node between two subscripts, both inclusive, with their
// descendants; nil means no bound.
func (tx *Tx) KillRange(ctx context.Context, p Path, from, to any) error {
	low, err := ValueOf(from)
	if err != nil {
		return err
	}
	high, err := ValueOf(to)
	if err != nil {
		return err
	}
	var at position
	return tx.inSteps(ctx, func() (more bool, err error) {
		err = tx.change("kill a range of", p, func(core nativeSession) (err error) {
			more, err = core.killRange(p.key, low, high, &at)
			return err
		})
		return more, err
	})
}

// KillRange is Tx.KillRange in a transaction of its own.
func (s *Session) KillRange(ctx context.Context, p Path, from, to any) error {
	_, err := update(ctx, s.session, func(tx *Tx) error { return tx.KillRange(ctx, p, from, to) })
	return err
}

// ExpireTree is Expire for all nodes of a subtree that have a value now. Nodes set later do not
// expire.
func (tx *Tx) ExpireTree(ctx context.Context, p Path, ttl time.Duration) error {
	if err := checkLifetime("expire", ttl); err != nil {
		return err
	}
	if ttl == 0 {
		return tx.expireTree(ctx, p, longPast)
	}
	return tx.expireTree(ctx, p, millisecondOf(time.Now().Add(ttl)))
}

// ExpireTreeAt is ExpireTree at a time; the zero Time removes the expiry.
func (tx *Tx) ExpireTreeAt(ctx context.Context, p Path, at time.Time) error {
	if at.IsZero() {
		return tx.expireTree(ctx, p, 0)
	}
	return tx.expireTree(ctx, p, millisecondOf(at))
}

func (tx *Tx) expireTree(ctx context.Context, p Path, ms uint64) error {
	var at position
	return tx.inSteps(ctx, func() (more bool, err error) {
		err = tx.change("expire the subtree of", p, func(core nativeSession) (err error) {
			more, err = core.expireTree(p.key, ms, &at)
			return err
		})
		return more, err
	})
}

// ExpireTree is Tx.ExpireTree in a transaction of its own.
func (s *Session) ExpireTree(ctx context.Context, p Path, ttl time.Duration) error {
	_, err := update(ctx, s.session, func(tx *Tx) error { return tx.ExpireTree(ctx, p, ttl) })
	return err
}

// ExpireTreeAt is Tx.ExpireTreeAt in a transaction of its own.
func (s *Session) ExpireTreeAt(ctx context.Context, p Path, at time.Time) error {
	_, err := update(ctx, s.session, func(tx *Tx) error { return tx.ExpireTreeAt(ctx, p, at) })
	return err
}

// inSteps calls step until it returns false or an error, or ctx ends.
func (n *nodes) inSteps(ctx context.Context, step func() (more bool, err error)) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if more, err := step(); !more || err != nil {
			return err
		}
	}
}
