package nodedb

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"
)

// nodes implements the operations that sessions and transactions share.
type nodes struct {
	session  *sharedSession
	readOnly bool
	inTx     bool        // used by a transaction, not by a session alone
	ended    atomic.Bool // the transaction has ended
}

func (n *nodes) end() { n.ended.Store(true) }

// usable returns an error if the transaction has ended or the path is invalid.
func (n *nodes) usable(op string, p Path) error {
	if p.err == nil && n.ended.Load() {
		return &Error{Op: op, Path: p, Err: ErrClosed, message: "the transaction has ended"}
	}
	return p.err
}

// call calls f with the core, for an operation on a node.
func (n *nodes) call(op string, p Path, f func(nativeSession) error) error {
	if err := n.usable(op, p); err != nil {
		return err
	}
	return named(n.session.call(f), op, p)
}

// change is call for an operation that writes.
func (n *nodes) change(op string, p Path, f func(nativeSession) error) error {
	if n.readOnly && strings.HasPrefix(p.key, "^") {
		return &Error{Op: op, Path: p, Err: ErrReadOnly, message: "the store was opened read-only, or the transaction is a View"}
	}
	return n.call(op, p, f)
}

// changeTo is change for an operation with a value.
func (n *nodes) changeTo(op string, p Path, value any, f func(nativeSession, Value) error) error {
	v, err := ValueOf(value)
	if err != nil {
		return err
	}
	return n.change(op, p, func(core nativeSession) error { return f(core, v) })
}

// Get returns the value of a node; it is Absent if the node has none.
func (n *nodes) Get(p Path) (v Value, err error) {
	err = n.call("get", p, func(core nativeSession) (err error) {
		v, err = core.get(p.key)
		return err
	})
	return v, err
}

// Set sets the value of a node: a string, []byte, number, bool or Value.
func (n *nodes) Set(p Path, value any) error {
	return n.changeTo("set", p, value, func(core nativeSession, v Value) error { return core.set(p.key, v) })
}

// SetNew sets the value of a node unless it has one, and reports whether it did.
func (n *nodes) SetNew(p Path, value any) (done bool, err error) {
	err = n.changeTo("set", p, value, func(core nativeSession, v Value) (err error) {
		done, err = core.setNew(p.key, v)
		return err
	})
	return done, err
}

// CompareAndSet sets the value of a node if its current value equals expected; nil expects no
// value. It reports whether it did.
func (n *nodes) CompareAndSet(p Path, expected, value any) (done bool, err error) {
	old, err := ValueOf(expected)
	if err != nil {
		return false, err
	}
	err = n.changeTo("compare and set", p, value, func(core nativeSession, v Value) (err error) {
		done, err = core.compareAndSet(p.key, old, v)
		return err
	})
	return done, err
}

// Data reports whether a node has a value, and whether it has descendants.
func (n *nodes) Data(p Path) (value, descendants bool, err error) {
	var data int
	err = n.call("look at", p, func(core nativeSession) (err error) {
		data, err = core.data(p.key)
		return err
	})
	return data%10 == 1, data/10 == 1, err
}

// Increment adds a number to the value of a node, in exact decimal, and returns the sum. A missing
// value counts as 0, and text as its longest numeric prefix.
func (n *nodes) Increment(p Path, by any) (sum Value, err error) {
	err = n.changeTo("increment", p, by, func(core nativeSession, v Value) (err error) {
		sum, err = core.increment(p.key, v)
		return err
	})
	return sum, err
}

// KillValue deletes the value of a node and leaves its descendants.
func (n *nodes) KillValue(p Path) error {
	return n.change("kill the value of", p, func(core nativeSession) error { return core.killValue(p.key) })
}

// Kill deletes a node and its descendants, in one step regardless of their number.
func (n *nodes) Kill(p Path) error {
	return n.change("kill", p, func(core nativeSession) error { return core.kill(p.key) })
}

// Delete is another name for Kill: it deletes a node and its descendants.
func (n *nodes) Delete(p Path) error { return n.Kill(p) }

// DeleteValue is another name for KillValue: it keeps the descendants.
func (n *nodes) DeleteValue(p Path) error { return n.KillValue(p) }

// Exists reports whether a node has a value or descendants.
func (n *nodes) Exists(p Path) (bool, error) {
	value, descendants, err := n.Data(p)
	return value || descendants, err
}

// Expire makes the value of a node expire after ttl, unless the node is set again before; 0 means
// now. It reports whether the node has a value. Persist removes the expiry.
//
// Expiry follows the machine's clock: if the clock is set, nodes expire earlier or later by as
// much.
func (n *nodes) Expire(p Path, ttl time.Duration) (found bool, err error) {
	if err := checkLifetime("expire", ttl); err != nil {
		return false, err
	}
	err = n.change("expire", p, func(core nativeSession) (err error) {
		found, err = core.expire(p.key, ttl)
		return err
	})
	return found, err
}

func checkLifetime(op string, ttl time.Duration) error {
	if ttl < 0 || ttl > 0 && ttl < time.Millisecond {
		return invalid(op, "invalid time to live %v: use at least 1 ms, or 0 to expire now", ttl)
	}
	return nil
}

// ExpireAt makes the value of a node expire at a time; a time in the past means now.
func (n *nodes) ExpireAt(p Path, at time.Time) (found bool, err error) {
	return n.expireAt("expire", p, millisecondOf(at))
}

// Persist removes the expiry of a node. It reports whether the node has a value.
func (n *nodes) Persist(p Path) (found bool, err error) { return n.expireAt("persist", p, 0) }

func (n *nodes) expireAt(op string, p Path, ms uint64) (found bool, err error) {
	err = n.change(op, p, func(core nativeSession) (err error) {
		found, err = core.expireAt(p.key, ms)
		return err
	})
	return found, err
}

// longPast is a time in the past, in ms for expireAt, where 0 means never.
const longPast = 1

// millisecondOf returns a time in ms since 1970, at least longPast.
func millisecondOf(at time.Time) uint64 { return uint64(max(at.UnixMilli(), longPast)) }

// GetAll returns the values of nodes at one moment, Absent for nodes without one.
func (n *nodes) GetAll(paths ...Path) ([]Value, error) {
	values := make([]Value, len(paths))
	var at Path
	for _, p := range paths {
		if p.err != nil {
			return nil, p.err
		}
	}
	err := n.call("get", Path{}, func(core nativeSession) (err error) {
		if !n.inTx {
			if err := core.beginView(); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, core.rollback()) }()
		}
		for i, p := range paths {
			at = p
			if values[i], err = core.get(p.key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, named(err, "get", at)
	}
	return values, nil
}

// An Assignment is a node and its new value, for SetAll.
type Assignment struct {
	Path  Path
	Value any
}

// SetAll sets nodes in order, all of them or none.
func (n *nodes) SetAll(assignments ...Assignment) error {
	pairs := make([]nativePair, len(assignments))
	for i, a := range assignments {
		v, err := ValueOf(a.Value)
		if err != nil {
			return err
		}
		pairs[i] = nativePair{a.Path.key, v}
		if err := n.change("set", a.Path, func(nativeSession) error { return nil }); err != nil {
			return err
		}
	}
	return n.call("set", Path{}, func(core nativeSession) error { return core.setAll(pairs) })
}

// TTL returns the time until a node expires. limited is false if it has no value, or no expiry.
func (n *nodes) TTL(p Path) (ttl time.Duration, limited bool, err error) {
	err = n.call("look at", p, func(core nativeSession) (err error) {
		ttl, limited, err = core.ttl(p.key)
		return err
	})
	return ttl, limited, err
}

// Next returns the sibling after p, and the zero Path if p is the last. p need not exist.
func (n *nodes) Next(p Path) (Path, error) { return n.sibling("find the node after", p, false) }

// Previous returns the sibling before p, and the zero Path if p is the first. p need not exist.
func (n *nodes) Previous(p Path) (Path, error) { return n.sibling("find the node before", p, true) }

func (n *nodes) sibling(op string, p Path, reverse bool) (Path, error) {
	var subscript Value
	var found bool
	err := n.call(op, p, func(core nativeSession) (err error) {
		subscript, found, err = core.nextSibling(p.key, reverse)
		return err
	})
	if err != nil || !found {
		return Path{}, err
	}
	if parent := p.Parent(); !parent.IsZero() {
		return parent.At(subscript), nil
	}
	return Name(subscript.text), nil
}
