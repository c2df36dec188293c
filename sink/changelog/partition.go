package changelog

import (
	"context"
	"errors"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// A partitionStore holds the ranges of one partition for the writer that owns it. It implements
// positions.NoteStore.
type partitionStore struct {
	sink  *Sink
	name  string
	token string
	epoch uint64
}

func (p *partitionStore) key() []byte { return nameKey(p.sink.pipeline, p.name) }

// takeOver makes the writer the owner and returns what is committed. With renew it does so only
// if the writer is the owner already.
func (p *partitionStore) takeOver(ctx context.Context, renew bool) (entries []positions.Entry, err error) {
	var epoch uint64
	err = p.sink.store.commit(ctx, func(tx *bolt.Tx) (refused, err error) {
		if epoch, err = p.raiseEpoch(tx, renew); err != nil || epoch == 0 {
			return sink.ErrFenced, err
		}
		entries, err = readEntries(tx, p.sink.pipeline, p.name)
		return nil, err
	})
	if err == nil {
		p.epoch = epoch
	}
	return entries, err
}

// raiseEpoch returns the new epoch, or 0 if with renew another writer is the owner.
func (p *partitionStore) raiseEpoch(tx *bolt.Tx, renew bool) (epoch uint64, err error) {
	var o owner
	if _, err := getRecord(tx, partitionsBucket, p.key(), &o); err != nil {
		return 0, err
	}
	if renew && o.Token != p.token {
		return 0, nil
	}
	o.Epoch, o.Token = o.Epoch+1, p.token
	return o.Epoch, putRecord(tx, partitionsBucket, p.key(), &o)
}

// isOwner reports whether no other writer has taken over the partition.
func (p *partitionStore) isOwner(tx *bolt.Tx) (bool, error) {
	var o owner
	_, err := getRecord(tx, partitionsBucket, p.key(), &o)
	return o.Epoch == p.epoch, err
}

// Renew implements positions.Store.
func (p *partitionStore) Renew(ctx context.Context) ([]positions.Entry, error) {
	return p.takeOver(ctx, true)
}

// Commit implements positions.Store. There are no rows to keep.
func (p *partitionStore) Commit(ctx context.Context, rows *positions.Rows, ranges []event.Range) error {
	return p.CommitNote(ctx, rows, ranges, nil)
}

// CommitNote implements positions.NoteStore.
func (p *partitionStore) CommitNote(ctx context.Context, _ *positions.Rows, ranges []event.Range, note *positions.Note) error {
	var u *unit
	if note != nil {
		var err error
		if u, err = p.sink.ownUnit(note); err != nil {
			return err
		}
	}
	return p.sink.store.commit(ctx, func(tx *bolt.Tx) (refused, err error) {
		if owner, err := p.isOwner(tx); err != nil || !owner {
			return sink.ErrFenced, err
		}
		if u != nil {
			if refused, err := u.put(tx, note.Note); err != nil || refused != nil {
				return refused, err
			}
		}
		return nil, putRanges(tx, p.sink.pipeline, p.name, ranges)
	})
}

// IsCommitted implements positions.Store.
func (p *partitionStore) IsCommitted(ctx context.Context, r event.Range) (committed bool, err error) {
	err = p.sink.store.read(ctx, func(tx *bolt.Tx) error {
		if owner, err := p.isOwner(tx); err != nil || !owner {
			return errors.Join(sink.ErrFenced, err)
		}
		entries, err := readEntries(tx, p.sink.pipeline, p.name)
		for _, e := range entries {
			committed = committed || e.Range.First <= r.First && r.End() <= e.Range.End()
		}
		return err
	})
	return committed, err
}

// Compact implements positions.Store.
func (p *partitionStore) Compact(ctx context.Context, r event.Range) error {
	return p.sink.store.commit(ctx, func(tx *bolt.Tx) (refused, err error) {
		if owner, err := p.isOwner(tx); err != nil || !owner {
			return sink.ErrFenced, err
		}
		entries, err := readEntries(tx, p.sink.pipeline, p.name)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Range.First >= r.First && e.Range.First < r.End() {
				if err := tx.Bucket(rangesBucket).Delete(rangeKey(p.sink.pipeline, p.name, e.Range.First)); err != nil {
					return nil, err
				}
			}
		}
		return nil, putRanges(tx, p.sink.pipeline, p.name, []event.Range{r})
	})
}

// OutcomeUnknown implements positions.Store: a commit whose sync failed may reach the disk.
func (p *partitionStore) OutcomeUnknown(err error) bool {
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !event.IsPermanent(err)
}
