package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/script/pool"
)

// A Metric is one metric that an engine exposes, for the reference.
type Metric struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string
}

// Metrics lists the metrics of the collectors of this package.
func Metrics() (all []Metric) {
	for _, m := range pipelineMetrics {
		all = append(all, m.Metric)
	}
	for _, m := range vmMetrics {
		all = append(all, m.Metric)
	}
	return append(all,
		Metric{statsPrefix + "NAME", "counter, gauge or histogram", []string{"those of the script"}, `What scripts measure with the module stats; counters end in _total.`},
		rejectedStats,
		allocatorBytes,
	)
}

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// A metric is a Metric and the way to collect it from a T.
type metric[T any] struct {
	Metric
	collect func(s *T, emit func(value float64, labels ...string))
	// distribute collects a histogram instead.
	distribute func(s *T, emit func(l *pipeline.Latencies, labels ...string))
}

// one collects a metric that has one value.
func one[T any](value func(*T) float64) func(*T, func(float64, ...string)) {
	return func(s *T, emit func(float64, ...string)) { emit(value(s)) }
}

// perSink collects a metric that has a value for each sink.
func perSink(value func(*pipeline.SinkStats) float64) func(*pipeline.Stats, func(float64, ...string)) {
	return func(s *pipeline.Stats, emit func(float64, ...string)) {
		for i := range s.Sinks {
			emit(value(&s.Sinks[i]), s.Sinks[i].Name)
		}
	}
}

func pipelineMetric(kind, name string, labels []string, help string, collect func(*pipeline.Stats, func(float64, ...string))) metric[pipeline.Stats] {
	return metric[pipeline.Stats]{Metric: Metric{"perigee_" + name, kind, append([]string{"pipeline"}, labels...), help}, collect: collect}
}

// pipelineMetrics have the label pipeline first.
var pipelineMetrics = func() (all []metric[pipeline.Stats]) {
	type stats = pipeline.Stats
	type sink = pipeline.SinkStats
	add := func(kind, name string, labels []string, help string, collect func(*stats, func(float64, ...string))) {
		all = append(all, pipelineMetric(kind, name, labels, help, collect))
	}
	deliveries := pipelineMetric(histogram, "delivery_seconds", nil, "Time from reading a batch until every sink has committed it.", nil)
	deliveries.distribute = func(s *stats, emit func(*pipeline.Latencies, ...string)) { emit(&s.Deliveries) }
	sinkLabel := []string{"sink"}
	add(gauge, "pipeline_state", []string{"state"}, "1 for the state that the pipeline is in: starting, running, retrying, paused, draining or stopped.",
		func(s *stats, emit func(float64, ...string)) {
			for _, state := range pipeline.States() {
				emit(boolean(s.State == state), string(state))
			}
		})
	add(gauge, "pause_ends_timestamp_seconds", nil, "Unix time at which a pipeline that paused itself next tries a batch; 0 without such a pause.",
		one(func(s *stats) float64 {
			if s.PauseEnds.IsZero() {
				return 0
			}
			return float64(s.PauseEnds.UnixMilli()) / 1000
		}))
	add(counter, "script_limits_total", nil, "Runs of the script that ended at a limit of the batch.", one(func(s *stats) float64 { return float64(s.ScriptLimits) }))
	add(counter, "events_read_total", nil, "Events read from the source; an event that is read again counts again.", one(func(s *stats) float64 { return float64(s.Read) }))
	add(counter, "read_bytes_total", nil, "Bytes of the events read.", one(func(s *stats) float64 { return float64(s.Bytes) }))
	add(counter, "batches_total", nil, "Batches read.", one(func(s *stats) float64 { return float64(s.Batches) }))
	add(counter, "events_committed_total", nil, "Events whose batch is committed in every sink.", one(func(s *stats) float64 { return float64(s.Committed) }))
	add(counter, "events_dropped_total", nil, "Events that the script dropped.", one(func(s *stats) float64 { return float64(s.Dropped) }))
	add(counter, "events_dead_total", nil, "Events that wrote no row and became a dead letter.", one(func(s *stats) float64 { return float64(s.DeadEvents) }))
	add(counter, "events_replayed_total", nil, "Events whose output was written from the outbox, or from notes of the state, after a crash.", one(func(s *stats) float64 { return float64(s.Replayed) }))
	add(counter, "dead_letters_total", []string{"stage"}, "Events that could not be processed, and rows that a sink rejected, by stage: parse, script, column or sink.",
		func(s *stats, emit func(float64, ...string)) {
			for stage, n := range s.Dead {
				emit(float64(n), stage)
			}
		})
	add(gauge, "source_lag_events", nil, "Events that wait in the source.", one(func(s *stats) float64 { return float64(s.Lag) }))
	add(counter, "source_retries_total", nil, "Failed attempts to read from the source or to acknowledge.", one(func(s *stats) float64 { return float64(s.SourceRetries) }))
	add(counter, "script_seconds_total", nil, "Time spent in the script, summed over lanes.", one(func(s *stats) float64 { return s.ScriptTime.Seconds() }))
	add(counter, "rows_written_total", sinkLabel, "Rows committed in a sink.", perSink(func(s *sink) float64 { return float64(s.Rows) }))
	add(gauge, "sink_lag_events", sinkLabel, "Events that are not committed in a sink: in the source or in flight.", perSink(func(s *sink) float64 { return float64(s.Lag) }))
	add(counter, "sink_retries_total", sinkLabel, "Failed attempts to write to a sink.", perSink(func(s *sink) float64 { return float64(s.Retries) }))
	add(counter, "sink_seconds_total", sinkLabel, "Time spent writing to a sink, summed over lanes.", perSink(func(s *sink) float64 { return s.Time.Seconds() }))
	commits := pipelineMetric(histogram, "sink_commit_seconds", sinkLabel, "Time of a write that a sink committed: the rows of a batch, positions and the note of the state.", nil)
	commits.distribute = func(s *stats, emit func(*pipeline.Latencies, ...string)) {
		for i := range s.Sinks {
			emit(&s.Sinks[i].Commits, s.Sinks[i].Name)
		}
	}
	all = append(all, commits)
	add(counter, "dead_letter_store_retries_total", nil, "Failed attempts to store dead letters.", one(func(s *stats) float64 { return float64(s.DeadLetterRetries) }))
	add(counter, "outbox_retries_total", nil, "Failed attempts to store output in the outbox.", one(func(s *stats) float64 { return float64(s.OutboxRetries) }))
	add(counter, "lease_retries_total", nil, "Failed attempts to acquire or renew leases.", one(func(s *stats) float64 { return float64(s.Leases.Retries) }))
	add(counter, "backpressure_seconds_total", nil, "Time that reading waited for batches to commit, summed over partitions.", one(func(s *stats) float64 { return s.BackpressureTime.Seconds() }))
	add(gauge, "state_units", nil, "Units of the pipeline's state that this worker has; 0 without a state.", one(func(s *stats) float64 { return float64(s.Units.Open) }))
	add(counter, "state_notes_total", nil, "Notes of changes of the state that the home has committed.", one(func(s *stats) float64 { return float64(s.Units.Notes) }))
	add(gauge, "state_nodes", nil, "Nodes of the state that are on this machine's disk.", one(func(s *stats) float64 { return float64(s.Units.Nodes) }))
	add(gauge, "state_waiting_bytes", nil, "Memory of committed changes of the state that wait for the disk.", one(func(s *stats) float64 { return float64(s.Units.WaitingBytes) }))
	add(gauge, "state_deliveries", nil, "Deliveries whose changes of the state are not committed.", one(func(s *stats) float64 { return float64(s.Units.InFlight) }))
	add(counter, "state_repeated_events_total", nil, "Events dropped because another pipeline has written them to Kafka again after a crash; see the guide on state.", one(func(s *stats) float64 { return float64(s.Units.Repeated) }))
	add(counter, "state_late_events_total", nil, "Events with a time before the clock of their unit, in a state with time: event.", one(func(s *stats) float64 { return float64(s.Units.Late) }))
	add(counter, "state_wait_seconds_total", nil, "Time that scripts waited because changes of states in memory had reached state_memory, or the disk was full.", one(func(s *stats) float64 { return s.Units.WaitTime.Seconds() }))
	add(gauge, "state_archive_lag_notes", nil, "Notes of the state that wait for its archive; 0 without one.", one(func(s *stats) float64 { return float64(s.Units.ArchiveNotes) }))
	add(gauge, "state_archive_lag_bytes", nil, "Bytes of notes of the state that wait for its archive, and stay at the home until they are in it.", one(func(s *stats) float64 { return float64(s.Units.ArchiveBytes) }))
	add(counter, "state_restore_seconds_total", nil, "Time in which copies of the state were brought up to date to take units over.", one(func(s *stats) float64 { return s.Units.Restore.Seconds() }))
	add(gauge, "state_followed_units", nil, "Units that other workers have, and whose copies this worker keeps up to date.", one(func(s *stats) float64 { return float64(s.Units.Followed) }))
	add(gauge, "state_follower_lag_notes", nil, "Notes that the copy of a followed unit lacks: the most of any of them.", one(func(s *stats) float64 { return float64(s.Units.FollowLag) }))
	add(gauge, "state_follower_failures", nil, "Units that this worker cannot follow; the log says why.", one(func(s *stats) float64 { return float64(s.Units.FollowFailures) }))
	add(counter, "timers_total", nil, "Timers that ran.", one(func(s *stats) float64 { return float64(s.Units.Timers) }))
	all = append(all, deliveries)
	add(gauge, "circuit_open", nil, "1 while nothing is read because nothing can be written.", one(func(s *stats) float64 { return boolean(s.CircuitOpen) }))
	add(gauge, "partitions", []string{"state"}, "Partitions by state: open (being read), leased (by this worker) or not_leased (by this worker).",
		func(s *stats, emit func(float64, ...string)) {
			emit(float64(s.OpenPartitions), "open")
			emit(float64(s.Leases.Held), "leased")
			emit(float64(s.Leases.NotHeld), "not_leased")
		})
	add(gauge, "workers", nil, "Workers that share the pipeline's partitions; 0 when they are not shared.", one(func(s *stats) float64 { return float64(s.Leases.Workers) }))
	add(gauge, "worker_info", []string{"worker"}, "1 for the name of this worker.", func(s *stats, emit func(float64, ...string)) { emit(1, s.Leases.Worker) })
	return all
}()

// vmMetrics are about the VMs of all scripts together.
var vmMetrics = func() (all []metric[pool.Stats]) {
	type stats = pool.Stats
	add := func(kind, name, help string, value func(*stats) float64) {
		all = append(all, metric[stats]{Metric: Metric{"perigee_vms_" + name, kind, nil, help}, collect: one(value)})
	}
	add(gauge, "scripts", "Scripts that have VMs.", func(s *stats) float64 { return float64(s.Scripts) })
	add(gauge, "idle", "VMs that are idle.", func(s *stats) float64 { return float64(s.Idle) })
	add(gauge, "in_use", "VMs that are in use.", func(s *stats) float64 { return float64(s.InUse) })
	add(gauge, "suspended_calls", "Calls that wait for a Go function.", func(s *stats) float64 { return float64(s.Suspended) })
	add(gauge, "waiting_callers", "Callers that wait for a VM.", func(s *stats) float64 { return float64(s.Waiting) })
	add(gauge, "memory_bytes", "Memory of all VMs.", func(s *stats) float64 { return float64(s.Memory) })
	add(counter, "created_total", "VMs created.", func(s *stats) float64 { return float64(s.Made) })
	add(counter, "released_total", "VMs released because they were idle.", func(s *stats) float64 { return float64(s.Released) })
	add(counter, "discarded_total", "VMs discarded because a script hit a limit.", func(s *stats) float64 { return float64(s.Discarded) })
	add(counter, "waits_total", "Calls that had to wait for a VM.", func(s *stats) float64 { return float64(s.Waits) })
	add(counter, "wait_seconds_total", "Time that calls waited for a VM.", func(s *stats) float64 { return s.WaitTime.Seconds() })
	return all
}()

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// A collector collects metrics from values of type T.
type collector[T any] struct {
	metrics []metric[T]
	descs   []*prometheus.Desc
	// stats calls each for every T, with the values of its first labels.
	stats func(each func(labels []string, s *T))
}

func newCollector[T any](metrics []metric[T], stats func(each func([]string, *T))) *collector[T] {
	c := &collector[T]{metrics: metrics, stats: stats}
	for _, m := range metrics {
		c.descs = append(c.descs, m.Desc())
	}
	return c
}

// Desc describes the metric to Prometheus.
func (m *Metric) Desc() *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil) }

func (m *Metric) valueType() prometheus.ValueType {
	if m.Type == counter {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

// Describe implements prometheus.Collector.
func (c *collector[T]) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector[T]) Collect(ch chan<- prometheus.Metric) {
	c.stats(func(labels []string, s *T) {
		for i := range c.metrics {
			all := func(more []string) []string { return append(labels[:len(labels):len(labels)], more...) }
			if distribute := c.metrics[i].distribute; distribute != nil {
				distribute(s, func(l *pipeline.Latencies, more ...string) {
					ch <- prometheus.MustNewConstHistogram(c.descs[i], l.Count, l.Sum.Seconds(), bucketsOf(l), all(more)...)
				})
				continue
			}
			c.metrics[i].collect(s, func(value float64, more ...string) {
				ch <- prometheus.MustNewConstMetric(c.descs[i], c.metrics[i].valueType(), value, all(more)...)
			})
		}
	})
}

func bucketsOf(l *pipeline.Latencies) map[float64]uint64 {
	buckets := make(map[float64]uint64, len(l.Buckets))
	for i, count := range l.Buckets {
		buckets[pipeline.LatencyBounds[i].Seconds()] = count
	}
	return buckets
}

func collectPipelines(pipelines func() []*pipeline.Pipeline) prometheus.Collector {
	return newCollector(pipelineMetrics, func(each func([]string, *pipeline.Stats)) {
		for _, p := range pipelines() {
			s := p.Stats()
			each([]string{p.Name()}, &s)
		}
	})
}

// VMs returns a collector of the VMs in all pools together.
func VMs(pools func() []*pool.Pool) prometheus.Collector {
	return newCollector(vmMetrics, func(each func([]string, *pool.Stats)) {
		var sum pool.Stats
		for _, p := range pools() {
			s := p.Stats()
			sum.Scripts += s.Scripts
			sum.Idle += s.Idle
			sum.InUse += s.InUse
			sum.Suspended += s.Suspended
			sum.Waiting += s.Waiting
			sum.Memory += s.Memory
			sum.Made += s.Made
			sum.Released += s.Released
			sum.Discarded += s.Discarded
			sum.Waits += s.Waits
			sum.WaitTime += s.WaitTime
		}
		each(nil, &sum)
	})
}
