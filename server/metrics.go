package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/pipeline"
)

// A collector reads the counts of the pipelines when it is asked for them.
type collector struct {
	pipelines []*pipeline.Pipeline
	descs     []*prometheus.Desc // all of those below

	read, bytes, batches, settled, dropped *prometheus.Desc
	dead, lag, state                       *prometheus.Desc
	sourceRetries, letterRetries, script   *prometheus.Desc
	rows, sinkRetries, sink, sinkLag       *prometheus.Desc
	outboxRetries, replayed                *prometheus.Desc
	waited, circuit                        *prometheus.Desc
	worker, workers, partitions            *prometheus.Desc
	leaseRetries                           *prometheus.Desc
}

func newCollector(pipelines []*pipeline.Pipeline) *collector {
	var descs []*prometheus.Desc
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc("perigee_"+name, help, append([]string{"pipeline"}, labels...), nil)
		descs = append(descs, d)
		return d
	}
	c := &collector{
		pipelines:     pipelines,
		read:          desc("events_read_total", "Events read from the source, those read again included."),
		bytes:         desc("read_bytes_total", "Bytes of the events read."),
		batches:       desc("batches_total", "Batches read."),
		settled:       desc("events_settled_total", "Events whose batch is durable in every sink."),
		dropped:       desc("events_dropped_total", "Events that the script dropped on purpose."),
		dead:          desc("dead_letters_total", "Events that could not be processed.", "stage"),
		lag:           desc("lag_events", "Events that waited in the source behind the last one read."),
		state:         desc("pipeline_state", "1 for the state that the pipeline is in.", "state"),
		sourceRetries: desc("source_retries_total", "Failed attempts at the source."),
		letterRetries: desc("dead_letter_retries_total", "Failed attempts at keeping dead letters."),
		script:        desc("script_seconds_total", "Time spent in the script, summed over lanes."),
		rows:          desc("rows_written_total", "Rows made durable in a sink.", "sink"),
		sinkRetries:   desc("sink_retries_total", "Failed attempts at writing to a sink.", "sink"),
		sink:          desc("sink_seconds_total", "Time spent in a sink, summed over lanes.", "sink"),
		sinkLag:       desc("sink_lag_events", "Events that are not durable in a sink: in the source or on their way.", "sink"),
		outboxRetries: desc("outbox_retries_total", "Failed attempts at storing outputs for several sinks."),
		replayed:      desc("events_replayed_total", "Events whose stored outputs were written after a crash."),
		waited:        desc("backpressure_seconds_total", "Time that reading waited for a batch to be settled, summed over partitions."),
		circuit:       desc("circuit_broken", "1 while nothing is read because what is read could only wait."),
		worker:        desc("worker", "1 for the name under which this engine shares partitions.", "worker"),
		workers:       desc("workers", "Workers alive that share the pipeline; 0 when its partitions are not shared."),
		leaseRetries:  desc("lease_retries_total", "Failed attempts at asking for leases."),
		partitions:    desc("partitions", "Partitions by where they are: open here, held by lease, or not held by this worker.", "where"),
	}
	c.descs = descs
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.pipelines {
		c.collect(ch, p.Name(), p.Stats())
	}
}

func (c *collector) collect(ch chan<- prometheus.Metric, name string, s pipeline.Stats) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{name}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{name}, labels...)...)
	}
	counter(c.read, float64(s.Read))
	counter(c.bytes, float64(s.Bytes))
	counter(c.batches, float64(s.Batches))
	counter(c.settled, float64(s.Committed))
	counter(c.dropped, float64(s.Dropped))
	for stage, n := range s.Dead {
		counter(c.dead, float64(n), stage)
	}
	gauge(c.lag, float64(s.Lag))
	for _, state := range pipeline.States() {
		gauge(c.state, truth(s.State == state), string(state))
	}
	counter(c.sourceRetries, float64(s.SourceRetries))
	counter(c.letterRetries, float64(s.DeadLetterRetries))
	counter(c.script, s.ScriptTime.Seconds())
	for _, sink := range s.Sinks {
		counter(c.rows, float64(sink.Rows), sink.Name)
		counter(c.sinkRetries, float64(sink.Retries), sink.Name)
		counter(c.sink, sink.Time.Seconds(), sink.Name)
		gauge(c.sinkLag, float64(sink.Lag), sink.Name)
	}
	counter(c.outboxRetries, float64(s.OutboxRetries))
	counter(c.replayed, float64(s.Replayed))
	counter(c.waited, s.BackpressureTime.Seconds())
	gauge(c.circuit, truth(s.CircuitOpen))
	gauge(c.worker, 1, s.Leases.Worker)
	gauge(c.workers, float64(s.Leases.Workers))
	counter(c.leaseRetries, float64(s.Leases.Retries))
	gauge(c.partitions, float64(s.OpenPartitions), "open")
	gauge(c.partitions, float64(s.Leases.Held), "held")
	gauge(c.partitions, float64(s.Leases.NotHeld), "elsewhere")
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
