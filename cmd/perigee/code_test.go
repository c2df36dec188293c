package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// website serves a configuration and the script that it names beside it.
func website(t *testing.T) *url.URL {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /p/perigee.yaml", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "data: %s\nhttp: off\npipelines:\n  a:\n    source: {generate: {events: 1}}\n    script: lib/a.lua\n    sink: {stdout: {}}\n", t.TempDir())
	})
	mux.HandleFunc("GET /p/lib/a.lua", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "function main(event) return event end")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL + "/p/perigee.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestConfigurationOnAHost(t *testing.T) {
	address := website(t)
	var out, errs bytes.Buffer
	c := console{strings.NewReader(""), &out, &errs, os.LookupEnv, nil}
	if code := perigee([]string{"check", address.String(), "--allow", address.Host}, c); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	if want := "through " + strings.Replace(address.String(), "perigee.yaml", "lib/a.lua", 1); !strings.Contains(out.String(), want) {
		t.Errorf("output lacks %q:\n%s", want, &out)
	}
	if code := perigee([]string{"check", address.String(), "--allow", "other.example.com"}, c); code != exitFailure {
		t.Errorf("exit code %d for a host that is not allowed", code)
	}
}

// TestHangupReplacesScripts: on SIGHUP an engine looks for new versions, says
// what it found, and counts it. No name that a script measures under hides that.
func TestHangupReplacesScripts(t *testing.T) {
	folder := shortDir(t)
	write := func(name, format string, args ...any) {
		if err := os.WriteFile(filepath.Join(folder, name), fmt.Appendf(nil, format, args...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("perigee.yaml", "data: state\nhttp: 127.0.0.1:0\nreload: off\npipelines:\n  a:\n"+
		"    source: {generate: {events: 1000000000, rate: 1000}}\n    script: a.lua\n    sink: {stdout: {}}\n")
	const code = `local stats = require "stats"
function main(event) stats.counter("seen", 1) stats.gauge("seen_total", 7) return {version = %d} end`
	write("a.lua", code, 1)
	p := runEngine(t, filepath.Join(folder, "perigee.yaml"))
	p.says("partition open")
	p.signal(syscall.SIGHUP)
	p.says("script unchanged", "a.lua@")
	write("a.lua", code, 2)
	p.signal(syscall.SIGHUP)
	p.says("script replaced", "a.lua@", "before=")
	write("a.lua", "function main(event")
	p.signal(syscall.SIGHUP)
	p.says("refused new version of script; the old one stays", "a.lua:1")
	metrics := p.metrics()
	for _, want := range []string{
		`perigee_script_info{pipeline="a",script=".*/a.lua@[0-9a-f]+"} 1`,
		`perigee_script_reloads_total{pipeline="a",result="replaced"} 1`,
		`(?m)^perigee_stats_seen_total [1-9]`,
		`perigee_script_reloads_total{pipeline="a",result="refused"} 1`,
		`perigee_script_reloads_total{pipeline="a",result="unreadable"} 0`,
	} {
		if !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("metrics lack %s", want)
		}
	}
	p.signal(syscall.SIGTERM)
	p.ends(0)
}

// metrics asks the port that the engine's log names.
func (p *process) metrics() string {
	p.t.Helper()
	found := regexp.MustCompile(`msg="serving http" address=(\S+)`).FindStringSubmatch(p.log.String())
	if found == nil {
		p.t.Fatal("the log names no port")
	}
	response, err := http.Get("http://" + found[1] + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(body)
}

// TestHangupAppliesConfiguration edits the configuration of a running engine: exactly
// the pipelines that changed are drained and started again, and an edit that check would
// refuse changes nothing.
func TestHangupAppliesConfiguration(t *testing.T) {
	folder := shortDir(t)
	file := filepath.Join(folder, "perigee.yaml")
	steady := func(name, rest string) string {
		return "  " + name + ":\n    source: {generate: {events: 1000000000, rate: 100" + rest + "}}\n    sink: {stdout: {}}\n"
	}
	write := func(head string, pipelines ...string) {
		t.Helper()
		text := head + "reload: off\npipelines:\n" + strings.Join(pipelines, "")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const head = "data: state\nhttp: 127.0.0.1:0\n"
	write(head, steady("a", ""), steady("b", ""), steady("c", ""))
	p := runEngine(t, file)
	for _, name := range []string{"a", "b", "c"} {
		p.says("partition open", "pipeline="+name)
	}
	write("# the same\n"+head, steady("a", ""), steady("b", ", seed: 7"), steady("d", ""))
	p.signal(syscall.SIGHUP)
	p.says("configuration reloaded", "started=d restarted=b stopped=c unchanged=a")
	p.says("partition open", "pipeline=d")
	if n := strings.Count(p.log.String(), `msg="pipeline ended" pipeline=a`); n > 0 {
		t.Error("a pipeline that did not change was restarted")
	}
	for _, name := range []string{"b", "c"} {
		p.says("pipeline ended", "pipeline="+name)
	}
	data := filepath.Join(folder, "state")
	status := says(t, 0, `"pipeline":"d"`, "status", "--data", data, "--format", "json")
	if strings.Contains(status, `"pipeline":"c"`) || strings.Index(status, `"pipeline":"a"`) > strings.Index(status, `"pipeline":"b"`) {
		t.Errorf("status shows %s", status)
	}

	write(head, steady("a", ", seed: many"), steady("b", ""))
	p.signal(syscall.SIGHUP)
	p.says("configuration refused; the old one stays in effect", `not \"many\"`)
	write("data: elsewhere\nhttp: 127.0.0.1:0\n", steady("a", ""))
	p.signal(syscall.SIGHUP)
	p.says("configuration refused", "data changed from")
	says(t, 0, `"pipeline":"d"`, "status", "--data", data, "--format", "json")
	p.signal(syscall.SIGTERM)
	p.ends(0)
	if metrics := p.log.String(); strings.Count(metrics, `msg="pipeline ended" pipeline=a`) != 1 {
		t.Errorf("pipeline a ended more than once")
	}
}
