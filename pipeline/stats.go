package pipeline

import (
	"errors"
	"fmt"
	"time"
)

// Stats are a pipeline's counts since it was made. Events and rows count when
// their batch is settled: durable in every sink.
type Stats struct {
	Read    uint64            // events read from the source, those read again included
	Bytes   uint64            // bytes of the events read
	Batches uint64            // batches read
	Settled uint64            // events whose batch is durable in every sink
	Dropped uint64            // events that the script dropped on purpose
	Dead    map[string]uint64 // dead letters by stage
	Lag     uint64            // events that waited in the source behind the last read
	Retries uint64            // failed attempts at the source
	Letters uint64            // failed attempts at keeping dead letters
	Outbox  uint64            // failed attempts at storing outputs
	Script  time.Duration     // spent in the script, summed over lanes
	// Replayed counts events whose stored outputs were written after a crash.
	Replayed uint64
	// Waited is the time that reading waited for a batch to be settled, summed
	// over partitions: back-pressure.
	Waited  time.Duration
	Circuit bool // broken: nothing is read because what is read could only wait
	Open    int  // partitions at work
	Sinks   []SinkStats
	Share   Share
	State   State
	Err     error // why the state is Retrying or Paused, or Stopped before its time
}

// A Share is what this worker has of a pipeline that several share.
type Share struct {
	Worker    string
	Workers   int    // alive, this one among them; 0 when partitions are not shared
	Held      int    // partitions whose lease this worker holds
	Elsewhere int    // partitions whose lease it does not hold
	Retries   uint64 // failed attempts at asking for leases
}

// SinkStats are the counts of one sink.
type SinkStats struct {
	Name    string
	Rows    uint64        // rows made durable, those that the sink already had included
	Lag     uint64        // events that are not durable in the sink: in the source or on their way
	Retries uint64        // failed attempts at writing
	Time    time.Duration // spent in the sink, summed over lanes
}

// Stats returns the counts of this moment.
func (p *Pipeline) Stats() Stats {
	c := &p.counters
	lag, lags := c.lags.sum(len(p.config.Sinks))
	s := Stats{
		Read: c.read.Load(), Bytes: c.bytes.Load(), Batches: c.batches.Load(),
		Settled: c.settled.Load(), Dropped: c.dropped.Load(), Dead: c.dead.counts(), Lag: lag,
		Retries: p.source.count(), Letters: p.letters.count(), Outbox: p.outbox.count(),
		Script: time.Duration(c.script.Load()), Replayed: c.replayed.Load(),
		Waited: time.Duration(c.waited.Load()), Circuit: p.circuit.isBroken(),
		Open: int(c.open.Load()),
	}
	for i, sink := range p.config.Sinks {
		s.Sinks = append(s.Sinks, SinkStats{
			Name: sink.Name, Rows: c.sinks[i].rows.Load(), Lag: lags[i],
			Retries: p.sinks[i].count(), Time: time.Duration(c.sinks[i].time.Load()),
		})
	}
	s.Share.Worker = p.config.Worker
	if p.leases != nil {
		s.Share.Retries = p.leases.count()
	}
	s.Share.Workers, s.Share.Held, s.Share.Elsewhere = p.tenancy.now()
	s.State, s.Err = p.status.now()
	return s
}

// Ready returns nil when the pipeline is connected and running, and otherwise
// what keeps it from that.
func (p *Pipeline) Ready() error {
	switch state, err := p.status.now(); {
	case state == Running:
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", state, err)
	default:
		return errors.New(string(state))
	}
}
