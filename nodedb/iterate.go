package nodedb

import (
	"context"
	"iter"
	"strings"
	"time"
)

// A Range says what an iteration gives. The zero Range gives all.
type Range struct {
	// From and To are bounds, both inclusive; From comes first in the direction of travel, and nil
	// means no bound. For Children they are subscripts. For Walk they are subscripts of children or
	// Paths below the node, and stand for all that is below them, too.
	From, To any
	Limit    int // the most items; 0: all
	Reverse  bool
	NoValues bool // leave the values out, which is quicker
}

// A Child is a child of a node.
type Child struct {
	Subscript Value
	Value     Value // Absent if only its descendants have values
}

// A Node is a node with a value.
type Node struct {
	Path  Path
	Value Value
}

// Children iterates over the children of a node in their order. It sees changes that are made
// meanwhile behind where it stands. It ends with an error, and when ctx ends.
//
// With the zero Path it iterates over the names of the store.
func (n *nodes) Children(ctx context.Context, p Path, r Range) iter.Seq2[Child, error] {
	return func(yield func(Child, error) bool) {
		scan := nativeScan{reverse: r.Reverse, values: !r.NoValues, limit: uint64(max(r.Limit, 0))}
		var err error
		if scan.from, err = ValueOf(r.From); err == nil {
			scan.to, err = ValueOf(r.To)
		}
		if err == nil {
			err = n.iterate(ctx, "iterate over", p, scan, func(it nativeIterator, i int) bool {
				subscript, _, value := it.item(i)
				return yield(Child{subscript, value}, nil)
			})
		}
		if err != nil {
			yield(Child{}, err)
		}
	}
}

// Walk iterates over the nodes with a value in a subtree, the node itself included, depth first. With
// the zero Path it walks the whole store. With a bound it begins with the first node within the
// bound.
func (n *nodes) Walk(ctx context.Context, p Path, r Range) iter.Seq2[Node, error] {
	return func(yield func(Node, error) bool) {
		scan, err := r.walk(p)
		if err != nil {
			yield(Node{}, err)
			return
		}
		err = n.iterate(ctx, "walk", p, scan, func(it nativeIterator, i int) bool {
			_, key, value := it.item(i)
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
	// The end of a node's descendants is its key with 0xFF behind it.
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

// boundOf returns the key of a bound of a walk of p, "" for none.
func boundOf(p Path, bound any) (string, error) {
	if bound == nil {
		return "", nil
	}
	at, isPath := bound.(Path)
	switch {
	case isPath && (at.IsZero() || !strings.HasPrefix(at.key, p.key)):
		return "", invalid("walk", "the bound %v does not lie below %v", at, p)
	case !isPath && p.IsZero():
		return "", invalid("walk", "a bound of a walk of the whole store is a Path, not %v", bound)
	case !isPath:
		at = p.At(bound)
	}
	return at.key, at.err
}

// iterate calls use with the items of a scan until it returns false.
func (n *nodes) iterate(ctx context.Context, op string, p Path, scan nativeScan, use func(it nativeIterator, i int) bool) error {
	return n.eachBatch(ctx, op, p, scan, func(it nativeIterator, count int) (bool, error) {
		for i := range count {
			if !use(it, i) {
				return false, nil
			}
		}
		return true, nil
	})
}

// eachBatch calls use with the batches of a scan until it returns false or an error.
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

// Count returns the number of nodes with a value in a subtree, the node itself included.
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

// Merge copies the value and the descendants of one node to another. Outside a transaction it does
// so in a transaction of its own. One node must not lie below the other.
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

// KillRange deletes the children of a node from one subscript to another, both inclusive, with their
// descendants; nil means no bound. Outside a transaction it does so in one of its own.
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

// ExpireTree is Expire for all nodes of a subtree that have a value now. Outside a transaction it is
// one of its own. Nodes that are set later have no limit.
func (tx *Tx) ExpireTree(ctx context.Context, p Path, ttl time.Duration) error {
	if err := checkLifetime("expire", ttl); err != nil {
		return err
	}
	if ttl == 0 {
		return tx.expireTree(ctx, p, longPast)
	}
	return tx.expireTree(ctx, p, millisecondOf(time.Now().Add(ttl)))
}

// ExpireTreeAt is ExpireTree at a time; the zero Time removes the limits.
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

// inSteps repeats step until there are no more, or ctx ends.
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
