package engine

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/script/reload"
	"github.com/perigeedb/perigee/server"
)

var (
	scriptInfo = server.Metric{Name: "perigee_script_info", Type: "gauge", Labels: []string{"pipeline", "script"},
		Help: "1 for the version of the script that runs."}
	scriptReloads = server.Metric{Name: "perigee_script_reloads_total", Type: "counter", Labels: []string{"pipeline", "result"},
		Help: "New versions of the script, by result: replaced, refused or unreadable."}
)

// Metrics lists the metrics that an engine exposes at /metrics, besides those of the Go
// runtime and the process and those in Kinds.Metrics.
func Metrics() []server.Metric { return append(server.Metrics(), scriptInfo, scriptReloads) }

// scriptMetrics collects which versions of scripts run.
type scriptMetrics struct{ engine *Engine }

// Describe implements prometheus.Collector.
func (*scriptMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- scriptInfo.Desc()
	ch <- scriptReloads.Desc()
}

// Collect implements prometheus.Collector.
func (m *scriptMetrics) Collect(ch chan<- prometheus.Metric) {
	m.engine.mu.Lock()
	defer m.engine.mu.Unlock()
	for _, r := range m.engine.runners {
		name := r.parts.Config.Name
		ch <- prometheus.MustNewConstMetric(scriptInfo.Desc(), prometheus.GaugeValue, 1, name, r.parts.Script.String())
		s, ok := r.parts.Script.(*reload.Script)
		if !ok {
			continue
		}
		c := s.Counts()
		for result, n := range map[string]uint64{"replaced": c.Replaced, "refused": c.Refused, "unreadable": c.Unreadable} {
			ch <- prometheus.MustNewConstMetric(scriptReloads.Desc(), prometheus.CounterValue, float64(n), name, result)
		}
	}
}
