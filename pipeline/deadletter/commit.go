package deadletter

import (
	"context"

	bolt "go.etcd.io/bbolt"
)

// releaseEvery is after how many commits the process lets go of the file's pages.
const releaseEvery = 64

// commit makes what apply does to the file durable, in one transaction with the
// changes of others who wait.
func (s *Store) commit(apply func(tx *bolt.Tx) error) error {
	return s.commits.Commit(context.Background(), apply)
}

func (s *Store) commitAll(changes []func(tx *bolt.Tx) error) error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, apply := range changes {
			if err := apply(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if s.count++; s.count%releaseEvery == 0 {
		_ = s.release() // it is about memory only
	}
	return err
}
