package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/script/reload"
)

// replaceable are the scripts that can be replaced while they run.
func (pl *plan) replaceable() []*reload.Script {
	var scripts []*reload.Script
	for _, p := range pl.parts {
		if s, ok := p.script.(*reload.Script); ok {
			scripts = append(scripts, s)
		}
	}
	return scripts
}

// versions collects which version of each script runs, and what came of looking
// for newer ones.
type versions struct {
	parts         []part
	info, reloads *prometheus.Desc
}

func newVersions(parts []part) *versions {
	return &versions{
		parts:   parts,
		info:    prometheus.NewDesc("perigee_script_info", "1 for the version of the script that runs.", []string{"pipeline", "script"}, nil),
		reloads: prometheus.NewDesc("perigee_script_reloads_total", "New versions of the script, by what came of them.", []string{"pipeline", "result"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (v *versions) Describe(ch chan<- *prometheus.Desc) {
	ch <- v.info
	ch <- v.reloads
}

// Collect implements prometheus.Collector.
func (v *versions) Collect(ch chan<- prometheus.Metric) {
	for _, p := range v.parts {
		ch <- prometheus.MustNewConstMetric(v.info, prometheus.GaugeValue, 1, p.config.Name, p.script.String())
		s, ok := p.script.(*reload.Script)
		if !ok {
			continue
		}
		c := s.Counts()
		for result, n := range map[string]uint64{"replaced": c.Replaced, "refused": c.Refused, "unreadable": c.Unreadable} {
			ch <- prometheus.MustNewConstMetric(v.reloads, prometheus.CounterValue, float64(n), p.config.Name, result)
		}
	}
}
