package shadow

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// samplesMax bounds the samples in memory: one that the worker runs, and one that waits.
const samplesMax = 2

// keptBytes is the memory that a sample keeps for the next one.
const keptBytes = 4 << 20

// A sample is some consecutive events of a batch, and what the live version made of them.
type sample struct {
	generation uint64
	in         event.Batch
	live       event.Result
	took       time.Duration
}

// Tap returns the live version with a tap on its results.
func (s *Shadow) Tap() script.Script { return &tap{s.config.Live, s} }

type tap struct {
	script.Script
	shadow *Shadow
}

// Run implements script.Script.
func (t *tap) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	generation := t.shadow.wanted.Load()
	if generation == 0 {
		return t.Script.Run(ctx, in, res)
	}
	timed := *in
	timed.Time = time.Now()
	err := t.Script.Run(ctx, &timed, res)
	t.shadow.offer(generation, &timed, res, time.Since(timed.Time))
	return err
}

// offer hands a sample of a batch to the worker, or skips it while the worker is busy.
func (s *Shadow) offer(generation uint64, in *event.Batch, res *event.Result, took time.Duration) {
	first, n := choose(res.Ran, s.config.Sample)
	if n == 0 {
		return
	}
	select {
	case one := <-s.free:
		one.generation = generation
		one.in.CopyEvents(in, first, n)
		one.live.CopyEvents(res, in, first, n)
		one.took = took * time.Duration(n) / time.Duration(res.Ran)
		s.filled <- one
	default:
		s.skip(generation, n)
	}
}

// choose returns which of n events to sample: one of equal parts of the batch, whose number is so that each
// event is chosen with the probability share.
func choose(n int, share float64) (first, chosen int) {
	parts := int(1 / share)
	large, small := 1/float64(parts), 1/float64(parts+1)
	if rand.Float64() > (share-small)/(large-small) {
		parts++
	}
	part := rand.IntN(parts)
	first = part * n / parts
	return first, (part+1)*n/parts - first
}

// skip counts events that are not compared.
func (s *Shadow) skip(generation uint64, n int) {
	s.counts.skipped.Add(uint64(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation == s.generation {
		s.skipped += uint64(n)
	}
}

// release returns a sample whose memory may be used again.
func (s *Shadow) release(one *sample) {
	size := cap(one.in.Data)
	for i := range one.live.Outputs {
		size += cap(one.live.Outputs[i].Data)
	}
	if size > keptBytes {
		*one = sample{}
	}
	s.free <- one
}
