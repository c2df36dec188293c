package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/script"
)

// measurements exposes what scripts measure, as perigee_stats_NAME. It
// describes nothing beforehand: names come up while scripts run.
type measurements struct {
	stats   *script.Stats
	refused *prometheus.Desc
}

// Measurements makes a collector of what scripts measure.
func Measurements(stats *script.Stats) prometheus.Collector {
	return &measurements{
		stats:   stats,
		refused: prometheus.NewDesc("perigee_stats_refused_total", "Measurements of scripts that could not be kept.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *measurements) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *measurements) Collect(ch chan<- prometheus.Metric) {
	stats, refused := m.stats.Snapshot()
	for _, stat := range stats {
		ch <- measurement(stat)
	}
	ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(refused))
}

func measurement(stat script.Stat) prometheus.Metric {
	var names, values []string
	for _, label := range stat.Labels {
		names, values = append(names, label.Name), append(values, label.Value)
	}
	name := "perigee_stats_" + stat.Name
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
