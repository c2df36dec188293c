package reload

import (
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
)

const (
	sampleEvents = 32
	sampleBytes  = 64 << 10
	sampleEvery  = time.Second
)

// A sample holds a few recent events that the script processed without an error.
type sample struct {
	mu        sync.Mutex
	updatedAt time.Time
	events    event.Batch
}

// update replaces the sample with events of a batch, at most once in sampleEvery.
func (s *sample) update(in *event.Batch, res *event.Result) {
	if res.Ran == 0 || !s.mu.TryLock() { // another lane takes one
		return
	}
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.updatedAt) < sampleEvery {
		return
	}
	dead := map[uint64]bool{}
	for i := range res.Dead {
		dead[res.Dead[i].Position] = true
	}
	if len(dead) == res.Ran {
		return
	}
	s.updatedAt = now
	s.events.Reset()
	s.events.Partition = in.Partition
	for i := range res.Ran {
		if dead[in.Range.First+uint64(i)] {
			continue
		}
		doc := in.Doc(i)
		if len(s.events.Data)+len(doc) > sampleBytes && s.events.Len() > 0 || s.events.Len() == sampleEvents {
			break
		}
		s.events.Append(doc)
	}
	s.events.Range = event.Range{Count: uint64(s.events.Len())}
}

// copyBatch returns a copy of the sample.
func (s *sample) copyBatch() *event.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := &event.Batch{Partition: s.events.Partition, Range: s.events.Range}
	for i := range s.events.Len() {
		batch.Append(s.events.Doc(i))
	}
	return batch
}
