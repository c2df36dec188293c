package deadletter

import bolt "go.etcd.io/bbolt"

// releaseEvery is after how many commits the process lets go of the file's pages.
const releaseEvery = 64

// A change is what one writer does to the file.
type change struct {
	apply func(tx *bolt.Tx) error
	done  bool
	err   error
}

// commit puts a change into the next transaction. Whoever gets the turn commits
// for all who wait: what arrives during one commit is the next.
func (s *Store) commit(apply func(tx *bolt.Tx) error) error {
	c := &change{apply: apply}
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()

	s.turn.Lock()
	defer s.turn.Unlock()
	if c.done {
		return c.err
	}
	s.mu.Lock()
	all := s.waiting
	s.waiting = nil
	s.mu.Unlock()

	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, c := range all {
			if err := c.apply(tx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range all {
		c.done, c.err = true, err
	}
	if s.commits++; s.commits%releaseEvery == 0 {
		_ = s.release() // it is about memory only
	}
	return err
}
