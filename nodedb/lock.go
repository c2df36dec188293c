package nodedb

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lockSlice is the longest single wait for a lock in the core, so that Lock notices the end of ctx.
const lockSlice = 50 * time.Millisecond

// Lock takes the locks of all of the nodes, or of none. It waits until they are free or ctx ends;
// then its error wraps ErrTimeout and ctx's error. While a session holds a lock, no other session,
// of any process, can lock the node, its ancestors or its descendants; they can still read and
// write them. Locks are counted: each Lock needs its Unlock. They end with their session, and with
// the transaction of Store.Update.
func (n *nodes) Lock(ctx context.Context, paths ...Path) error {
	keys := make([]string, len(paths))
	var first Path
	for i, p := range paths {
		if p.err != nil {
			return p.err
		}
		keys[i], first = p.key, paths[0]
	}
	for {
		err := n.call("lock", first, func(core nativeSession) error { return core.lock(keys, lockWait(ctx)) })
		if !errors.Is(err, ErrTimeout) {
			return err
		}
		if ended := ctx.Err(); ended != nil {
			return fmt.Errorf("%w (%w)", err, ended)
		}
	}
}

// lockWait returns how long the core may wait before Lock checks ctx again.
func lockWait(ctx context.Context) time.Duration {
	if ctx.Done() == nil {
		return -1
	}
	if ctx.Err() != nil {
		return 0
	}
	if end, limited := ctx.Deadline(); limited {
		return max(min(time.Until(end), lockSlice), 0)
	}
	return lockSlice
}

// Unlock takes back one Lock of a node, and reports whether the session held it.
func (n *nodes) Unlock(p Path) (held bool, err error) {
	err = n.call("unlock", p, func(core nativeSession) (err error) {
		held, err = core.unlock(p.key)
		return err
	})
	return held, err
}

// UnlockAll takes back all locks of the session.
func (n *nodes) UnlockAll() {
	_ = n.session.call(func(core nativeSession) error { // a closed session has no locks
		core.unlockAll()
		return nil
	})
}
