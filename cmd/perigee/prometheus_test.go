package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/eventservice"
)

// TestPrometheusExamples compares the metrics that alerts and dashboard read with those that an engine
// exposes, and lets promtool check the alerts where it is installed.
func TestPrometheusExamples(t *testing.T) {
	exposed := map[string]map[string]bool{}
	for _, m := range append(engine.Metrics(), eventservice.Metrics()...) {
		labels := map[string]bool{}
		for _, l := range m.Labels {
			labels[l] = true
		}
		names := []string{m.Name}
		if m.Type == "histogram" {
			labels["le"] = true
			names = []string{m.Name + "_bucket", m.Name + "_sum", m.Name + "_count"}
		}
		for _, name := range names {
			exposed[name] = labels
		}
	}
	metric := regexp.MustCompile(`perigee_[a-z_]+`)
	selector := regexp.MustCompile(`(perigee_[a-z_]+)\{([a-z]+)=`)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		data, err := os.ReadFile("../../examples/prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), `\"`, `"`)
		names := metric.FindAllString(text, -1)
		if len(names) < 5 {
			t.Errorf("%s reads %d metrics, want more", file, len(names))
		}
		for _, name := range names {
			if exposed[name] == nil {
				t.Errorf("%s reads %s, which no engine exposes", file, name)
			}
		}
		for _, found := range selector.FindAllStringSubmatch(text, -1) {
			if labels := exposed[found[1]]; labels != nil && !labels[found[2]] {
				t.Errorf("%s selects %s by %s, which is not among its labels", file, found[1], found[2])
			}
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(data) {
			t.Errorf("%s is not JSON", file)
		}
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		if out, err := exec.Command(promtool, "check", "rules", "../../examples/prometheus/alerts.yaml").CombinedOutput(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	}
}
