package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/internal/document"
)

// allocator exposes the memory that C code has taken from malloc, which the Go
// runtime's figures do not contain.
type allocator struct{ desc *prometheus.Desc }

func newAllocator() prometheus.Collector {
	return allocator{prometheus.NewDesc("perigee_c_allocator_bytes",
		"Memory of C code (scripts' VMs, document indexes): in use, and freed but kept by the C library.", []string{"state"}, nil)}
}

// Describe implements prometheus.Collector.
func (a allocator) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

// Collect implements prometheus.Collector.
func (a allocator) Collect(ch chan<- prometheus.Metric) {
	inUse, free, ok := document.AllocatorBytes()
	if !ok {
		return
	}
	ch <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, float64(inUse), "in_use")
	ch <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, float64(free), "free")
}
