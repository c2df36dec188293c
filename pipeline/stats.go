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
	Script  time.Duration     // spent in the script, summed over lanes
	Sinks   []SinkStats
	State   State
	Err     error // why the state is Retrying, or Stopped before its time
}

// SinkStats are the counts of one sink.
type SinkStats struct {
	Name    string
	Rows    uint64        // rows made durable, those that the sink already had included
	Retries uint64        // failed attempts at writing
	Time    time.Duration // spent in the sink, summed over lanes
}

// Stats returns the counts of this moment.
func (p *Pipeline) Stats() Stats {
	c := &p.counters
	s := Stats{
		Read: c.read.Load(), Bytes: c.bytes.Load(), Batches: c.batches.Load(),
		Settled: c.settled.Load(), Dropped: c.dropped.Load(), Dead: c.dead.counts(), Lag: c.lags.sum(),
		Retries: p.source.count(), Letters: p.letters.count(), Script: time.Duration(c.script.Load()),
	}
	for i, sink := range p.config.Sinks {
		s.Sinks = append(s.Sinks, SinkStats{
			Name: sink.Name, Rows: c.sinks[i].rows.Load(),
			Retries: p.sinks[i].count(), Time: time.Duration(c.sinks[i].time.Load()),
		})
	}
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
