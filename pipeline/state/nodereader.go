package state

import (
	"context"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// An expiringNode is a node with the time at which it expires; zero for never.
type expiringNode struct {
	nodedb.Node
	expiry time.Time
}

// A nodeReader reads the nodes of a unit in the order of their paths, page by page, without what an
// interrupted Move has left. Between two pages the unit may change.
type nodeReader struct {
	view  func(context.Context, func(*nodedb.Tx) error) error
	clock func() (time.Time, error) // of the next view
	page  []expiringNode            // that peek has not passed
	last  nodedb.Path               // of the pages so far; zero before the first
	done  bool                      // no page follows
}

const (
	readerNodes = 1000    // in a page
	readerBytes = 4 << 20 // of values, at which a page ends
)

// readNodes returns a reader of an open unit.
func readNodes(u *nodedb.Unit) nodeReader {
	return nodeReader{view: u.View, clock: func() (time.Time, error) {
		stats, err := u.Stats()
		return stats.Clock, err
	}}
}

// peek returns the next node; nil at the end.
func (r *nodeReader) peek(ctx context.Context) (n *expiringNode, err error) {
	if len(r.page) == 0 && !r.done {
		if r.page, err = r.readPage(ctx); err != nil {
			return nil, err
		}
	}
	if len(r.page) == 0 {
		return nil, nil
	}
	return &r.page[0], nil
}

// next passes the node that peek returned.
func (r *nodeReader) next() { r.page = r.page[1:] }

// readPage returns the nodes of the next page. The last one may have none.
func (r *nodeReader) readPage(ctx context.Context) (page []expiringNode, err error) {
	clock, err := r.clock()
	if err != nil {
		return nil, err
	}
	err = r.view(ctx, func(tx *nodedb.Tx) error {
		var area nodedb.Range
		if !r.last.IsZero() {
			area.From = r.last
		}
		bytes := 0
		for node, err := range tx.Walk(ctx, nodedb.Path{}, area) {
			if err != nil {
				return err
			}
			if node.Path == r.last || node.Path == moveNode {
				continue
			}
			if len(page) == readerNodes || bytes >= readerBytes {
				return nil
			}
			one := expiringNode{Node: node}
			ttl, limited, err := tx.TTL(node.Path)
			if err != nil {
				return err
			}
			if limited {
				one.expiry = clock.Add(ttl)
			}
			page = append(page, one)
			r.last = node.Path
			bytes += len(node.Value.String())
		}
		r.done = true
		return nil
	})
	return page, err
}
