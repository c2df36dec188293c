package goplugin

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func infoOf(release string, settings map[string]string, deps ...*debug.Module) *debug.BuildInfo {
	info := &debug.BuildInfo{GoVersion: release, Deps: deps}
	for key, value := range settings {
		info.Settings = append(info.Settings, debug.BuildSetting{Key: key, Value: value})
	}
	return info
}

func module(path, version, sum string) *debug.Module {
	return &debug.Module{Path: path, Version: version, Sum: sum}
}

func TestCompare(t *testing.T) {
	type set = map[string]string
	replaced := module("a.org/x", "v1.0.0", "")
	replaced.Replace = &debug.Module{Path: "../x"}
	ours := infoOf("go1.26.8", set{"GOARCH": "amd64", "GOAMD64": "v1", "-race": "false"}, module("a.org/x", "v1.0.0", "h1:x"), module("a.org/y", "v1.2.0", "h1:y"))
	plain := set{"GOARCH": "amd64", "GOAMD64": "v1"}
	for name, c := range map[string]struct {
		theirs *debug.BuildInfo
		want   []Difference
	}{
		"equal":                   {ours, nil},
		"without modules":         {infoOf("go1.26.8", plain), nil},
		"a module of its own":     {infoOf("go1.26.8", plain, module("b.org/z", "v9.0.0", "h1:z")), nil},
		"flags of its main alone": {infoOf("go1.26.8", set{"GOARCH": "amd64", "GOAMD64": "v1", "-gcflags": "-N", "-ldflags": "-s", "-tags": "t"}), nil},
		"another release":         {infoOf("go1.26.7", plain), []Difference{{"Go", "go1.26.7", "go1.26.8"}}},
		"an experiment": {infoOf("go1.26.8-X:nogreenteagc", set{"GOARCH": "amd64", "GOAMD64": "v1", "GOEXPERIMENT": "nogreenteagc"}), []Difference{
			{"Go", "go1.26.8-X:nogreenteagc", "go1.26.8"}, {"build setting GOEXPERIMENT", "nogreenteagc", ""}}},
		"flags": {infoOf("go1.26.8", set{"GOARCH": "amd64", "GOAMD64": "v3", "-race": "true", "-asan": "true", "-trimpath": "true", "-gcflags": "all=-N"}), []Difference{
			{"build setting GOAMD64", "v3", "v1"}, {"build setting -race", "true", ""}, {"build setting -asan", "true", ""},
			{"build setting -trimpath", "true", ""}, {"build setting -gcflags", "all=-N", ""}}},
		"modules": {infoOf("go1.26.8", plain, replaced, module("a.org/y", "v1.3.0", "h1:y3")), []Difference{
			{"module a.org/x", "../x", "v1.0.0 h1:x"}, {"module a.org/y", "v1.3.0 h1:y3", "v1.2.0 h1:y"}}},
	} {
		if diff := cmp.Diff(c.want, compare(c.theirs, ours)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMismatchSaysHowToFixIt(t *testing.T) {
	err := &Mismatch{Path: "f.so", Differences: []Difference{{"module a.org/y", "v1.3.0", "v1.2.0"}, {"build setting -race", "true", ""}}}
	const want = "f.so does not match this binary:\n" +
		"  module a.org/y: the plugin has v1.3.0, this binary v1.2.0\n" +
		"  build setting -race: the plugin has true, this binary none\n" +
		"build it again with: perigee plugin build DIR"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

func TestPins(t *testing.T) {
	local, moved := module("a.org/local", "v1.0.0", ""), module("a.org/moved", "v1.0.0", "")
	local.Replace = &debug.Module{Path: "../local"}
	moved.Replace = &debug.Module{Path: "b.org/moved", Version: "v2.0.0"}
	ours := []*debug.Module{module("a.org/x", "v1.0.0", ""), module("a.org/unused", "v1.0.0", ""), local, moved}
	got := pins([]string{"a.org/x", "a.org/x", "a.org/local", "a.org/moved", "c.org/own"}, ours)
	want := []string{"-require=a.org/x@v1.0.0", "-dropreplace=a.org/x", "-require=a.org/moved@v1.0.0", "-replace=a.org/moved=b.org/moved@v2.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
