package pipeline

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
)

// Stats are a pipeline's counts since New. Events, rows and dead letters count when
// their batch is committed: durable in every sink.
type Stats struct {
	Read      uint64            // events read, including those read again
	Bytes     uint64            // bytes of the events read
	Batches   uint64            // batches read
	Committed uint64            // events whose batch is durable in every sink
	Dropped   uint64            // events that the script dropped on purpose
	Dead      map[string]uint64 // dead letters by stage
	// DeadEvents counts events without a written row and with a dead letter.
	DeadEvents uint64
	Lag        uint64 // events in the source behind the last read
	// Started holds for the first partitions of the source that were opened the position
	// where reading began, at most startedMax of them.
	Started []Start

	SourceRetries     uint64        // failed attempts to reach the source
	DeadLetterRetries uint64        // failed attempts to store dead letters
	OutboxRetries     uint64        // failed attempts to store outputs
	ScriptTime        time.Duration // in the script, summed over lanes
	// Deliveries are the times from reading a batch until every sink has it.
	Deliveries Latencies
	// Replayed counts events whose stored outputs were written after a crash.
	Replayed uint64
	// BackpressureTime is how long reading waited for a free batch, summed over
	// partitions.
	BackpressureTime time.Duration
	CircuitOpen      bool // the circuit breaker is open: nothing is read
	OpenPartitions   int
	Sinks            []SinkStats
	Leases           LeaseStats
	Units            UnitStats
	State            State
	ScriptLimits     uint64    // runs of the script that ended at a limit of the batch
	PauseEnds        time.Time // when a pipeline that paused itself tries a batch; else zero
	Err              error     // why the state is Retrying or Paused, or why Run failed
	WhyEmpty         string    // why the source lists no partitions, as source.Traits has it
}

// A Start is the position at which reading of a partition began.
type Start struct {
	Partition string
	Next      uint64 // all events before it were durable in every sink; 0 if none was
}

// AllDied reports whether events were committed and every one that the script did
// not drop ended as a dead letter.
func (s *Stats) AllDied() bool { return s.DeadEvents > 0 && s.DeadEvents+s.Dropped == s.Committed }

// FoundNothing reports whether there was nothing to process: no event was read, and
// no stored output was left from an earlier run. Started then says where reading
// began.
func (s *Stats) FoundNothing() bool { return s.Read == 0 && s.Replayed == 0 }

// LeaseStats say which partitions of a shared pipeline this worker has.
type LeaseStats struct {
	Worker  string
	Workers int    // alive, including this one; 0 if partitions are not shared
	Held    int    // partitions whose lease this worker holds
	NotHeld int    // other partitions
	Retries uint64 // failed attempts to maintain leases
}

// UnitStats are the counts of a pipeline's state, over the units that this worker has.
type UnitStats struct {
	Open         int    // units
	Notes        uint64 // committed since New
	Nodes        uint64 // on disk
	WaitingBytes uint64 // memory of committed changes that wait for the disk
	InFlight     int    // deliveries whose changes are not committed
	Timers       uint64 // that ran since New
	Repeated     uint64 // events since New that were dropped, because another pipeline has written them again
	Late         uint64 // events since New that were before the clock of their unit, with time: event
	// WaitTime is how long scripts have waited since New because the changes in memory had reached
	// their bound, or the disk was full.
	WaitTime     time.Duration
	ArchiveNotes uint64 // wait for the archive
	ArchiveBytes uint64 // of these notes
	// Restore is the time in which copies were brought up to date to open units, since New.
	Restore        time.Duration
	Followed       int    // units that other workers own, and whose copies this one keeps
	FollowLag      uint64 // notes that the copy of one of them lacks: the most
	FollowFailures int    // units that could not be followed when that was last tried
}

// SinkStats are the counts of one sink.
type SinkStats struct {
	Name    string
	Rows    uint64        // rows made durable, including those that the sink already had
	Lag     uint64        // events that are not durable in the sink: in the source or in flight
	Retries uint64        // failed attempts to write
	Time    time.Duration // in the sink, summed over lanes
	Commits Latencies     // of the writes that succeeded
}

// Stats returns the current counts.
func (p *Pipeline) Stats() Stats {
	c := &p.counters
	lag, sinkLags := c.lags.sum(len(p.config.Sinks))
	s := Stats{
		Read: c.read.Load(), Bytes: c.bytes.Load(), Batches: c.batches.Load(),
		Committed: c.committed.Load(), Dropped: c.dropped.Load(), Dead: c.dead.byStage(),
		DeadEvents: c.deadEvents.Load(), Lag: lag, Started: c.starts.list(),
		SourceRetries: p.source.failureCount(), DeadLetterRetries: p.deadLetters.failureCount(),
		OutboxRetries: p.outbox.failureCount(),
		ScriptTime:    time.Duration(c.script.Load()), Replayed: c.replayed.Load(), Deliveries: c.deliveries.read(),
		BackpressureTime: time.Duration(c.backpressure.Load()), CircuitOpen: p.breaker.isOpen(),
		OpenPartitions: int(c.open.Load()), Leases: c.leases.stats(),
	}
	for i, sink := range p.config.Sinks {
		s.Sinks = append(s.Sinks, SinkStats{
			Name: sink.Name, Rows: c.sinks[i].rows.Load(), Lag: sinkLags[i],
			Retries: p.sinks[i].failureCount(), Time: time.Duration(c.sinks[i].time.Load()), Commits: c.sinks[i].commits.read(),
		})
	}
	s.Leases.Worker = p.config.Worker
	if p.leases != nil {
		s.Leases.Retries = p.leases.failureCount()
	}
	if p.units != nil {
		s.Units = p.units.stats()
	}
	s.State, s.Err = p.status.current()
	s.ScriptLimits = p.limits.runs()
	if pause := p.Paused(); pause != nil && pause.Next != nil {
		s.PauseEnds = *pause.Next
	}
	if why := p.config.Source.Traits().WhyEmpty; why != nil {
		s.WhyEmpty = why()
	}
	return s
}

// counters are written by lanes and read by Stats.
type counters struct {
	read, bytes, batches           atomic.Uint64
	committed, dropped, deadEvents atomic.Uint64
	replayed                       atomic.Uint64
	open                           atomic.Int64 // partitions
	script, backpressure           atomic.Int64 // nanoseconds
	sinks                          []sinkCounters
	dead                           stageCounter
	lags                           lagTracker
	starts                         startTracker
	deliveries                     latencyCounter
	leases                         leaseCounter
}

type sinkCounters struct {
	rows    atomic.Uint64
	time    atomic.Int64 // nanoseconds
	commits latencyCounter
}

// countOpened records where reading of a partition begins.
func (c *counters) countOpened(partition string, done event.Ranges) {
	next := uint64(0)
	if len(done) > 0 {
		next = done[0].End()
	}
	c.starts.add(Start{partition, next})
}

// countClaim counts a batch that was read, and the events behind it.
func (c *counters) countClaim(partition string, b *event.Batch, lag uint64) {
	c.lags.update(partition, func(l *partitionLag) {
		l.read += b.Range.Count
		l.source = lag
	})
	c.batches.Add(1)
	c.read.Add(b.Range.Count)
	c.bytes.Add(uint64(len(b.Data)))
}

// countWritten counts events that are durable in sink i.
func (c *counters) countWritten(partition string, i, events int) {
	c.lags.update(partition, func(l *partitionLag) { l.durable[i] += uint64(events) })
}

// countDelivery counts the result of a delivery that every sink has.
func (c *counters) countDelivery(d *delivery) {
	for i := range d.result.Outputs {
		if !d.lacksOutput(i) {
			c.sinks[i].rows.Add(uint64(d.result.Outputs[i].Len()))
		}
	}
	c.dropped.Add(uint64(d.result.Dropped))
	c.dead.add(d.result.Dead)
	c.deadEvents.Add(countDeadEvents(d.result, d.batch.Range.First))
	c.committed.Add(uint64(d.result.Ran))
}

// countDeadEvents returns the number of events that have a dead letter and no row.
// first is the position of the first event of the result.
func countDeadEvents(r *event.Result, first uint64) (n uint64) {
	if len(r.Dead) == 0 {
		return 0
	}
	counted := make([]bool, r.Ran) // by event: it has a row, or is in n
	for i := range r.Outputs {
		for _, from := range r.Outputs[i].From {
			counted[from] = true
		}
	}
	for i := range r.Dead {
		if at := r.Dead[i].Position - first; !counted[at] {
			counted[at] = true
			n++
		}
	}
	return n
}

// A stageCounter counts dead letters by stage.
type stageCounter struct {
	mu sync.Mutex
	n  map[string]uint64
}

func (s *stageCounter) add(dead []event.DeadLetter) {
	if len(dead) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = make(map[string]uint64)
	}
	for i := range dead {
		s.n[dead[i].Stage]++
	}
}

func (s *stageCounter) byStage() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.n)
}

// A lagTracker holds the lags of the open partitions.
type lagTracker struct {
	mu         sync.Mutex
	partitions map[string]*partitionLag
}

type partitionLag struct {
	source  uint64   // as of the last read, because a reader need not answer while it reads
	read    uint64   // since the partition was opened
	durable []uint64 // of what was read, by sink
}

func (l *lagTracker) add(partition string, sinks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.partitions == nil {
		l.partitions = make(map[string]*partitionLag)
	}
	l.partitions[partition] = &partitionLag{durable: make([]uint64, sinks)}
}

func (l *lagTracker) update(partition string, change func(*partitionLag)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.partitions[partition]; p != nil {
		change(p)
	}
}

func (l *lagTracker) remove(partition string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.partitions, partition)
}

// sum returns the number of events in the source, and for each sink the number of
// events that are not durable in it: those and the events in flight.
func (l *lagTracker) sum(sinks int) (source uint64, sink []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sink = make([]uint64, sinks)
	for _, p := range l.partitions {
		source += p.source
		for i := range sink {
			sink[i] += p.source + p.read - p.durable[i]
		}
	}
	return source, sink
}

// startedMax bounds Stats.Started: a source may list any number of partitions.
const startedMax = 32

// A startTracker holds where reading of the first partitions began.
type startTracker struct {
	mu     sync.Mutex
	starts []Start
}

// add ignores a partition that was opened before.
func (t *startTracker) add(start Start) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := slices.ContainsFunc(t.starts, func(s Start) bool { return s.Partition == start.Partition })
	if !known && len(t.starts) < startedMax {
		t.starts = append(t.starts, start)
	}
}

func (t *startTracker) list() []Start {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(slices.Values(t.starts), func(a, b Start) int { return strings.Compare(a.Partition, b.Partition) })
}

// A leaseCounter holds the last known numbers of workers and leases.
type leaseCounter struct {
	mu                     sync.Mutex
	workers, held, notHeld int
}

func (c *leaseCounter) set(workers, held, partitions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers, c.held, c.notHeld = workers, held, max(0, partitions-held)
}

func (c *leaseCounter) stats() LeaseStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return LeaseStats{Workers: c.workers, Held: c.held, NotHeld: c.notHeld}
}

// A deadLetterLog logs the first dead letters, then one record every logInterval
// with the number in between.
type deadLetterLog struct {
	mu     sync.Mutex
	logged time.Time
	count  int // since then
}

func (l *deadLetterLog) report(log *slog.Logger, partition string, dead []event.DeadLetter) {
	if len(dead) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count += len(dead)
	if now := time.Now(); now.Sub(l.logged) >= logInterval {
		last := &dead[len(dead)-1]
		log.Warn("dead letters", "count", l.count, "partition", partition,
			"position", last.Position, "stage", last.Stage, "error", last.Error)
		l.logged, l.count = now, 0
	}
}
