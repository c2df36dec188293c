package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/internal/document"
)

var allocatorBytes = Metric{"perigee_c_allocator_bytes", gauge, []string{"state"},
	"Memory of C code (scripts' VMs, document indexes): in_use, and freed but kept by the C library (free)."}

// allocator exposes the memory that C code has taken from malloc, which the Go
// runtime's figures do not contain.
type allocator struct{}

// Describe implements prometheus.Collector.
func (allocator) Describe(ch chan<- *prometheus.Desc) { ch <- allocatorBytes.Desc() }

// Collect implements prometheus.Collector.
func (allocator) Collect(ch chan<- prometheus.Metric) {
	inUse, free, ok := document.AllocatorBytes()
	if !ok {
		return
	}
	desc := allocatorBytes.Desc()
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(inUse), "in_use")
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(free), "free")
}
