package eventservice

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/server"
)

var (
	repeatedRows = server.Metric{Name: "perigee_table_repeated_rows_total", Type: "counter", Labels: []string{"table"},
		Help: "Rows that a table of the event store did not store, because their key had been seen within the window of unique."}
	uniqueKeys = server.Metric{Name: "perigee_table_unique_keys", Type: "gauge", Labels: []string{"table"},
		Help: "Keys that a table with unique has in memory."}
)

// Metrics lists the metrics of the event store.
func Metrics() []server.Metric { return []server.Metric{repeatedRows, uniqueKeys} }

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range Metrics() {
		ch <- m.Desc()
	}
}
