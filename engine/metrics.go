package engine

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/engine/shadow"
	"github.com/perigeedb/perigee/script/reload"
	"github.com/perigeedb/perigee/server"
)

var (
	scriptInfo = server.Metric{Name: "perigee_script_info", Type: "gauge", Labels: []string{"pipeline", "script"},
		Help: "1 for the version of the script that runs."}
	scriptReloads = server.Metric{Name: "perigee_script_reloads_total", Type: "counter", Labels: []string{"pipeline", "result"},
		Help: "New versions of the script, by result: replaced, refused or unreadable."}
	shadowRunning = server.Metric{Name: "perigee_shadow_running", Type: "gauge", Labels: []string{"pipeline"},
		Help: "1 if the shadow of the pipeline runs, 0 if it does not load, has stopped itself or was promoted."}
	shadowEvents = server.Metric{Name: "perigee_shadow_events_total", Type: "counter", Labels: []string{"pipeline", "result"},
		Help: "Events that the shadow sampled, by result: same, different, or skipped because the shadow was busy or hit a limit."}
	shadowSeconds = server.Metric{Name: "perigee_shadow_seconds_total", Type: "counter", Labels: []string{"pipeline"},
		Help: "Time in the shadow."}
)

// Metrics lists the metrics that an engine exposes at /metrics, besides those of the Go
// runtime and the process and those in Kinds.Metrics.
func Metrics() []server.Metric {
	return append(server.Metrics(), scriptInfo, scriptReloads, shadowRunning, shadowEvents, shadowSeconds, traceSpans)
}

// scriptMetrics collects which versions of scripts run.
type scriptMetrics struct{ engine *Engine }

// Describe implements prometheus.Collector.
func (*scriptMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- scriptInfo.Desc()
	ch <- scriptReloads.Desc()
	ch <- shadowRunning.Desc()
	ch <- shadowEvents.Desc()
	ch <- shadowSeconds.Desc()
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
		if r.parts.Shadow != nil {
			collectShadow(ch, name, r.parts.Shadow.Counts())
		}
	}
}

func collectShadow(ch chan<- prometheus.Metric, pipeline string, c shadow.Counts) {
	running := 0.0
	if c.Running {
		running = 1
	}
	ch <- prometheus.MustNewConstMetric(shadowRunning.Desc(), prometheus.GaugeValue, running, pipeline)
	for result, n := range map[string]uint64{"same": c.Same, "different": c.Different, "skipped": c.Skipped} {
		ch <- prometheus.MustNewConstMetric(shadowEvents.Desc(), prometheus.CounterValue, float64(n), pipeline, result)
	}
	ch <- prometheus.MustNewConstMetric(shadowSeconds.Desc(), prometheus.CounterValue, c.Time.Seconds(), pipeline)
}
