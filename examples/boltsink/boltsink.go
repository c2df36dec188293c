// Package boltsink is an example of a sink: it writes documents to a bbolt database,
// each exactly once. One transaction writes the rows, the committed ranges and checks
// the owner of the partition, which is all that exactly once takes.
package boltsink

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// Kind offers the sink to configurations, as "bolt: {}". It writes to db.
func Kind(db *bbolt.DB) sink.Kind {
	return sink.Kind{
		Name: "bolt", Doc: "Writes documents to a bbolt database.", Guarantee: sink.ExactlyOnce, Config: &struct{}{},
		New: func(env sink.Env, decode func(any) error) (sink.Sink, error) {
			return &boltSink{db, env.Pipeline}, decode(&struct{}{})
		},
	}
}

type boltSink struct {
	db       *bbolt.DB
	pipeline string
}

func (s *boltSink) Traits() sink.Traits { return sink.Traits{Order: sink.AnyOrder} }
func (s *boltSink) Close() error        { return nil } // db belongs to the caller of Kind

var rows, states = []byte("rows"), []byte("states")

// A state is stored for each partition; a sink for production stores it compactly.
type state struct {
	Owner     string // the writer that may commit
	Committed event.Ranges
}

// Open makes its writer the owner: those before it fail from here on.
func (s *boltSink) Open(_ context.Context, partition string) (sink.Writer, event.Ranges, error) {
	w := &writer{db: s.db, key: []byte(s.pipeline + "\x00" + partition), owner: rand.Text()}
	var committed event.Ranges
	err := w.update(func(st *state, _ *bbolt.Bucket) error {
		st.Owner, committed = w.owner, st.Committed
		return nil
	})
	return w, committed, err
}

type writer struct {
	db    *bbolt.DB
	key   []byte // of the partition's state
	owner string
}

// update changes the state, and rows with it, in one transaction.
func (w *writer) update(change func(st *state, rows *bbolt.Bucket) error) error {
	return w.db.Update(func(tx *bbolt.Tx) error {
		rows, rowsErr := tx.CreateBucketIfNotExists(rows)
		states, statesErr := tx.CreateBucketIfNotExists(states)
		if err := errors.Join(rowsErr, statesErr); err != nil {
			return err
		}
		st := state{}
		if text := states.Get(w.key); text != nil && json.Unmarshal(text, &st) != nil {
			return errors.New("the state of the partition is not JSON")
		}
		if err := change(&st, rows); err != nil {
			return err
		}
		text, err := json.Marshal(st)
		return errors.Join(err, states.Put(w.key, text))
	})
}

// Write commits the range, and the rows that are not committed yet.
func (w *writer) Write(ctx context.Context, out *event.Output) error {
	return w.update(func(st *state, rows *bbolt.Bucket) (err error) {
		if st.Owner != w.owner {
			return sink.ErrFenced
		}
		for i := range out.Len() {
			if !st.Committed.Has(out.Position(i)) {
				id, _ := rows.NextSequence() // fails only in a transaction that reads
				err = errors.Join(err, rows.Put(binary.BigEndian.AppendUint64(nil, id), out.Doc(i)))
			}
		}
		st.Committed.Add(out.Range)
		return errors.Join(err, ctx.Err())
	})
}
func (w *writer) Verify(context.Context) error { return nil }                       // a file is not reset under the process
func (w *writer) Close() error                 { w.db = new(bbolt.DB); return nil } // one that is not open
