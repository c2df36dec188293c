package eventservice

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/server"
)

var (
	repeatedRows = server.Metric{Name: "perigee_table_repeated_rows_total", Type: "counter", Labels: []string{"table"},
		Help: "Rows that a table of the event store did not store, because their key had been seen within the window of unique."}
	uniqueKeys = server.Metric{Name: "perigee_table_unique_keys", Type: "gauge", Labels: []string{"table"},
		Help: "Keys that a table with unique has in memory."}
)

// A lakeMetric is a metric of tables that are published in a lake.
type lakeMetric struct {
	server.Metric
	value func(s *catalog.LakeState, now time.Time) float64
}

var lakeMetrics = []lakeMetric{
	newLakeMetric("failing", "1 if the last attempt to publish the table in its lake failed, or data could not be read there within the last hour, otherwise 0.",
		func(s *catalog.LakeState, _ time.Time) float64 {
			if s.Error != "" {
				return 1
			}
			return 0
		}),
	newLakeMetric("committed_timestamp_seconds", "Time at which the engine last confirmed that the lake has every ordered step, in seconds since 1970; 0 before the first time.",
		func(s *catalog.LakeState, _ time.Time) float64 {
			if s.Committed.IsZero() {
				return 0
			}
			return float64(s.Committed.UnixMilli()) / 1000
		}),
	newLakeMetric("waiting_files", "Files with rows that the lake does not have yet.", func(s *catalog.LakeState, _ time.Time) float64 { return float64(s.WaitingFiles) }),
	newLakeMetric("waiting_bytes", "Bytes of the files with rows that the lake does not have yet.", func(s *catalog.LakeState, _ time.Time) float64 { return float64(s.WaitingBytes) }),
	newLakeMetric("waiting_seconds", "Age of the oldest file with rows that the lake does not have yet; 0 without one.",
		func(s *catalog.LakeState, now time.Time) float64 {
			if s.WaitingSince.IsZero() {
				return 0
			}
			return max(0, now.Sub(s.WaitingSince).Seconds())
		}),
	newLakeMetric("gone_files", "Files that another engine has removed from the lake or rewritten: they are never published again.", func(s *catalog.LakeState, _ time.Time) float64 { return float64(s.Gone) }),
	newLakeMetric("remote_bytes", "Bytes of the files whose data have left the disk for the lake.", func(s *catalog.LakeState, _ time.Time) float64 { return float64(s.RemoteBytes) }),
	newLakeMetric("delete_files", "Files by which other engines have deleted rows in the lake: queries that need data which have left the disk are refused.", func(s *catalog.LakeState, _ time.Time) float64 { return float64(s.DeleteFiles) }),
	newLakeMetric("misfits", "Values that do not fit the type of their column in the lake, which has them in _rest.", func(s *catalog.LakeState, _ time.Time) float64 { return float64(s.Misfits) }),
}

func newLakeMetric(name, help string, value func(*catalog.LakeState, time.Time) float64) lakeMetric {
	return lakeMetric{server.Metric{Name: "perigee_table_lake_" + name, Type: "gauge", Labels: []string{"table"}, Help: help}, value}
}

// Metrics lists the metrics of the event store.
func Metrics() []server.Metric {
	all := []server.Metric{repeatedRows, uniqueKeys}
	for _, m := range lakeMetrics {
		all = append(all, m.Metric)
	}
	return all
}

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range Metrics() {
		ch <- m.Desc()
	}
}
