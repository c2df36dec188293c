package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/script/pool"
)

// A figure is a gauge or a counter of a pool.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(pool.Stats) float64
}

// vms exposes what pools of VMs do, together.
type vms struct {
	pools   []*pool.Pool
	figures []figure
}

// VMs makes a collector of what pools of scripts' VMs do, together.
func VMs(pools ...*pool.Pool) prometheus.Collector {
	v := &vms{pools: pools}
	add := func(kind prometheus.ValueType, name, help string, of func(pool.Stats) float64) {
		v.figures = append(v.figures, figure{prometheus.NewDesc("perigee_vms_"+name, help, nil, nil), kind, of})
	}
	gauge := func(name, help string, of func(pool.Stats) int) {
		add(prometheus.GaugeValue, name, help, func(s pool.Stats) float64 { return float64(of(s)) })
	}
	counter := func(name, help string, of func(pool.Stats) uint64) {
		add(prometheus.CounterValue, name, help, func(s pool.Stats) float64 { return float64(of(s)) })
	}
	gauge("scripts", "Scripts that have VMs.", func(s pool.Stats) int { return s.Scripts })
	gauge("idle", "VMs that wait for callers.", func(s pool.Stats) int { return s.Idle })
	gauge("in_use", "VMs that callers hold.", func(s pool.Stats) int { return s.InUse })
	gauge("suspended_calls", "Calls that wait for a function of Go.", func(s pool.Stats) int { return s.Suspended })
	gauge("waiting_callers", "Callers that wait for a VM.", func(s pool.Stats) int { return s.Waiting })
	gauge("memory_bytes", "Memory of all VMs.", func(s pool.Stats) int { return s.Memory })
	counter("made_total", "VMs made.", func(s pool.Stats) uint64 { return s.Made })
	counter("released_total", "VMs released because they were not needed any more.", func(s pool.Stats) uint64 { return s.Released })
	counter("discarded_total", "VMs thrown away because they hit a limit.", func(s pool.Stats) uint64 { return s.Discarded })
	counter("waits_total", "Calls that had to wait for a VM.", func(s pool.Stats) uint64 { return s.Waits })
	add(prometheus.CounterValue, "wait_seconds_total", "How long calls waited for a VM.", func(s pool.Stats) float64 { return s.WaitTime.Seconds() })
	return v
}

// Describe implements prometheus.Collector.
func (v *vms) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range v.figures {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (v *vms) Collect(ch chan<- prometheus.Metric) {
	sums := make([]float64, len(v.figures))
	for _, p := range v.pools {
		s := p.Stats()
		for i, f := range v.figures {
			sums[i] += f.of(s)
		}
	}
	for i, f := range v.figures {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, sums[i])
	}
}
