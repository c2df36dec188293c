package nodedb

import (
	"context"
	"iter"
)

// A Range says what an iteration gives. The zero Range gives all.
type Range struct {
	// From and To bound the subscripts of children; they are inclusive, and From comes first in
	// the direction of travel. nil means no bound.
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

// Walk iterates over the nodes with a value in a subtree, the node itself included, depth first.
// From and To of the range are not used. With the zero Path it walks the whole store.
func (n *nodes) Walk(ctx context.Context, p Path, r Range) iter.Seq2[Node, error] {
	return func(yield func(Node, error) bool) {
		scan := nativeScan{descendants: true, self: true, reverse: r.Reverse, values: !r.NoValues, limit: uint64(max(r.Limit, 0))}
		err := n.iterate(ctx, "walk", p, scan, func(it nativeIterator, i int) bool {
			_, key, value := it.item(i)
			return yield(Node{Path{key: key}, value}, nil)
		})
		if err != nil {
			yield(Node{}, err)
		}
	}
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
