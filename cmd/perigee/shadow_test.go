package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/admin"
)

// TestShadowAndPromote shows the report of a shadow in every format, and promotes it.
func TestShadowAndPromote(t *testing.T) {
	t.Parallel()
	folder := shortDir(t)
	place := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := place("perigee.yaml", "data: state\nhttp: 127.0.0.1:0\npipelines:\n  a:\n"+
		"    source: {generate: {events: 1000000000, rate: 1000}}\n    script: old.lua\n    shadow: {script: new.lua, sample: 50%}\n    sink: {stdout: {}}\n"+
		"  b:\n    source: {generate: {events: 1000000000, rate: 10}}\n    sink: {stdout: {}}\n")
	place("old.lua", "function main(event) return {id = event.id, by = 'old'} end")
	place("new.lua", "function main(event) return {id = event.id, by = '<new>'} end")
	says(t, 0, "  shadow: "+filepath.Join(folder, "new.lua"), "check", config)
	says(t, 2, "no engine is running", "shadow", "a", "--config", config)
	says(t, 1, "no engine is running", "promote", "a", "--config", config)

	p := runEngine(t, config)
	p.says("partition open", "pipeline=a")
	p.says("shadow started", "pipeline=a", "shadow=true", "sample=0.5")
	says(t, 2, "pipeline b has no shadow", "shadow", "b", "--config", config)
	says(t, 1, "hint: add one to the pipeline in the configuration", "promote", "b", "--config", config)
	says(t, 2, "did you mean", "shadow", "aa", "--config", config)

	var report admin.ShadowReport
	eventually(t, "events differ", func() bool {
		out, _ := exec.Command("perigee", "shadow", "a", "--config", config, "--format", "json").Output() // the exit code tells of differences
		return json.Unmarshal(out, &report) == nil && report.Different > 100
	})
	if report.Pipeline != "a" || report.Sample != 0.5 || report.State != admin.ShadowRunning || report.Report.Different != report.Different || len(report.Report.Groups) != 1 {
		t.Errorf("the report is %+v", report)
	}
	text := says(t, 1, "sampled 50% of the events: ", "shadow", "a", "--config", config)
	for _, want := range []string{"new.lua is running since 20", "\n`by` changed: ", `"old"                             "<new>"`, "\nold: " + filepath.Join(folder, "old.lua@")} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	says(t, 1, "&lt;new&gt;", "shadow", "a", "--config", config, "--format", "html")
	says(t, 0, "new.lua is running since 20", "status", "--config", config)
	if metrics := p.metrics(); !strings.Contains(metrics, `perigee_shadow_running{pipeline="a"} 1`) || !strings.Contains(metrics, `perigee_shadow_events_total{pipeline="a",result="different"}`) {
		t.Errorf("the metrics lack the shadow:\n%s", metrics)
	}
	if out := says(t, 0, "", "shadow", "a", "--config", config, "--reset", "--format", "json"); !strings.Contains(out, `"pipeline":"a"`) {
		t.Errorf("the reset says %s", out)
	}

	out := says(t, 0, "runs "+filepath.Join(folder, "new.lua")+" from its next batch on, in place of "+filepath.Join(folder, "old.lua"), "promote", "a", "--config", config)
	if !strings.Contains(out, "until then, a restart or a reload that changes the pipeline runs "+filepath.Join(folder, "old.lua")+" again") {
		t.Errorf("promote says\n%s", out)
	}
	p.says("script replaced", "new.lua@", "before=")
	p.says("shadow promoted", "pipeline=a")
	says(t, 1, "new.lua is promoted since 20", "shadow", "a", "--config", config)
	says(t, 1, "error: pipeline a: the shadow is promoted", "promote", "a", "--config", config)
	says(t, 2, "error: pipeline a: the shadow is promoted", "shadow", "a", "--config", config, "--reset")
	says(t, 0, "no difference", "diff", "running", filepath.Join(folder, "new.lua"), place("events.ndjson", "{\"id\":1}\n"), "--config", config, "--pipeline", "a")

	p.signal(syscall.SIGHUP) // the configuration has not changed: the promotion stays
	p.says("script unchanged", "new.lua@")
	p.signal(syscall.SIGTERM)
	p.ends(0)
	p = runEngine(t, config)
	p.says("shadow started", "new.lua")
	says(t, 2, "", "shadow", "b", "--config", config)
	p.signal(syscall.SIGTERM)
	p.ends(0)
}
