package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
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
	generated := func(key string) string {
		return "pipelines:\n  a:\n    source: {generate: {events: 1}}\n    sink: {stdout: {}}\n    " + key + "\n"
	}
	mysql := func(setting string) string {
		if !strings.Contains(setting, "colum") {
			setting += ", columns: [{name: id, type: int64}]"
		}
		return "pipelines:\n  a:\n    source: {generate: {events: 1}}\n    sink: {mysql: {user: u, database: d, table: t, " + setting + "}}\n"
	}
	place := regexp.MustCompile(`error: c\.yaml:\d+:\d+: `)
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
			[]string{`c.yaml:3:31: invalid address "localhost"`, "\n      |                               ^", "hint: use host:port"}},
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

		"a key of a pipeline at the top": {"lanes: 4\n" + generated(""), []string{`c.yaml:1:1: unknown key "lanes" in the configuration`, "hint: lanes is a key of a pipeline: write it below pipelines: NAME:"}},
		"pipeline":                       {"pipeline:\n  a: {}\n", []string{`c.yaml:1:1: unknown key "pipeline" in the configuration`, `did you mean "pipelines"?`}},
		"no pipelines":                   {"data: state\n", []string{`c.yaml:1:1: key "pipelines" is missing`, "hint: add a pipeline:\n  pipelines:"}},
		"pipelines without one":          {"pipelines: {}\n", []string{"c.yaml:1:1: the configuration has no pipeline", "hint: add a pipeline:"}},
		"a key given twice":              {generated("lanes: 1") + "    lanes: 2\n", []string{`c.yaml:6:5: key "lanes" is given twice, first on line 5`, "hint: remove one of them"}},
		"lanes in words":                 {generated("lanes: four"), []string{`c.yaml:5:12: lanes must be a whole number, not "four"`, "hint: for example: lanes: 8"}},
		"lanes as a list":                {generated("lanes: [4]"), []string{"c.yaml:5:12: lanes must be a value, not a list", "hint: write lanes: 4"}},
		"negative lanes":                 {generated("lanes: -1"), []string{"c.yaml:5:12: lanes must not be negative", "hint: remove the key for its default"}},
		"a lease without a unit":         {generated("lease: 30"), []string{`c.yaml:5:12: lease must be a duration such as 100ms, 2s, 5m or 30d, not "30"`, "hint: write lease: 30s"}},
		"a lease in words":               {generated("lease: 30 seconds"), []string{`c.yaml:5:12: lease must be a duration`, "hint: write lease: 30s"}},
		"a short lease":                  {generated("lease: 100ms"), []string{"c.yaml:5:12: lease must be at least 1s", "hint: the default is 10s"}},
		"a size in words":                {generated("max_event: 4 megabytes"), []string{`c.yaml:5:16: max_event must be a size such as 64MiB or 1MB, not "4 megabytes"`, "hint: write max_event: 4MB"}},
		"a size of one letter":           {generated("batch: {bytes: 4M}"), []string{`c.yaml:5:20: bytes must be a size`, "hint: write bytes: 4MiB"}},
		"a number with commas":           {generated(`batch: {events: "10,000"}`), []string{`c.yaml:5:21: events must be a whole number`, "hint: write events: 10000"}},
		"lane":                           {generated("lane: 4"), []string{`c.yaml:5:5: unknown key "lane" in pipeline a`, `did you mean "lanes"?`}},
		"batch_size":                     {generated("batch_size: 10"), []string{`c.yaml:5:5: unknown key "batch_size" in pipeline a`, `hint: did you mean "batch"?`}},
		"yes":                            {pipeline("{file: {path: e, follow: yes}}"), []string{`c.yaml:3:38: follow must be true or false, not "yes"`, "hint: write follow: true"}},
		"reload without a unit":          {"reload: 30\n" + generated(""), []string{`c.yaml:1:9: reload must be a duration of at least 1s, or off, not "30"`, `hint: use a time with its unit, such as 30s or 5m, or "off"`}},
		"a port alone":                   {"http: 4290\n" + generated(""), []string{`c.yaml:1:7: http: invalid address "4290"`, "hint: write host:port, such as 127.0.0.1:4290"}},
		"a mode that does not exist":     {mysql("mode: upsrt"), []string{`mode must be one of insert, upsert, ignore, not "upsrt"`, `hint: did you mean "upsert"?`}},
		"a type of a sink's column":      {mysql("columns: [{name: id, type: int46}]"), []string{`c.yaml:4:79: type must be one of bool, int32,`, `hint: did you mean "int64"?`}},
		"a column in one word":           {mysql("columns: [id]"), []string{`c.yaml:4:62: item 1 of columns must be a mapping, not "id"`, "hint: write {name: id}"}},
		"columns as a mapping":           {mysql("columns: {id: int64}"), []string{`columns must be a list, not a mapping`, "hint: write columns: [{KEY: VALUE}]"}},
		"colums":                         {mysql("colums: [{name: id, type: int64}]"), []string{`unknown key "colums" in mysql`, `did you mean "columns"?`}},
		"a format that does not exist":   {pipeline("{file: {path: e, format: cvs}}"), []string{`c.yaml:3:38: format must be one of json, lines, csv, logfmt, not "cvs"`, `hint: did you mean "csv"?`}},
		"ndjson":                         {pipeline("{file: {path: e, format: ndjson}}"), []string{`format must be one of json, lines, csv, logfmt, not "ndjson"`, `hint: did you mean "json"?`}},
		"no path":                        {pipeline("{file: {follow: true}}"), []string{`c.yaml:3:21: key "path" is missing in file`, "for example: path: events.ndjson"}},
		"no key of Redis":                {pipeline("{redis: {address: \"127.0.0.1:6379\"}}"), []string{"c.yaml:3:14: no key", "hint: set list, lists, stream or streams"}},
		"two keys of Redis":              {pipeline("{redis: {list: a, stream: b}}"), []string{"c.yaml:3:14: list, lists, stream and streams exclude each other", "hint: keep one of them"}},
		"two sources":                    {pipeline("{file: {path: e}, redis: {list: l}}"), []string{"c.yaml:3:14: source must have exactly one kind, not 2", "hint: known: file, generate"}},
		"a source in one word":           {pipeline("redis"), []string{"c.yaml:3:13: source must be a mapping", "hint: write {redis: {}}"}},
		"sink and sinks":                 {generated("sinks: {b: {stdout: {}}}"), []string{"c.yaml:5:5: pipeline a has both sink and sinks", "hint: use one of them"}},
		"a routed sink without a script": {"pipelines:\n  a:\n    source: {generate: {events: 1}}\n    sinks: {b: {stdout: {}, routed: true}, c: {stdout: {}}}\n", []string{"c.yaml:4:29: sink b is routed, but pipeline a has no script", "hint: remove routed, or add a script"}},
		"javascript":                     {generated("script: {javascript: a.js}"), []string{`c.yaml:5:14: unknown key "javascript" in script`, "hint: known: batch_time"}},
		"an empty script":                {generated(`script: ""`), []string{"c.yaml:5:13: the script has no code", "hint: write the code or a path, or remove script"}},
		"limits of a script elsewhere":   {generated("event_time: 1s"), []string{`c.yaml:5:5: unknown key "event_time" in pipeline a`, "hint: event_time is a key of a script: write it below script:"}},
		"isolate: true":                  {generated("script: {lua: a.lua, isolate: true}"), []string{`c.yaml:5:35: isolate must be process, not "true"`, "hint: "}},
		"retention without a time":       {generated("") + "tables: {t: {retention: 30d}}\n", []string{"retention of table t needs a time column", "hint: name the column with the event's time: time: COLUMN"}},
		"a decimal without digits":       {column("decimal"), []string{`type "decimal" of column c: its digits are missing`, "such as decimal(18,2)"}},
		"a token without listen":         {"query: {token: abcdefgh}\n" + generated(""), []string{"c.yaml:1:9: query: token, cert and key need listen", "hint: for example: query: {listen: 127.0.0.1:4292"}},
		"a key of a table in one word":   {generated("") + "tables: {t: {unique: id, columns: [{name: id, type: int64}]}}\n", []string{`unique must be a mapping, not "id"`, "hint: write unique: {key: [id]}"}},
		"a computed column of no type":   {`computed: [{name: a, type: "", func: a.lua}]` + "\n" + generated(""), []string{`c.yaml:1:22: key "type" of item 1 of computed has no value`, "for example: type: string"}},
		"a user without a name":          {mysql(`user: ""`), []string{`key "user" is given twice`, "hint: remove one of them"}},
		"hosts in one word":              {"allow: example.com\n" + generated(""), []string{`c.yaml:1:8: allow must be a list, not "example.com"`, "hint: write allow: [example.com]"}},
		"an alias":                       {pipeline("{redis: {lists: *emails}}"), []string{"c.yaml:3:29: unknown anchor", "quote a text that begins with *"}},
		"a computed column without code": {"computed: [{name: a, type: string}]\n" + generated(""), []string{`key "func" is missing in item 1 of computed`, "for example: func: domain.lua"}},
		"s3 in one word":                 {"s3: minio\n" + generated(""), []string{`c.yaml:1:5: s3 must be a mapping, not "minio"`, "hint: write s3: {endpoint: minio}"}},
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
			if !place.MatchString(rest) || !strings.Contains(rest, "hint: ") {
				t.Errorf("no place or no hint:\n%s", rest)
			}
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
