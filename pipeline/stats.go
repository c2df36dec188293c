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
	Committed uint64            // events whose batch is durable in every sink
	Dropped uint64            // events that the script dropped on purpose
	Dead    map[string]uint64 // dead letters by stage
	Lag     uint64            // events that waited in the source behind the last read
	SourceRetries uint64            // failed attempts at the source
	DeadLetterRetries uint64            // failed attempts at keeping dead letters
	OutboxRetries  uint64            // failed attempts at storing outputs
	ScriptTime  time.Duration     // spent in the script, summed over lanes
	// Replayed counts events whose stored outputs were written after a crash.
	Replayed uint64
	// BackpressureTime is the time that reading waited for a batch to be settled, summed
	// over partitions: back-pressure.
	BackpressureTime  time.Duration
	CircuitOpen bool // broken: nothing is read because what is read could only wait
	OpenPartitions    int  // partitions at work
	Sinks   []SinkStats
	Leases   LeaseStats
	State   State
	Err     error // why the state is Retrying or Paused, or Stopped before its time
}

// A LeaseStats is what this worker has of a pipeline that several share.
type LeaseStats struct {
	Worker    string
	Workers   int    // alive, this one among them; 0 when partitions are not shared
	Held      int    // partitions whose lease this worker holds
	NotHeld int    // partitions whose lease it does not hold
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
		Committed: c.settled.Load(), Dropped: c.dropped.Load(), Dead: c.dead.counts(), Lag: lag,
		SourceRetries: p.source.count(), DeadLetterRetries: p.letters.count(), OutboxRetries: p.outbox.count(),
		ScriptTime: time.Duration(c.script.Load()), Replayed: c.replayed.Load(),
		BackpressureTime: time.Duration(c.waited.Load()), CircuitOpen: p.circuit.isBroken(),
		OpenPartitions: int(c.open.Load()),
	}
	for i, sink := range p.config.Sinks {
		s.Sinks = append(s.Sinks, SinkStats{
			Name: sink.Name, Rows: c.sinks[i].rows.Load(), Lag: lags[i],
			Retries: p.sinks[i].count(), Time: time.Duration(c.sinks[i].time.Load()),
		})
	}
	s.Leases.Worker = p.config.Worker
	if p.leases != nil {
		s.Leases.Retries = p.leases.count()
	}
	s.Leases.Workers, s.Leases.Held, s.Leases.NotHeld = p.tenancy.now()
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
