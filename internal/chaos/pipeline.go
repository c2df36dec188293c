package chaos

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// A Pipeline is a pipeline of a user's configuration whose source and sinks are moved to
// private servers.
type Pipeline struct {
	Name   string
	Stream bool   // reads streams instead of lists
	Sinks  []Sink // sorted by name
	Field  string // the field with the number of an event

	lease              string
	document, pipeline map[string]any
	expressions        []string // expressions that are not ours to fill in
}

// A Sink is one sink of a pipeline.
type Sink struct {
	Name, Kind string
	Column     string // the column with the number of the event
	settings   map[string]any
	routed     any
}

// The kinds of sink that rounds support.
const (
	MySQL      = "mysql"
	Postgres   = "postgres"
	EventStore = "eventstore"
	Redis      = "redis"
	File       = "file"
)

// sinkKinds are all of them.
var sinkKinds = []string{MySQL, Postgres, EventStore, Redis, File}

// expressionPattern matches ${NAME}, ${NAME:-default} and ${NAME:?message}.
var expressionPattern = regexp.MustCompile(`\$\{[^}]*\}`)

const placeholderFirst = '\uE000'

// ReadPipeline reads a pipeline from the text of a checked configuration. An empty name
// selects the only one. locate resolves a script location relative to the configuration's
// folder. field is the field that gets the number of an event.
func ReadPipeline(text, name, field string, locate func(code string) (string, error)) (*Pipeline, error) {
	p := &Pipeline{Name: name, Field: field, lease: leaseTime}
	masked := expressionPattern.ReplaceAllStringFunc(text, func(found string) string {
		p.expressions = append(p.expressions, found)
		return string(rune(placeholderFirst + len(p.expressions) - 1))
	})
	if err := yaml.Unmarshal([]byte(masked), &p.document); err != nil {
		return nil, err
	}
	if err := p.choosePipeline(); err != nil {
		return nil, err
	}
	if err := p.resolveScriptPaths(locate); err != nil {
		return nil, err
	}
	return p, p.readSinks()
}

// choosePipeline selects the pipeline by its name.
func (p *Pipeline) choosePipeline() error {
	all, _ := p.document["pipelines"].(map[string]any)
	if p.Name == "" && len(all) == 1 {
		for name := range all {
			p.Name = name
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
	if p.Name == "" {
		return fmt.Errorf("the configuration has several pipelines; choose one with --pipeline: %s", names)
	}
	var found bool
	if p.pipeline, found = all[p.Name].(map[string]any); !found {
		return fmt.Errorf("unknown pipeline %q; known: %s", p.Name, names)
	}
	source, _ := p.pipeline["source"].(map[string]any)
	redis, _ := source["redis"].(map[string]any)
	p.Stream = redis["stream"] != nil || redis["streams"] != nil
	return nil
}

// scriptOptions are the keys of a script that hold settings instead of code.
var scriptOptions = []string{"event_time", "batch_time", "wall_time", "memory", "output", "funcname", "pool", "isolate"}

// resolveScriptPaths resolves all script locations of the pipeline.
func (p *Pipeline) resolveScriptPaths(locate func(string) (string, error)) (err error) {
	in := func(owner map[string]any, key string) {
		if code, ok := owner[key].(string); ok && err == nil {
			owner[key], err = locate(p.restoreExpressions(code))
		}
	}
	in(p.pipeline, "script")
	script, _ := p.pipeline["script"].(map[string]any)
	for key := range script {
		if !slices.Contains(scriptOptions, key) {
			in(script, key)
		}
	}
	if shadow, ok := p.pipeline["shadow"].(map[string]any); ok {
		in(shadow, "script")
	}
	for _, owner := range []map[string]any{p.document, p.pipeline} {
		columns, _ := owner["computed"].([]any)
		for _, column := range columns {
			if c, ok := column.(map[string]any); ok {
				in(c, "func")
			}
		}
	}
	return err
}

func (p *Pipeline) readSinks() error {
	if one, ok := p.pipeline["sink"].(map[string]any); ok {
		for kind := range one {
			if err := p.addSink(kind, one); err != nil {
				return err
			}
		}
	}
	several, _ := p.pipeline["sinks"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(several)) {
		one, _ := several[name].(map[string]any)
		if err := p.addSink(name, one); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pipeline) addSink(name string, chosen map[string]any) error {
	for _, kind := range sinkKinds {
		settings, ok := chosen[kind].(map[string]any)
		if !ok {
			continue
		}
		s := Sink{Name: name, Kind: kind, settings: settings, routed: chosen["routed"]}
		if s.Column = p.findNumberColumn(settings); s.Column == "" {
			return fmt.Errorf("sink %s has no column for the field %q that identifies events: "+
				"add one, or name another field with --id", name, p.Field)
		}
		p.Sinks = append(p.Sinks, s)
		return nil
	}
	return fmt.Errorf("verify does not support the kind of sink %s; it supports %s", name, strings.Join(sinkKinds, ", "))
}

// findNumberColumn returns the column that is filled from the number of an event, or "".
func (p *Pipeline) findNumberColumn(settings map[string]any) string {
	columns, _ := settings["columns"].([]any)
	for _, column := range columns {
		c, _ := column.(map[string]any)
		name, _ := c["name"].(string)
		field, _ := c["field"].(string)
		if field == p.Field || field == "" && name == p.Field {
			return name
		}
	}
	if len(columns) == 0 { // documents, or columns that the event store infers
		return p.Field
	}
	return ""
}

// HasLeases reports whether several workers can run the pipeline: one of its sinks holds leases.
func (p *Pipeline) HasLeases() bool {
	return slices.ContainsFunc(p.Sinks, func(s Sink) bool { return s.Kind != EventStore && s.Kind != File })
}

// tableName returns the table of sink i on the private servers. Sinks never share one.
func tableName(i int) string { return fmt.Sprintf("verified_%d", i+1) }

// addresses holds where a worker's data, source and sinks are.
type addresses struct {
	data, source string
	files        string            // the folder of all file sinks
	databases    map[string]string // by kind of sink
}

const (
	databaseName = "verified"
	keyPrefix    = "verified:"
	batchEvents  = 100
	leaseTime    = "2s"
)

// writeConfig writes the configuration file of a worker.
func (p *Pipeline) writeConfig(path string, at addresses) error {
	pipeline := maps.Clone(p.pipeline)
	kind := "lists"
	if p.Stream {
		kind = "streams"
	}
	pipeline["source"] = map[string]any{"redis": map[string]any{"address": at.source, kind: keyPrefix + "*"}}
	pipeline["batch"] = map[string]any{"events": batchEvents}
	if p.HasLeases() {
		pipeline["lease"] = p.lease
	}
	delete(pipeline, "sink")
	delete(pipeline, "sinks")
	var sinks yaml.MapSlice // keeps the order of the outputs, unlike a map
	for i, s := range p.Sinks {
		one := map[string]any{s.Kind: s.settingsOn(at, i)}
		if s.routed != nil {
			one["routed"] = s.routed
		}
		sinks = append(sinks, yaml.MapItem{Key: s.Name, Value: one})
	}
	pipeline["sinks"] = sinks
	root := maps.Clone(p.document)
	root["data"], root["http"] = at.data, "off"
	root["pipelines"] = map[string]any{p.Name: pipeline}
	text, err := yaml.Marshal(root)
	if err != nil {
		return fmt.Errorf("write a worker's configuration: %w", err)
	}
	return os.WriteFile(path, []byte(p.restoreExpressions(string(text))), 0o600)
}

// settingsOn returns the settings of the sink on a private server. A table has no keys, and
// hashes become a list: a key would hide a duplicate.
func (s *Sink) settingsOn(at addresses, i int) map[string]any {
	settings := maps.Clone(s.settings)
	drop := func(keys ...string) {
		for _, key := range keys {
			delete(settings, key)
		}
	}
	switch s.Kind {
	case EventStore:
		settings["table"] = tableName(i)
	case File:
		drop("name")
		settings["folder"] = filesFolder(at.files, i)
	case Redis:
		drop("username", "password", "db", "tls", "ca", "stream", "field", "hash")
		settings["address"], settings["list"] = at.databases[Redis], tableName(i)
	default:
		drop("socket", "password", "params", "schema", "primary_key", "mode", "update", "tls")
		settings["address"], settings["database"], settings["create"] = at.databases[s.Kind], databaseName, true
		settings["user"] = map[string]string{MySQL: "root", Postgres: "postgres"}[s.Kind]
		settings["table"] = tableName(i)
	}
	return settings
}

// filesFolder returns the folder of a file sink. All workers share it.
func filesFolder(files string, i int) string { return filepath.Join(files, tableName(i)) }

func (p *Pipeline) restoreExpressions(text string) string {
	for i, found := range p.expressions {
		text = strings.ReplaceAll(text, string(rune(placeholderFirst+i)), found)
	}
	return text
}

// WithStreams returns the pipeline reading streams instead of lists.
func (p *Pipeline) WithStreams() *Pipeline {
	other := *p
	other.Stream = true
	return &other
}

// WithShadow returns the pipeline, whose script must be a path, with isolated scripts: its own, and the one
// at a path beside it.
func (p *Pipeline) WithShadow(script string) *Pipeline {
	other := *p
	other.pipeline = maps.Clone(p.pipeline)
	other.pipeline["script"] = map[string]any{"lua": p.pipeline["script"], "isolate": "process"}
	other.pipeline["shadow"] = map[string]any{"script": script, "sample": "100%"}
	return &other
}

// StateName is the name of the state of WithState.
const StateName = "verified"

// WithState returns the pipeline with a state, and with a script that increments the node
// ^seen(NUMBER) of its state for each event that does not fail.
func (p *Pipeline) WithState(script string) *Pipeline {
	other := *p.WithScript(script)
	other.pipeline = maps.Clone(other.pipeline)
	other.pipeline["state"] = map[string]any{"name": StateName}
	return &other
}

// HasState reports whether the script has the state of WithState.
func (p *Pipeline) HasState() bool {
	state, _ := p.pipeline["state"].(map[string]any)
	return state["name"] == StateName
}

// IsIsolated reports whether the script runs in processes of its own.
func (p *Pipeline) IsIsolated() bool {
	script, _ := p.pipeline["script"].(map[string]any)
	return script["isolate"] != nil
}

// WithoutSinks returns the pipeline without its sinks.
func (p *Pipeline) WithoutSinks() *Pipeline {
	other := *p
	other.Sinks = nil
	return &other
}

// WithSink returns the pipeline with one more sink, with the default settings of a kind
// that writes documents.
func (p *Pipeline) WithSink(kind string) *Pipeline {
	other := *p
	other.Sinks = append(slices.Clone(p.Sinks), Sink{Name: kind, Kind: kind, Column: p.Field, settings: map[string]any{}})
	return &other
}

// WithSinksOf returns the pipeline with the sinks of another one added to its own.
func (p *Pipeline) WithSinksOf(another *Pipeline) *Pipeline {
	other := *p
	other.Sinks = slices.Concat(p.Sinks, another.Sinks)
	return &other
}
