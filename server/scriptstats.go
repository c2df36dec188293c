package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/script"
)

// statsPrefix precedes the names that scripts choose.
const statsPrefix = "perigee_stats_"

var rejectedStats = Metric{statsPrefix + "rejected_total", counter, nil, "Measurements of scripts that were rejected."}

// scriptStats exposes what scripts measure, as perigee_stats_NAME. It describes nothing
// beforehand: names come up while scripts run.
type scriptStats struct{ stats *script.Stats }

// ScriptStats returns a collector of what scripts measure.
func ScriptStats(stats *script.Stats) prometheus.Collector { return scriptStats{stats} }

// Describe implements prometheus.Collector.
func (scriptStats) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c scriptStats) Collect(ch chan<- prometheus.Metric) {
	stats, rejected := c.stats.Snapshot()
	for _, stat := range stats {
		ch <- toMetric(stat)
	}
	ch <- prometheus.MustNewConstMetric(rejectedStats.Desc(), prometheus.CounterValue, float64(rejected))
}

func toMetric(stat script.Stat) prometheus.Metric {
	var names, values []string
	for _, label := range stat.Labels {
		names, values = append(names, label.Name), append(values, label.Value)
	}
	name := statsPrefix + stat.Name
	if stat.Kind == script.Counter {
		name += "_total"
	}
	desc := prometheus.NewDesc(name, "Measured by scripts.", names, nil)
	var metric prometheus.Metric
	var err error
	switch stat.Kind {
	case script.Histogram:
		buckets := make(map[float64]uint64, len(stat.Bounds))
		for i, bound := range stat.Bounds {
			buckets[bound] = stat.Buckets[i]
		}
		metric, err = prometheus.NewConstHistogram(desc, stat.Count, stat.Value, buckets, values...)
	case script.Counter:
		metric, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, stat.Value, values...)
	default:
		metric, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, stat.Value, values...)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return metric
}
