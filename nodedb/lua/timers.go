package lua

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// A Timer is a timer that a script has set with the module timer.
type Timer struct {
	Key nodedb.Value // a string or a number
	Due float64      // seconds since 1970
}

// The layout of the tree is that of nodedb/timer.lua.
var (
	timersByKey  = nodedb.Name("^%timers").At("key")
	timersByTime = nodedb.Name("^%timers").At("due")
)

// DueTimers returns up to limit timers that are due at a time, the earliest first, and the time of
// the first timer that is not among them; zero if there is none. It removes none: the run of a
// batch of them does, see event.Batch.Timers. After the run, remove those that failed with
// RemoveTimer.
func DueTimers(ctx context.Context, tx *nodedb.Tx, now time.Time, limit int) (due []Timer, next time.Time, err error) {
	at := seconds(now)
	for node, err := range tx.Walk(ctx, timersByTime, nodedb.Range{NoValues: true, Limit: limit + 1}) {
		if err != nil {
			return nil, next, err
		}
		path := node.Path.Subscripts()
		if len(path) != 3 {
			continue // not a timer
		}
		t, _ := path[1].Float()
		if t > at || len(due) == limit {
			return due, time.UnixMicro(int64(t * 1e6)).Add(time.Microsecond), nil
		}
		due = append(due, Timer{Key: path[2], Due: t})
	}
	return due, next, nil
}

// RemoveTimer removes a timer, unless the script has moved it since.
func RemoveTimer(tx *nodedb.Tx, t Timer) error {
	due, err := tx.Get(timersByKey.At(t.Key))
	if err != nil {
		return err
	}
	if at, is := due.Float(); !is || at != t.Due {
		return nil
	}
	if err := tx.KillValue(timersByKey.At(t.Key)); err != nil {
		return err
	}
	return tx.KillValue(timersByTime.At(t.Due).At(t.Key))
}

// TimerAt returns the timer that a node holds. Each timer has two nodes: for one of them TimerAt
// returns nil, and is true.
func TimerAt(n nodedb.Node) (t *Timer, isTimer bool) {
	if n.Path.Name() != timersByKey.Name() {
		return nil, false
	}
	path := n.Path.Subscripts()
	if len(path) != 3 || path[0].String() != "due" {
		return nil, true
	}
	due, _ := path[1].Float()
	return &Timer{Key: path[2], Due: due}, true
}

// AddTimer sets a timer, unless there is one with its key.
func AddTimer(tx *nodedb.Tx, t Timer) (done bool, err error) {
	if done, err = tx.SetNew(timersByKey.At(t.Key), t.Due); err != nil || !done {
		return false, err
	}
	return true, tx.Set(timersByTime.At(t.Due).At(t.Key), "")
}

// AppendTo appends the timer as a document of a batch: {"key":…,"due":seconds}.
func (t Timer) AppendTo(doc []byte) ([]byte, error) {
	doc = append(doc, `{"key":`...)
	if x, ok := t.Key.Float(); ok && t.Key.Kind() == nodedb.Number && strconv.FormatFloat(x, 'f', -1, 64) == t.Key.String() {
		doc = append(doc, t.Key.String()...)
	} else { // scripts see a number that no float64 holds as the text of its digits
		key, err := json.Marshal(t.Key.String())
		if err != nil {
			return doc, err
		}
		doc = append(doc, key...)
	}
	doc = strconv.AppendFloat(append(doc, `,"due":`...), t.Due, 'f', -1, 64)
	return append(doc, '}'), nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
