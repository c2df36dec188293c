package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/address"
	"github.com/perigeedb/perigee/internal/nearest"
)

// leaseMin is the minimum lease, which a busy machine can still renew in time.
const leaseMin = time.Second

// pipelineName matches the names of pipelines, which become part of keys in databases.
var pipelineName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// topKeys are the keys of a configuration.
type topKeys struct {
	Data        string                  `yaml:"data" default:"perigee-data" example:"/var/lib/perigee" help:"data folder; a relative path starts in the folder of the configuration"`
	HTTP        string                  `yaml:"http" default:"127.0.0.1:4290" example:"off" help:"address of metrics, readiness and status; off disables it"`
	Reload      string                  `yaml:"reload" kind:"duration or off" default:"30s" example:"5m" help:"interval between checks for new versions of scripts, at least 1s; off disables the checks"`
	Allow       []string                `yaml:"allow" example:"[code.example.com]" help:"hosts that scripts may be loaded from"`
	S3          S3                      `yaml:"s3" help:"service of s3:// addresses, except those of lakes, which take the environment variables"`
	Query       Query                   `yaml:"query,apart" help:"HTTP address for SQL over the event store, and limits of a query"`
	Traces      traceKeys               `yaml:"traces,apart" help:"OpenTelemetry traces of batches, from the read to the acknowledgement"`
	Console     Console                 `yaml:"console,apart" help:"web console on the http address"`
	StateMemory int                     `yaml:"state_memory,size" default:"384MiB" example:"1GiB" help:"memory of all states for changes that are not committed, or wait for the disk; beyond it scripts wait"`
	Tables      map[string]Table        `yaml:"tables,apart" help:"tables of the event store, by name; an undeclared table is created on first use"`
	Functions   []Computed              `yaml:"functions,apart" help:"functions of SQL, with a row as argument"`
	Computed    []Computed              `yaml:"computed,apart" help:"columns whose value a function computes from the row, for every pipeline"`
	Pipelines   map[string]pipelineKeys `yaml:"pipelines,apart,required" help:"pipelines, by name"`
}

// pipelineKeys are the keys of a pipeline.
type pipelineKeys struct {
	Source   struct{}            `yaml:"source,apart,required" kind:"source" example:"{file: {path: events.ndjson}}" help:"kind of the source, with its settings"`
	Script   ScriptSettings      `yaml:"script,apart" kind:"script" example:"trim.lua" help:"code, a path or an address; or a mapping with the code below the name of its language, beside the keys of a script"`
	State    stateKeys           `yaml:"state,apart" help:"nodes that the script remembers, exactly once; see the guide on state"`
	Reads    []string            `yaml:"reads" example:"[users]" help:"names of the states of other pipelines, with scope: pipeline, that the script reads with require \"state\""`
	Shadow   shadowKeys          `yaml:"shadow,apart" help:"a new version of the script that runs beside it on a sample of the events; see perigee shadow"`
	Computed []Computed          `yaml:"computed,apart" help:"columns whose value a function computes from the row, after those of every pipeline"`
	Sink     struct{}            `yaml:"sink,apart" kind:"sink" example:"{stdout: {}}" help:"kind of the only sink, with its settings; required without sinks"`
	Sinks    map[string]sinkKeys `yaml:"sinks,apart" kind:"mapping to sink" help:"several sinks by name, instead of sink: {NAME: {KIND: {…}, routed: true}, …}"`
	pipelineNumbers
}

// pipelineNumbers are the keys of a pipeline that are numbers.
type pipelineNumbers struct {
	Lanes    int           `yaml:"lanes" default:"4" unit:"batches" example:"8" help:"number of batches of a partition in flight at the same time"`
	Batch    Batch         `yaml:"batch" help:"limits of a batch, which sinks commit in one transaction"`
	MaxEvent int           `yaml:"max_event,size" default:"1MiB" example:"4MiB" help:"maximum size of an event; a larger one becomes a dead letter of stage parse"`
	Lease    time.Duration `yaml:"lease" default:"10s" example:"30s" help:"time after which other workers take over the partitions of a silent worker, at least 1s"`
}

// sinkKeys are the keys of one of several sinks beside its kind.
type sinkKeys struct {
	Routed bool `yaml:"routed" example:"true" help:"the sink gets only rows that the script routes to it: return to(\"NAME\", event)"`
}

// readConfig reads the top level of the file.
func (d *document) readConfig(root *node, c *Config, known Known) {
	var top topKeys
	if root.shape == null {
		d.addFault(root.at, `begin with "pipelines:"`, "the configuration is empty")
		return
	}
	if !d.hasShape(root, mapping, "the configuration") {
		return
	}
	if root.get("pipelines") == nil && (root.get("input") != nil || root.get("output") != nil) {
		d.addFault(root.at, "here a pipeline has a source and a sink:\n"+pipelineExample, "this looks like a Redpanda Connect configuration")
		return
	}
	d.decodeStruct(root, reflect.ValueOf(&top).Elem(), "the configuration")
	c.Allow, c.S3 = Allow{top.Allow, d.originOf(root, "allow")}, top.S3
	c.S3.origin = d.originOf(root, "s3")
	c.Reload = d.readReload(root, top.Reload)
	c.Data, c.dataAt, c.dataNamed = dataFolder(c.Folder, top.Data), d.originOf(root, "data"), top.Data != ""
	d.readQuery(root, c)
	d.readTraces(root, c)
	d.readConsole(root, c)
	c.StateMemory = top.StateMemory
	if err := c.validateStateMemory(); err != nil {
		d.addFault(root.get("state_memory").value.at, "for example: state_memory: 256MiB", "%v", err)
	}
	c.HTTP = top.HTTP
	if err := validateHTTP(c.HTTP); err != nil {
		d.addFault(root.get("http").value.at, `write host:port, such as 127.0.0.1:4290, or "off" to disable the listener`, "http: %v", err)
	}
	c.Tables = d.readTables(root, known)
	c.Functions = d.readComputed(root, "functions", nil, known)
	everywhere := d.readComputed(root, "computed", nil, known)
	e := root.get("pipelines")
	switch {
	case e == nil && slices.ContainsFunc(root.entries, func(e entry) bool { return nearest.Name(e.key, []string{"pipelines"}) != "" }):
	case e == nil:
		d.addFault(root.at, "add a pipeline:\n"+pipelineExample, `key "pipelines" is missing in the configuration`)
	case e.value.shape == null || e.value.shape == mapping && len(e.value.entries) == 0:
		d.addFault(e.at, "add a pipeline:\n"+pipelineExample, "the configuration has no pipeline")
	case e.value.shape != mapping && !e.value.broken:
		d.addFault(e.value.at, "each pipeline is below its name:\n"+pipelineExample, "pipelines must be a mapping, not %s", e.value.describe())
	case d.hasShape(e.value, mapping, "pipelines"):
		for _, p := range e.value.entries {
			c.Pipelines = append(c.Pipelines, d.readPipeline(p, everywhere, known))
		}
		d.checkStateNames(c.Pipelines)
		for _, fault := range checkReads(c.Pipelines) {
			d.addFault(fault.pipeline.readsAt.at, fault.hint, "%s", fault.message)
		}
	}
}

// pipelineExample is a minimal configuration, for hints.
const pipelineExample = "pipelines:\n  NAME:\n    source: {file: {path: events.ndjson}}\n    sink: {stdout: {}}"

func validateHTTP(text string) error {
	if text == "" || text == HTTPOff {
		return nil
	}
	return address.Validate(text)
}

// originOf returns the origin of the value below key, or of n if the key is missing.
func (d *document) originOf(n *node, key string) origin {
	if e := n.get(key); e != nil {
		return origin{d, e.value.at}
	}
	return origin{d, n.at}
}

// readReload reads the interval between checks for new versions of scripts.
func (d *document) readReload(root *node, text string) time.Duration {
	if e := root.get("reload"); e == nil || e.value.shape == null || e.value.broken {
		text = DefaultReload
	}
	if text == "off" {
		return 0
	}
	every, err := parseDuration(text)
	if err != nil || every < time.Second {
		value := root.get("reload").value
		d.addFault(value.at, `use a time with its unit, such as 30s or 5m, or "off"`, "reload must be a duration of at least 1s, or off, not %s", quoteShort(value.raw))
	}
	return every
}

// readComputed appends the columns, or functions, listed below key to those before.
func (d *document) readComputed(n *node, key string, before []Computed, known Known) []Computed {
	all := slices.Clone(before)
	what := map[string]string{"computed": "column", "functions": "function"}[key]
	e := n.get(key)
	if e == nil || e.value.shape == null || e.value.broken || !d.hasShape(e.value, sequence, key) {
		return all
	}
	for i, item := range e.value.items {
		if name := fmt.Sprintf("item %d of %s", i+1, key); d.hasShape(item, mapping, name) {
			var one Computed
			d.decodeStruct(item, reflect.ValueOf(&one).Elem(), name)
			one.origin = d.originOf(item, "func")
			if d.checkComputed(item, what, one, all, known) {
				all = append(all, one)
			}
		}
	}
	return all
}

// checkComputed reports whether a column is valid, and adds a fault otherwise.
func (d *document) checkComputed(item *node, what string, c Computed, before []Computed, known Known) bool {
	faults := len(d.faults)
	if c.Name != "" && slices.ContainsFunc(before, func(b Computed) bool { return b.Name == c.Name }) {
		d.addFault(item.get("name").value.at, "rename or remove one of them", "%s %s is computed twice", what, c.Name)
	}
	if c.Type != "" && !slices.Contains(known.Types, c.Type) {
		d.addFault(item.get("type").value.at, suggestName(c.Type, known.Types), "unknown type %q of %s %s", c.Type, what, c.Name)
	}
	return len(d.faults) == faults && c.Name != "" && c.Type != "" && c.Func != ""
}

func (d *document) readPipeline(e entry, everywhere []Computed, known Known) Pipeline {
	p := Pipeline{Name: e.key, read: true}
	if !pipelineName.MatchString(e.key) {
		d.addFault(e.at, "use up to 64 letters, digits and _ . -", "invalid pipeline name %s", quoteShort(e.key))
	}
	var rest pipelineKeys
	if e.value.shape == null {
		e.value = &node{shape: mapping, at: e.at}
	}
	if !d.hasShape(e.value, mapping, "pipeline "+e.key) {
		return p
	}
	d.decodeStruct(e.value, reflect.ValueOf(&rest).Elem(), "pipeline "+e.key)
	p.Computed = d.readComputed(e.value, "computed", everywhere, known)
	p.Lanes, p.Batch, p.MaxEvent, p.Lease = rest.Lanes, rest.Batch, rest.MaxEvent, rest.Lease
	d.checkNotNegative(e.value, "lanes", rest.Lanes)
	d.checkNotNegative(e.value, "max_event", rest.MaxEvent)
	if lease := e.value.get("lease"); lease != nil && rest.Lease < leaseMin {
		d.addFault(lease.value.at, "the default is 10s; after this time others take over from a dead worker", "lease must be at least %v", leaseMin)
	}
	p.Source = d.readSource(e, known.Sources)
	p.Sinks = d.readSinks(e, known.Sinks)
	if s := e.value.get("script"); s != nil && s.value.shape != null && !s.value.broken {
		p.Script = d.readScript(s, known.Languages)
	}
	if s := e.value.get("shadow"); s != nil && s.value.shape != null && !s.value.broken {
		p.Shadow = d.readShadow(s, &p)
	}
	if s := e.value.get("state"); s != nil && s.value.shape != null && !s.value.broken {
		p.State = d.readState(s, &p)
	}
	if r := e.value.get("reads"); r != nil && r.value.shape != null && !r.value.broken {
		p.Reads, p.readsAt = rest.Reads, origin{d, r.value.at}
		d.checkReadingScript(r, &p)
	}
	return p
}

func (d *document) checkNotNegative(n *node, key string, value int) {
	if value < 0 {
		d.addFault(n.get(key).value.at, "remove the key for its default", "%s must not be negative", key)
	}
}

// readSource reads the kind below the key source.
func (d *document) readSource(pipeline entry, kinds []string) Source {
	chosen := d.readKind(pipeline, "source", kinds)
	return Source{Kind: chosen.kind, settings: chosen}
}

// readKind reads the one kind below key. Its kind is empty if there is a fault.
func (d *document) readKind(pipeline entry, key string, kinds []string) settings {
	none := d.noKind(pipeline)
	e := pipeline.value.get(key)
	if e != nil && e.value.broken {
		return none
	}
	if e == nil || e.value.shape == null {
		at := pipeline.at
		if e != nil {
			at = e.at
		}
		hint := suggestName("", kinds)
		if i := slices.IndexFunc(pipeline.value.entries, func(e entry) bool { return slices.Contains(kinds, e.key) }); e != nil && i >= 0 {
			kind := pipeline.value.entries[i].key
			hint = fmt.Sprintf("indent %s further than %s:\n%s:\n  %s: …", kind, key, key, kind)
		}
		d.addFault(at, hint, "pipeline %s has no %s", pipeline.key, key)
		return none
	}
	if e.value.shape == scalar && slices.Contains(kinds, e.value.text) {
		d.addFault(e.value.at, "write {"+e.value.raw+": {}}", "%s must be a mapping", key)
		return none
	}
	if !d.hasShape(e.value, mapping, key) {
		return none
	}
	if len(e.value.entries) != 1 {
		d.addFault(e.value.at, suggestName("", kinds), "%s must have exactly one kind, not %d", key, len(e.value.entries))
		return none
	}
	kind := e.value.entries[0]
	none.at = kind.at
	if !slices.Contains(kinds, kind.key) {
		d.addFault(kind.at, suggestName(kind.key, kinds), "unknown %s %q", key, kind.key)
		return none
	}
	return d.settingsOf(kind)
}

// noKind returns the settings for a kind that is missing at e.
func (d *document) noKind(e entry) settings {
	return settings{node: &node{}, origin: origin{d, e.at}}
}

// settingsOf returns the settings of the kind in e.
func (d *document) settingsOf(e entry) settings {
	s := settings{kind: e.key, node: e.value, origin: origin{d, e.at}}
	if s.node.shape == null {
		s.node = &node{shape: mapping, at: e.at}
	}
	return s
}

// readScript reads "script: CODE" or "script: {LANGUAGE: CODE, funcname: NAME, limits…}",
// where CODE may also be a path or an address.
func (d *document) readScript(e *entry, languages []string) *Script {
	s := &Script{origin: origin{d, e.value.at}}
	if e.value.shape == scalar {
		s.Language, s.Text = orElse(languages...), d.readScriptText(e.value)
		return s
	}
	if !d.hasShape(e.value, mapping, "script") {
		return s
	}
	var settings ScriptSettings
	d.decodeStruct(e.value, reflect.ValueOf(&settings).Elem(), "script", languages...)
	s.Func, s.Limits, s.Pool, s.Isolate = settings.FuncName, settings.Limits, settings.Pool, settings.Isolate
	for _, l := range languages {
		given := e.value.get(l)
		switch {
		case given == nil:
		case s.Language != "":
			d.addFault(given.at, "remove one of them", "a script has one language: both %s and %s are given", s.Language, l)
		case d.hasShape(given.value, scalar, l):
			s.Language, s.Text, s.at = l, d.readScriptText(given.value), given.value.at
		}
	}
	if s.Language == "" && !slices.ContainsFunc(languages, func(l string) bool { return e.value.get(l) != nil }) {
		d.addFault(e.at, "write the code, or a path, below its language: "+strings.Join(languages, ", "), "the script has no code")
	}
	return s
}

func (d *document) readScriptText(n *node) string {
	if strings.TrimSpace(n.text) == "" {
		d.addFault(n.at, "write the code or a path, or remove script: events then pass unchanged", "the script has no code")
	}
	return n.text
}

// decodeOnly decodes one value and returns its faults.
func (d *document) decodeOnly(n *node, into any, name string) error {
	alone := d.withoutFaults()
	v := reflect.ValueOf(into).Elem()
	alone.decode(n, v, name, false)
	return alone.faults.sorted()
}

// orElse returns the first text that is not empty.
func orElse(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// UseData replaces the data folder that the configuration names.
func (c *Config) UseData(folder string) { c.Data, c.dataNamed, c.dataGiven = folder, true, true }

// FormerData returns the default folder of earlier versions, in the working folder. It
// returns "" if that is the data folder, or if the configuration names one.
func (c *Config) FormerData() string {
	former := dataFolder("", DefaultData)
	if c.dataNamed || c.Data == former {
		return ""
	}
	return former
}

// dataFolder returns the absolute path of the data folder. A relative path starts in the
// folder of the configuration.
func dataFolder(folder, path string) string {
	path = orElse(path, DefaultData)
	if filepath.IsAbs(path) {
		return path
	}
	absolute, err := filepath.Abs(filepath.Join(folder, path))
	if err != nil { // the working folder is unknown
		return filepath.Join(folder, path)
	}
	return absolute
}
