//go:build linux && cgo

package eventservice

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Collect implements prometheus.Collector.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	opened := s.opened
	s.mu.Unlock()
	if opened == nil {
		return
	}
	for table, u := range opened.UniqueStates() {
		ch <- prometheus.MustNewConstMetric(repeatedRows.Desc(), prometheus.CounterValue, float64(u.Repeated), table)
		ch <- prometheus.MustNewConstMetric(uniqueKeys.Desc(), prometheus.GaugeValue, float64(u.Keys), table)
	}
	for _, state := range opened.LakeStates() {
		for _, m := range lakeMetrics {
			ch <- prometheus.MustNewConstMetric(m.Desc(), prometheus.GaugeValue, m.value(&state, time.Now()), state.Table)
		}
	}
}
