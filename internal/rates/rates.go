// Package rates computes what people watch of running pipelines, such as events per second, lag and
// quantiles, from statuses that were read one after the other. A History has one owner.
package rates

import (
	"maps"
	"slices"
	"time"

	"github.com/perigeedb/perigee/admin"
)

const (
	// Samples is how many statuses of each pipeline a History keeps.
	Samples = 120
	window  = 5 // samples over which rates and quantiles are taken
)

// A sample is the status of one pipeline at a time.
type sample struct {
	at time.Time
	admin.Status
}

// A History keeps the last statuses of pipelines. The zero value is empty.
type History struct {
	samples map[string][]sample // by pipeline, the oldest first
}

// Add adds the statuses of all pipelines, read at a time. It forgets pipelines that are absent, and
// what a pipeline did before it was started again.
func (h *History) Add(at time.Time, all []admin.Status) {
	before := h.samples
	h.samples = make(map[string][]sample, len(all))
	for _, s := range all {
		kept := before[s.Pipeline]
		if n := len(kept); n > 0 && kept[n-1].Read > s.Read {
			kept = nil // it was started again
		}
		h.samples[s.Pipeline] = append(kept[max(0, len(kept)+1-Samples):], sample{at, s})
	}
}

// Pipelines returns the rates of all pipelines, sorted by name.
func (h *History) Pipelines() []Pipeline {
	all := make([]Pipeline, 0, len(h.samples))
	for _, name := range slices.Sorted(maps.Keys(h.samples)) {
		all = append(all, newPipeline(h.samples[name]))
	}
	return all
}

// A Pipeline is the last status of a pipeline, and its rates over the last seconds.
type Pipeline struct {
	Status admin.Status `json:"status"`

	In     float64       `json:"in"`      // events read in a second
	Out    float64       `json:"out"`     // events delivered in a second
	Lag    uint64        `json:"lag"`     // of the source, or of the slowest sink
	Script float64       `json:"script"`  // share of the time, summed over lanes
	Commit float64       `json:"commit"`  // share of the time in sinks, summed over lanes
	Waits  float64       `json:"waits"`   // share of the time that reading waits for commits
	P50    time.Duration `json:"p50"`     // from reading a batch until every sink has it
	P99    time.Duration `json:"p99"`     // the same
	Errors float64       `json:"errors"`  // failed attempts in a second
	Dead   float64       `json:"dead"`    // events that became dead letters in a second
	Failed uint64        `json:"retries"` // failed attempts of all kinds since the start

	Sinks []Sink `json:"sinks"`
	// Trend has the events delivered in a second between each two samples, the oldest first.
	Trend []float64 `json:"trend"`
}

// Name returns the name of the pipeline.
func (p *Pipeline) Name() string { return p.Status.Pipeline }

// A Sink is the last status of a sink, and its rates.
type Sink struct {
	Status admin.SinkStatus `json:"status"`

	Rate float64       `json:"rate"` // rows in a second
	Busy float64       `json:"busy"` // share of the time in the sink, summed over lanes
	P50  time.Duration `json:"p50"`  // of a commit
	P99  time.Duration `json:"p99"`
}

// newPipeline computes rates from the samples of a pipeline. There is at least one sample.
func newPipeline(samples []sample) Pipeline {
	last := len(samples) - 1
	now, before := &samples[last], &samples[max(0, last-window)]
	p := Pipeline{Status: now.Status, Lag: now.Lag, Failed: failures(&now.Status), Sinks: []Sink{}, Trend: []float64{}}
	seconds := now.at.Sub(before.at).Seconds()
	per := func(after, before float64) float64 {
		if seconds <= 0 {
			return 0
		}
		return max(0, after-before) / seconds
	}
	p.In, p.Out = per(float64(now.Read), float64(before.Read)), per(float64(now.Events), float64(before.Events))
	p.Dead = per(float64(now.Status.Dead), float64(before.Status.Dead))
	p.Script, p.Waits = per(now.ScriptSeconds, before.ScriptSeconds), per(now.BackpressureSeconds, before.BackpressureSeconds)
	p.Errors = per(float64(p.Failed), float64(failures(&before.Status)))
	recent := now.Deliveries.Since(&before.Deliveries)
	if last == 0 {
		recent = now.Deliveries
	}
	p.P50, p.P99 = recent.Quantile(0.5), recent.Quantile(0.99)
	for i, s := range now.Status.Sinks {
		one := Sink{Status: s}
		commits := s.Commits
		if i < len(before.Status.Sinks) && last > 0 {
			b := &before.Status.Sinks[i]
			one.Rate, one.Busy = per(float64(s.Rows), float64(b.Rows)), per(s.Seconds, b.Seconds)
			commits = s.Commits.Since(&b.Commits)
		}
		one.P50, one.P99 = commits.Quantile(0.5), commits.Quantile(0.99)
		p.Lag, p.Commit = max(p.Lag, s.Lag), p.Commit+one.Busy
		p.Sinks = append(p.Sinks, one)
	}
	for i := 1; i <= last; i++ {
		took := samples[i].at.Sub(samples[i-1].at).Seconds()
		delivered := samples[i].Events - min(samples[i-1].Events, samples[i].Events)
		p.Trend = append(p.Trend, float64(delivered)/max(took, 1e-3))
	}
	return p
}

// failures returns the failed attempts of all kinds.
func failures(s *admin.Status) uint64 {
	n := s.Retries
	for _, one := range s.Sinks {
		n += one.Retries
	}
	return n
}
