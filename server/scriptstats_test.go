package server

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/perigeedb/perigee/script"
)

func TestScriptStats(t *testing.T) {
	stats := &script.Stats{}
	add := func(kind script.StatKind, name string, value float64, labels ...script.Label) {
		t.Helper()
		if err := stats.Add(kind, name, value, labels...); err != nil {
			t.Fatal(err)
		}
	}
	add(script.Counter, "seen", 2)
	add(script.Counter, "seen", 3, script.Label{Name: "domain", Value: "a.example"})
	add(script.Gauge, "depth", 7)
	add(script.Histogram, "amount", 0.5)
	if err := stats.Add(script.Gauge, "seen", 1); err == nil {
		t.Error("a counter was taken for a gauge")
	}
	want := `
# HELP perigee_stats_depth Measured by scripts.
# TYPE perigee_stats_depth gauge
perigee_stats_depth 7
# HELP perigee_stats_rejected_total Measurements of scripts that were rejected.
# TYPE perigee_stats_rejected_total counter
perigee_stats_rejected_total 1
# HELP perigee_stats_seen_total Measured by scripts.
# TYPE perigee_stats_seen_total counter
perigee_stats_seen_total 2
perigee_stats_seen_total{domain="a.example"} 3
`
	names := []string{"perigee_stats_depth", "perigee_stats_rejected_total", "perigee_stats_seen_total"}
	if err := testutil.CollectAndCompare(ScriptStats(stats), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(ScriptStats(stats), "perigee_stats_amount"); n != 1 {
		t.Errorf("%d histograms, want 1", n)
	}
}
