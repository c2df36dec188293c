package deadletter

import (
	"context"
	"fmt"
	"io"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// openBatch starts reading a batch of the queue. One that is not there any more
// is done with, which done may just have brought about.
func (j *joined) openBatch(name string, done event.Ranges) (source.Reader, error) {
	r := &batchReader{joined: j, name: name}
	var have event.Ranges
	err := j.store.db.View(func(tx *bolt.Tx) error {
		batch := r.batch(tx)
		if batch == nil && len(done) == 0 {
			return source.ErrMoved
		}
		if batch == nil {
			return nil
		}
		r.end = batch.Sequence()
		return batch.ForEach(func(k, _ []byte) error {
			have.Add(event.Range{First: position(k), Count: 1})
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	for _, d := range done {
		have.Add(event.Range{First: d.First, Count: d.Count})
	}
	if lost := have.Missing(event.Range{Count: r.end}); j.Remembered && len(lost) > 0 {
		return nil, &event.PermanentError{
			Err:  fmt.Errorf("a sink lacks letters that were tried again and had landed: %s of %s", event.Ranges(lost), name),
			Hint: "the sink was set back, as by restoring a backup; their rows are in what was there before",
		}
	}
	return r, nil
}

// A batchReader reads a batch of the queue.
type batchReader struct {
	joined    *joined
	name      string
	next, end uint64
}

func (r *batchReader) batch(tx *bolt.Tx) *bolt.Bucket {
	return bucket(tx, queueBucket, []byte(r.joined.Pipeline), []byte(r.name))
}

// Read implements source.Reader.
func (r *batchReader) Read(ctx context.Context, b *event.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.Reset()
	b.Partition = r.name
	err := r.joined.store.db.View(func(tx *bolt.Tx) error {
		if batch := r.batch(tx); batch != nil {
			return r.fill(batch, b)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read dead letters to try again: %w", err)
	}
	if b.Len() == 0 {
		r.next = r.end
		return io.EOF
	}
	b.Range.Count = uint64(b.Len())
	r.next = b.Range.End()
	return nil
}

// fill takes letters up to the limits, or to a gap.
func (r *batchReader) fill(batch *bolt.Bucket, b *event.Batch) error {
	limits, cursor := r.joined.Limits, batch.Cursor()
	for k, v := cursor.Seek(positionKey(r.next)); k != nil && b.Len() < limits.Events; k, v = cursor.Next() {
		l, err := decode(place{key: k}, v)
		if err != nil {
			return err
		}
		p := position(k)
		switch {
		case b.Len() == 0:
			b.Range.First = p
		case p != b.Range.First+uint64(b.Len()), len(b.Data)+len(l.Original) > limits.Bytes:
			return nil
		}
		b.Append(l.Original)
		b.Only = append(b.Only, r.joined.part(&l))
	}
	return nil
}

// part is what of a letter's event is wanted.
func (j *joined) part(l *Letter) event.Part {
	switch {
	case l.Sink == "":
		return event.Part{}
	case l.Sink == soleSink && len(j.Sinks) > 0:
		return event.Part{Sink: j.Sinks[0], Number: l.Number}
	}
	return event.Part{Sink: l.Sink, Number: l.Number}
}

// Ack implements source.Reader.
func (r *batchReader) Ack(_ context.Context, a event.Range) error {
	return r.joined.store.settle(r.joined.Pipeline, r.name, a)
}

// Lag implements source.Reader.
func (r *batchReader) Lag() uint64 { return r.end - min(r.next, r.end) }

// Close implements source.Reader.
func (r *batchReader) Close(context.Context) error { return nil }
