package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files again")

type weekday int

func (w *weekday) UnmarshalText(text []byte) error {
	if string(text) != "friday" {
		return fmt.Errorf("unknown day %q", text)
	}
	*w = 5
	return nil
}

type redisSettings struct {
	Address  string        `yaml:"address,required" help:"host and port of the server"`
	List     string        `yaml:"list,required"`
	Password string        `yaml:"password"`
	Batch    int           `yaml:"batch"`
	Wait     time.Duration `yaml:"wait"`
	TLS      *bool         `yaml:"tls"`
	Ratio    float64       `yaml:"ratio"`
	Buffer   int           `yaml:"buffer,size"`
	Tiny     uint8         `yaml:"tiny"`
	Weekday  weekday       `yaml:"weekday"`
}

type columnSettings struct {
	Name string `yaml:"name,required" help:"of the column"`
	Type string `yaml:"type"`
}

type mysqlSettings struct {
	Columns []columnSettings  `yaml:"columns" help:"what the table holds"`
	Options map[string]string `yaml:"options"`
	Time    struct{}          `yaml:"time,moved" help:"declare the table below tables"`
}

var known = Known{
	Sources:   []string{"redis", "file", "generate"},
	Sinks:     []string{"mysql", "stdout"},
	Languages: []string{"lua", "wasm"},
	Types:     []string{"int64", "string"},

	ColumnTypes: []string{"bool", "int64", "decimal", "string", "timestamp", "json"},
}

var environment = map[string]string{"SECRET": "s3cret", "EMPTY": "", "NAME": "queue: {a", "N": "7"}

func lookup(name string) (string, bool) {
	value, ok := environment[name]
	return value, ok
}

// readAll reads a configuration the way the command does: first the file, then
// the settings of every kind in it.
func readAll(text string) (*Config, error) {
	c, err := Parse("perigee.yaml", text, known, lookup)
	errs := []error{err}
	for _, p := range c.Pipelines {
		switch p.Source.Kind {
		case "redis":
			errs = append(errs, p.Source.Decode(&redisSettings{}))
		}
		for _, sink := range p.Sinks {
			switch sink.Kind {
			case "mysql":
				errs = append(errs, sink.Decode(&mysqlSettings{}))
			case "stdout":
				errs = append(errs, sink.Decode(&struct{}{}))
			}
		}
	}
	return c, Join(errs...)
}

func TestFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/faults/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const rule = "----------\n"
	input, want, found := strings.Cut(string(content), rule)
	if !found {
		t.Fatalf("%s has no line %q", file, rule)
	}
	_, fault := readAll(input)
	if fault == nil {
		t.Fatal("the configuration was accepted")
	}
	got := fault.Error() + "\n"
	if strings.Contains(got, "s3cret") {
		t.Errorf("the errors show a secret:\n%s", got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(input+rule+got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestAccepted(t *testing.T) {
	c, err := readAll(`
data: state
http: off
pipelines:
  emails:
    source: &queue
      redis: {address: "${HOST:-localhost}:6379", list: ${NAME}, password: ${SECRET}$$, batch: "${N}",
              wait: 1m30s, tls: false, ratio: 0.5, buffer: 1.5KiB, tiny: 2_5_5, weekday: friday}
    script: {lua: scripts/email.lua, event_time: 50ms, batch_time: 1s, memory: 32MiB, output: 1MB, pool: {core: 2, max: -1, eager: true, idle: 1s, memory: 1GiB}}
    lanes: 2
    max_event: 4MiB
    lease: 4s
    batch: {events: 500, bytes: 64KiB}
    sink: {mysql: {columns: [{name: id, type: int64}], options: {charset: utf8, "on": no}}}
  copy:
    source: *queue
    script: {lua: copy.lua, event_time: 0s, pool: {idle: 0s}}
    sink: {stdout: }
`)
	if err != nil {
		t.Fatal(err)
	}
	emails, second := c.Pipelines[0], c.Pipelines[1]
	var queue redisSettings
	var table mysqlSettings
	if err := Join(emails.Source.Decode(&queue), emails.Sinks[0].Decode(&table)); err != nil {
		t.Fatal(err)
	}
	no := false
	checks := []struct {
		name      string
		got, want any
	}{
		{"http", c.HTTP, HTTPOff},
		{"data", c.Data, filepath.Join(c.Folder, "state")},
		{"source", queue, redisSettings{
			Address: "localhost:6379", List: "queue: {a", Password: "s3cret$", Batch: 7, Wait: 90 * time.Second,
			TLS: &no, Ratio: 0.5, Buffer: 1536, Tiny: 255, Weekday: 5}},
		{"sink", table, mysqlSettings{
			Columns: []columnSettings{{"id", "int64"}}, Options: map[string]string{"charset": "utf8", "on": "no"}}},
		{"limits", emails.Script.Limits, Limits{EventTime: 50 * time.Millisecond, BatchTime: time.Second, Memory: 32 << 20, Output: 1e6}},
		{"pool", emails.Script.Pool, Pool{Core: 2, Max: -1, Eager: true, Idle: time.Second, Memory: 1 << 30}},
		{"the default limits", second.Script.Limits, Limits{}},
		{"the default pool", second.Script.Pool, Pool{}},
		{"script", emails.Script.Text, "scripts/email.lua"},
		{"language", second.Script.Language, "lua"},
		{"batch", emails.Batch, Batch{500, 64 << 10}},
		{"max_event", emails.MaxEvent, 4 << 20},
		{"lanes", []int{emails.Lanes, second.Lanes}, []int{2, 0}},
		{"lease", []time.Duration{emails.Lease, second.Lease}, []time.Duration{4 * time.Second, 0}},
		{"alias", second.Source.Kind, "redis"},
		{"empty settings", second.Sinks[0].Name, "stdout"},
	}
	for _, check := range checks {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", check.name, diff)
		}
	}
}

func TestCodeAndColumns(t *testing.T) {
	c, err := Parse("https://host/p/perigee.yaml", `
allow: [host, 10.0.0.0/8]
s3: {endpoint: "http://minio:9000", secret_key: "${SECRET}"}
reload: off
computed:
  - {name: id, type: string, func: make://identifier}
pipelines:
  a:
    source: {file: {}}
    script: |
      function main(event)
        return event
      end
    computed:
      - {name: total, type: int64, func: total.lua, funcname: sum}
    sink: {stdout: {}}
  b: {source: {file: {}}, sink: {stdout: {}}}
`, known, lookup)
	if err != nil {
		t.Fatal(err)
	}
	columns := func(p Pipeline) (all [][4]string) {
		for _, c := range p.Computed {
			all = append(all, [4]string{c.Name, c.Type, c.Func, c.FuncName})
		}
		return all
	}
	working, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []struct {
		name      string
		got, want any
	}{
		{"allow", c.Allow.Hosts, []string{"host", "10.0.0.0/8"}},
		{"s3", []string{c.S3.Endpoint, c.S3.SecretKey, c.S3.Region}, []string{"http://minio:9000", "s3cret", ""}},
		{"reload", c.Reload, time.Duration(0)},
		{"folder", c.Folder, working},
		{"code", c.Pipelines[0].Script.Text, "function main(event)\n  return event\nend\n"},
		{"columns of a", columns(c.Pipelines[0]), [][4]string{{"id", "string", "make://identifier", ""}, {"total", "int64", "total.lua", "sum"}}},
		{"columns of b", columns(c.Pipelines[1]), [][4]string{{"id", "string", "make://identifier", ""}}},
	} {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", check.name, diff)
		}
	}
}

func TestSeveralSinks(t *testing.T) {
	c, err := readAll(`
pipelines:
  a:
    source: {file: {}}
    script: a.lua
    sinks:
      table: {mysql: {columns: [{name: id}]}}
      audit:
        routed: true
        mysql: {}
      stdout: {stdout: , routed: false}
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range c.Pipelines[0].Sinks {
		got = append(got, fmt.Sprintf("%s: %s %v", s.Name, s.Kind, s.Routed))
	}
	if diff := cmp.Diff([]string{"table: mysql false", "audit: mysql true", "stdout: stdout false"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var table mysqlSettings
	if err := c.Pipelines[0].Sinks[0].Decode(&table); err != nil || len(table.Columns) != 1 {
		t.Errorf("settings are %+v, error %v", table, err)
	}
}

func TestTooManySinks(t *testing.T) {
	text := "pipelines: {a: {source: {file: {}}, sinks: {"
	for i := range sinksMax + 1 {
		text += fmt.Sprintf("s%d: {stdout: {}}, ", i)
	}
	if _, err := readAll(text + "}}}"); err == nil || !strings.Contains(err.Error(), "65 sinks; at most 64") {
		t.Errorf("error is %v", err)
	}
}

func TestDefaults(t *testing.T) {
	c, err := Parse("/etc/perigee/p.yaml", "pipelines: {a: {source: {file: {}}, sink: {stdout: {}}}}", known, lookup)
	if err != nil {
		t.Fatal(err)
	}
	if c.Data != "/etc/perigee/perigee-data" || c.HTTP != "" || c.Pipelines[0].Script != nil || c.Reload != 30*time.Second {
		t.Errorf("defaults are %+v", c)
	}
}

func TestFormerData(t *testing.T) {
	working, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(working)
	former := filepath.Join(working, "perigee-data")
	pipelines := "pipelines: {a: {source: {file: {}}, sink: {stdout: {}}}}\n"
	for _, c := range []struct{ about, file, text, data, former string }{
		{"default of another folder", "/etc/perigee/p.yaml", pipelines, "/etc/perigee/perigee-data", former},
		{"default of the working folder", "p.yaml", pipelines, former, ""},
		{"named", "/etc/perigee/p.yaml", "data: state\n" + pipelines, "/etc/perigee/state", ""},
		{"named as the default is", "/etc/perigee/p.yaml", "data: perigee-data\n" + pipelines, "/etc/perigee/perigee-data", ""},
		{"an address", "https://host/p.yaml", pipelines, former, ""},
	} {
		conf, err := Parse(c.file, c.text, known, lookup)
		if err != nil {
			t.Fatalf("%s: %v", c.about, err)
		}
		if conf.Data != c.data || conf.FormerData() != c.former {
			t.Errorf("%s: got data folder %s, former %q; want %s, former %q", c.about, conf.Data, conf.FormerData(), c.data, c.former)
		}
	}
}

func TestAt(t *testing.T) {
	c, err := Parse("p.yaml", "pipelines:\n  a: {source: {file: {}}, sink: {stdout: {}}}\n", known, lookup)
	if err != nil {
		t.Fatal(err)
	}
	want := "p.yaml:2:34: no such table\n    2 |   a: {source: {file: {}}, sink: {stdout: {}}}\n" +
		"      |" + strings.Repeat(" ", 34) + "^\n      hint: create it"
	placed := c.Pipelines[0].Sinks[0].At(errors.New("no such table"), "create it")
	if diff := cmp.Diff(want, placed.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := c.Pipelines[0].Source.At(placed, ""); again.Error() != placed.Error() {
		t.Errorf("a second place replaced the first: %v", again)
	}
}

func TestFields(t *testing.T) {
	want := []Field{
		{Key: "columns", Kind: "list of mapping", Help: "what the table holds", Since: FirstVersion, Fields: []Field{
			{Key: "name", Kind: "string", Required: true, Help: "of the column", Since: FirstVersion},
			{Key: "type", Kind: "string", Since: FirstVersion},
		}},
		{Key: "options", Kind: "mapping to string", Since: FirstVersion},
	}
	same := cmp.FilterPath(func(p cmp.Path) bool { return slices.Contains([]string{".index", ".size", ".typ"}, p.Last().String()) }, cmp.Ignore())
	if diff := cmp.Diff(want, Fields(&mysqlSettings{}), same, cmp.AllowUnexported(Field{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var others struct {
		Untagged string
		Hidden   string `yaml:"-"`
		private  string `yaml:"private"`
	}
	_ = others.private
	if fields := Fields(&others); len(fields) > 0 {
		t.Errorf("fields that no configuration has: %+v", fields)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/faults/*.txt")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(content))
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := readAll(text)
		faults, ok := err.(Errors)
		if err != nil && !ok {
			t.Fatalf("error without a place: %v", err)
		}
		for _, fault := range faults {
			if fault.Message == "" || fault.Line < 0 || fault.Line > strings.Count(lineBreaks.Replace(text), "\n")+1 {
				t.Errorf("%d:%d %q is not in the file", fault.Line, fault.Column, fault.Message)
			}
		}
	})
}

// TestEmbedded decodes the keys of an embedded struct beside the others.
func TestEmbedded(t *testing.T) {
	type settings struct {
		redisSettings
		Topic string `yaml:"topic,required"`
	}
	fields := Fields(&settings{})
	if first, last := fields[0], fields[len(fields)-1]; first.Key != "address" || last.Key != "topic" {
		t.Errorf("keys from %s to %s", first.Key, last.Key)
	}
	text := "pipelines:\n  p:\n    source: {redis: {address: there, list: l, topic: t}}\n    sink: {stdout: {}}\n"
	c, err := Parse("c.yaml", text, known, lookup)
	if err != nil {
		t.Fatal(err)
	}
	var got settings
	if err := c.Pipelines[0].Source.Decode(&got); err != nil || got.Address != "there" || got.Topic != "t" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAsManySinksAsPossible(t *testing.T) {
	text := "pipelines: {a: {source: {file: {}}, sinks: {"
	for i := range sinksMax {
		text += fmt.Sprintf("s%d: {stdout: {}}, ", i)
	}
	c, err := readAll(text + "}}}")
	if err != nil || len(c.Pipelines[0].Sinks) != sinksMax {
		t.Errorf("%d sinks: %v", sinksMax, err)
	}
}

// TestSharesCode changes one setting after the other that code depends on.
func TestSharesCode(t *testing.T) {
	config := func() *Config {
		return &Config{Folder: "f", Base: "b", Allow: Allow{Hosts: []string{"h"}}, S3: S3{Endpoint: "e", Region: "r", AccessKey: "a", SecretKey: "s"}}
	}
	if !config().SharesCode(config()) {
		t.Error("equal configurations do not share code")
	}
	for name, change := range map[string]func(*Config){
		"folder": func(c *Config) { c.Folder = "x" }, "base": func(c *Config) { c.Base = "x" }, "hosts": func(c *Config) { c.Allow.Hosts = nil },
		"endpoint": func(c *Config) { c.S3.Endpoint = "x" }, "region": func(c *Config) { c.S3.Region = "x" },
		"access key": func(c *Config) { c.S3.AccessKey = "x" }, "secret key": func(c *Config) { c.S3.SecretKey = "x" },
	} {
		other := config()
		if change(other); config().SharesCode(other) || other.SharesCode(config()) {
			t.Errorf("another %s: code is shared", name)
		}
	}
}

// TestSizes reads sizes in every unit: those of two letters are powers of 1000, those of three
// of 1024.
func TestSizes(t *testing.T) {
	const lines = "pipelines: {a: {source: {redis: {address: a, list: b, buffer: %s}}, sink: {stdout: {}}}}"
	for text, want := range map[string]int{
		"0": 0, "17": 17, "17B": 17, "1_000 B": 1000,
		"3kB": 3e3, "3KB": 3e3, "3MB": 3e6, "3GB": 3e9, "3TB": 3e12, "0.5TB": 5e11,
		"3KiB": 3 << 10, "3MiB": 3 << 20, "3GiB": 3 << 30, "3TiB": 3 << 40, "0.5 TiB": 1 << 39,
	} {
		c, err := Parse("perigee.yaml", fmt.Sprintf(lines, text), known, lookup)
		if err != nil {
			t.Fatal(err)
		}
		var settings redisSettings
		if err := c.Pipelines[0].Source.Decode(&settings); err != nil || settings.Buffer != want {
			t.Errorf("%s is %d bytes, want %d: %v", text, settings.Buffer, want, err)
		}
	}
}
