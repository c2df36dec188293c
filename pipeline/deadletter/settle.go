package deadletter

import (
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/perigeedb/perigee/event"
)

func isUnsettled(tx *bolt.Tx, at place) bool {
	b := bucket(tx, unsettledBucket, at.pipeline, at.partition)
	if b == nil {
		return false
	}
	k, _ := b.Cursor().Seek(at.key)
	return string(k) == string(at.key)
}

// settle notes durably that r is durable in every sink. Letters of the queue
// that lie in r are done with. It costs no write when there is nothing to note.
func (s *Store) settle(pipeline, partition string, r event.Range) error {
	p, t := []byte(pipeline), []byte(partition)
	var news bool
	err := s.db.View(func(tx *bolt.Tx) error {
		news = holds(bucket(tx, unsettledBucket, p, t), r.First, r.End()) ||
			holds(bucket(tx, queueBucket, p, t), r.First, r.End())
		return nil
	})
	if err == nil && news {
		err = s.commit(func(tx *bolt.Tx) error {
			if err := clearRange(bucket(tx, unsettledBucket, p, t), r.First, r.End()); err != nil {
				return err
			}
			return finish(tx, p, t, r)
		})
	}
	if err != nil {
		return fmt.Errorf("settle dead letters of %s, partition %s, %s: %w", pipeline, partition, r, err)
	}
	return nil
}
