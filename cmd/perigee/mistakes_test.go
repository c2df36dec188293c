package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMistakes holds what check says about configurations that a newcomer gets wrong: the
// place, and the right lines.
func TestMistakes(t *testing.T) {
	pipeline := func(source string) string {
		return "pipelines:\n  a:\n    source: " + source + "\n    sink: {stdout: {}}\n"
	}
	column := func(typ string) string {
		return pipeline("{generate: {events: 1}}") + "tables:\n  t: {columns: [{name: c, type: " + typ + "}]}\n"
	}
	for name, c := range map[string]struct {
		text  string
		wants []string // in this order
	}{
		"a source that is not indented": {"pipelines:\n  a:\n    source:\n    file: {path: e}\n    sink: {stdout: {}}\n",
			[]string{"c.yaml:3:5: pipeline a has no source", "hint: indent file further than source", "source:\n    file: …"}},
		"a key between two columns": {"pipelines:\n  a:\n    source: {file: {path: e}}\n   sink: {stdout: {}}\n",
			[]string{"c.yaml:4:4", "keys of one mapping begin in the same column", "pipelines:\n    NAME:\n      source:"}},
		"a tab": {"pipelines:\n  a:\n\tsource: {file: {path: e}}\n",
			[]string{"c.yaml:3:1: the line is indented with a tab", "hint: indent with spaces:   source: {file: {path: e}}"}},
		"a list of pipelines": {"pipelines:\n  - name: a\n",
			[]string{"c.yaml:2:3: pipelines must be a mapping, not a list", "each pipeline is below its name:\n  pipelines:\n    NAME:"}},
		"a path without its key": {pipeline(`{file: "ev.ndjson"}`),
			[]string{`c.yaml:3:20: file must be a mapping, not "ev.ndjson"`, "hint: write file: {path: ev.ndjson}"}},
		"a batch of no mapping": {"pipelines:\n  a:\n    batch: 0\n    source: {generate: {events: 1}}\n    sink: {stdout: {}}\n",
			[]string{`c.yaml:3:12: batch must be a mapping, not "0"`, "hint: write batch: {events: …}"}},
		"a variable that is not set": {pipeline(`{file: {path: "${NOT_SET_HERE}"}}`),
			[]string{"c.yaml:3:28: environment variable NOT_SET_HERE is not set", "hint: set it, or write a default: ${NOT_SET_HERE:-default}"}},
		"an address without a port": {pipeline("{redis: {address: localhost, list: l}}"),
			[]string{`c.yaml:3:31: invalid address "localhost"`, "use host:port", "\n      |                               ^"}},
		"a configuration of Redpanda Connect": {"input:\n  stdin: {}\npipeline:\n  processors: []\noutput:\n  stdout: {}\n",
			[]string{"c.yaml:1:1: this looks like a Redpanda Connect configuration", "here a pipeline has a source and a sink:\n  pipelines:"}},
		"pass":       {pipeline("{redis: {pass: x, list: l}}"), []string{`c.yaml:3:22: unknown key "pass" in redis`, `did you mean "password"?`}},
		"host":       {pipeline("{redis: {host: x, list: l}}"), []string{`unknown key "host" in redis`, `did you mean "address"?`}},
		"input":      {"pipelines:\n  a:\n    input: {file: {path: e}}\n    sink: {stdout: {}}\n", []string{`unknown key "input" in pipeline a`, `did you mean "source"?`}},
		"postgresql": {"pipelines:\n  a:\n    source: {generate: {events: 1}}\n    sink: {postgresql: {}}\n", []string{`unknown sink "postgresql"`, `did you mean "postgres"?`}},
		"mariadb":    {"pipelines:\n  a:\n    source: {generate: {events: 1}}\n    sink: {mariadb: {}}\n", []string{`unknown sink "mariadb"`, `did you mean "mysql"?`}},
		"integer":    {column("integer"), []string{`unknown type "integer" of column c`, `did you mean "int64"?`}},
		"text":       {column("text"), []string{`unknown type "text" of column c`, `did you mean "string"?`}},
		"varchar":    {column("varchar"), []string{`unknown type "varchar" of column c`, `did you mean "string"?`}},
		"bigint":     {column("bigint"), []string{`unknown type "bigint" of column c`, `did you mean "int64"?`}},
		"datetime":   {column("datetime"), []string{`unknown type "datetime" of column c`, `did you mean "timestamp"?`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("c.yaml", []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			if code := perigee([]string{"check", "c.yaml"}, console{out: &out, err: &errs, lookup: func(string) (string, bool) { return "", false }}); code != exitFailure {
				t.Errorf("check returned %d, want %d", code, exitFailure)
			}
			rest := errs.String()
			for _, want := range c.wants {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("check says\n%s\nwant %q in it", &errs, want)
				}
				rest = after
			}
			if strings.Count(errs.String(), "perigee: error:") > 2 {
				t.Errorf("check says more than two things:\n%s", &errs)
			}
		})
	}
}

// TestNoSpaceAfterColon: a flow mapping may omit the space after the colon.
func TestNoSpaceAfterColon(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "c.yaml")
	if err := os.WriteFile(filepath.Join(folder, "ev.ndjson"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("http: off\npipelines:\n  a:\n    source: {file: {path:ev.ndjson}}\n    sink: {stdout: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := perigee([]string{"run", path}, console{out: &out, err: &errs, lookup: os.LookupEnv}); code != 0 || !strings.Contains(errs.String(), "rows=1") {
		t.Errorf("run returned %d, want 0 and a row\n%s", code, &errs)
	}
}
