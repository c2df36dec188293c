package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// compileSchema compiles what "perigee config schema" prints.
func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var out, errs bytes.Buffer
	if code := perigee([]string{"config", "schema"}, console{out: &out, err: &errs, lookup: os.LookupEnv}); code != 0 {
		t.Fatalf("config schema returned %d: %s", code, &errs)
	}
	document, err := jsonschema.UnmarshalJSON(&out)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(config.SchemaID, document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(config.SchemaID)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate returns the faults that the schema finds in a configuration in YAML.
func validate(schema *jsonschema.Schema, text string) error {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	return schema.Validate(instance)
}

// TestSchemaOfExamples: the schema accepts each example, and each whole configuration in the
// documentation.
func TestSchemaOfExamples(t *testing.T) {
	needsStore(t)
	schema, count := compileSchema(t), 0
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	for _, folder := range []string{"../../examples", "../../docs", "../../README.md"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			text, _ := os.ReadFile(path)
			var all []string
			switch filepath.Ext(path) {
			case ".yaml":
				all = []string{string(text)}
			case ".md":
				for _, m := range block.FindAllStringSubmatch(string(text), -1) {
					all = append(all, m[1])
				}
			}
			for _, one := range all {
				if !strings.HasPrefix(one, "pipelines:") && !strings.Contains(one, "\npipelines:") || !strings.Contains(one, "source:") || strings.Contains(one, "…") {
					continue
				}
				count++
				if err := validate(schema, one); err != nil {
					t.Errorf("%s: %v\n%s", path, err, one)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if count < 12 {
		t.Errorf("only %d configurations", count)
	}
}

// unsayable are faults that no schema finds, because they depend on several values, or on the
// size of a number in a text.
var unsayable = regexp.MustCompile(`declared twice|computed twice|needs a time column|must be at least|must not be negative|` +
	`^[^ ]+ (query|traces): |key names column|names column .*, which is not declared|is routed|reserved|has more digits|must have 1 to|is of type|` +
	`already declared|invalid window|the time column|a number that fits|both sink and sinks|http: invalid|cannot compute its time|` +
	`both declared and computed|set the unit of|key is empty|a size such as|has a state|reads (a|an unknown|the|its own) state|invalid name of a state|needs time: event|needs the field that has the time|the home of its state|both have a state|invalid standby|invalid table name|a duration of at least 1s`)

// TestSchemaAgrees generates configurations, right and wrong ones: schema and decoder agree.
func TestSchemaAgrees(t *testing.T) {
	schema, kinds := compileSchema(t), linked()
	path := filepath.Join(t.TempDir(), "c.yaml")
	right, wrong := 0, 0
	seeds := testsize.Count(500, 1500)
	for seed := range uint64(seeds) {
		g := &configGenerator{Rand: rand.New(rand.NewPCG(seed, 1)), keys: kinds.Describe(), faults: int(seed % 3)}
		text := g.config()
		refused, disagreed := validate(schema, text), decodeWhole(t, kinds, path, text)
		switch {
		case disagreed == nil && refused == nil:
			right++
		case disagreed == nil:
			t.Errorf("seed %d: the schema refuses a configuration that the decoder takes: %v\n%s", seed, refused, text)
		case refused != nil:
			wrong++
		default:
			var faults config.Errors
			if !errors.As(disagreed, &faults) {
				t.Fatal(disagreed)
			}
			for _, fault := range faults {
				if !unsayable.MatchString(fault.Message) && !unsayable.MatchString(fault.Error()) {
					t.Errorf("seed %d: the schema accepts a configuration that the decoder refuses: %v\n%s", seed, fault, text)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d right, %d wrong", right, wrong)
	if right < seeds/8 || wrong < seeds/8 {
		t.Errorf("only %d right and %d wrong configurations", right, wrong)
	}
}

// decodeWhole decodes a configuration and the settings of its kinds.
func decodeWhole(t *testing.T, kinds engine.Kinds, path, text string) error {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	unset := func(string) (string, bool) { return "", false }
	conf, err := engine.Load(context.Background(), path, engine.Options{Kinds: kinds, Lookup: unset})
	if conf == nil {
		return err
	}
	all := []error{err}
	decode := func(name string, settings any, decode func(any) error) {
		if name != "" {
			all = append(all, decode(reflect.New(reflect.TypeOf(settings).Elem()).Interface()))
		}
	}
	for _, p := range conf.Pipelines {
		decode(p.Source.Kind, settingsOf(kinds.Sources, func(k source.Kind) (string, any) { return k.Name, k.Config }, p.Source.Kind), p.Source.Decode)
		for _, s := range p.Sinks {
			decode(s.Kind, settingsOf(kinds.Sinks, func(k sink.Kind) (string, any) { return k.Name, k.Config }, s.Kind), s.Decode)
		}
	}
	return config.Join(all...)
}

func settingsOf[K any](kinds []K, of func(K) (string, any), name string) any {
	for _, k := range kinds {
		if one, settings := of(k); one == name {
			return settings
		}
	}
	return nil
}

// A configGenerator writes configurations in the flow style of YAML, with a number of faults.
// Not every fault makes a configuration wrong.
type configGenerator struct {
	*rand.Rand
	keys   *config.Description
	faults int
}

func (g *configGenerator) config() string {
	return g.mapping(g.keys.Keys)
}

// isFault reports whether to write a fault here.
func (g *configGenerator) isFault() bool {
	if g.faults == 0 || g.IntN(25) > 0 {
		return false
	}
	g.faults--
	return true
}

func (g *configGenerator) pick(all ...string) string { return all[g.IntN(len(all))] }

// mapping writes a mapping with all required keys and some others.
func (g *configGenerator) mapping(fields []config.Field, further ...string) string {
	parts := further
	chosen := ""
	hasEventTime := g.IntN(2) == 0 // of a state
	for _, f := range fields {
		switch {
		case slices.Contains(eventTimeKeys, f.Key) && slices.ContainsFunc(fields, isLateness) && !g.isFault():
			if hasEventTime {
				parts = append(parts, f.Key+": "+map[string]string{"time": "event", "field": "a.b", "unit": "ms", "lateness": "1m", "idle": "30s"}[f.Key])
			}
			continue
		case f.Kind == "sink":
			chosen = g.pick("sink", "sinks")
			if chosen == f.Key || g.isFault() {
				parts = append(parts, f.Key+": "+g.value(f, f.Kind))
			}
			continue
		case f.Kind == "mapping to sink":
			if chosen == f.Key || g.isFault() {
				parts = append(parts, f.Key+": "+g.value(f, f.Kind))
			}
			continue
		case f.Key == "shadow" && !slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, "script: ") }) && !g.isFault():
			continue // the script precedes it
		case f.Key == "state" && !g.canHaveState(parts) && !g.isFault(), f.Key == "home" && !g.isFault(), f.Key == "reads":
			continue
		case f.Required && g.isFault(), !f.Required && g.IntN(3) > 0:
			continue
		}
		key := f.Key
		if g.isFault() {
			key = g.pick(key+"s", key[1:]+"x", strings.ToUpper(key), "further")
		}
		parts = append(parts, key+": "+g.value(f, f.Kind))
	}
	g.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return "{" + strings.Join(parts, ", ") + "}"
}

// eventTimeKeys are keys of a state that need each other.
var eventTimeKeys = []string{"time", "field", "unit", "lateness", "idle"}

func isLateness(f config.Field) bool { return f.Key == "lateness" }

// value writes the value of a key.
func (g *configGenerator) value(f config.Field, kind string) string {
	if g.isFault() {
		return g.pick("", "null", "5", "-3", "1.5", "true", "text", `"12"`, "[]", "[a]", "[null]", "[[a]]", "{}", "{a: b}", "30s", "64MiB", `"1,5"`, "5x", "off", `""`)
	}
	item, isList := strings.CutPrefix(kind, "list of ")
	if isList {
		var items []string
		for range g.IntN(3) {
			items = append(items, g.value(f, item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	if below, isMap := strings.CutPrefix(kind, "mapping to "); isMap {
		var parts []string
		for i := range 1 + g.IntN(2) {
			value := ""
			if below == "sink" {
				value = g.kind(g.keys.Sinks, g.pick("routed: false", "routed: true", ""))
			} else {
				value = g.value(f, below)
			}
			parts = append(parts, fmt.Sprintf("%s%d: %s", g.pick("a", "name_", "_"), i, value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	switch kind {
	case "mapping":
		return g.mapping(f.Fields)
	case "source":
		return g.kind(g.keys.Sources, "")
	case "sink":
		return g.kind(g.keys.Sinks, "")
	case "script":
		if g.IntN(2) == 0 {
			return g.pick("trim.lua", `"function main(e) return e end"`, "null")
		}
		language := g.keys.Languages[g.IntN(len(g.keys.Languages))].Name
		if g.isFault() {
			language = "python"
		}
		return g.mapping(config.Fields(config.ScriptSettings{}), language+": code.lua")
	}
	return g.scalar(f, kind)
}

// canHaveState reports whether a pipeline has a script that can have a state.
func (g *configGenerator) canHaveState(parts []string) bool {
	has := func(start string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, start) })
	}
	return has("script: ") && !has("shadow: ") && !has("script: null") && !strings.Contains(strings.Join(parts, " "), "isolate")
}

// scalar writes a right value.
func (g *configGenerator) scalar(f config.Field, kind string) string {
	valid := map[string][]string{
		"integer": {"0", "7", "1000", "1_000", `"12"`, "${NONE:-5}"}, "size": {"0", "4096", "64MiB", `"1 GB"`, "1.5KiB", "${NONE:-1MiB}"},
		"duration": {"0", "100ms", "2s", "1m30s", "30d", "1d12h", "1.5h", `"5m"`, "${NONE:-5s}"}, "bool": {"true", "false", `"true"`, "${NONE:-false}"},
		"duration or off": {"30s", "off", "5m", "2d"}, "number": {"0", "1.5", `"2"`}, "percentage": {"10%", "100%", "0.5", "1", `"2.5 %"`, "${NONE:-1%}"},
		"string or list of string": {"a", "[a, b]", `"a:*"`, "5"},
	}[kind]
	switch {
	case f.Key == "name" && f.Example == "users":
		valid = []string{fmt.Sprintf("s%d", g.Uint32())}
	case f.Key == "version" || f.Key == "standby":
		valid = []string{"1", "3"}
	case f.Key == "state_memory":
		valid = []string{"16MiB", "1.5GiB", `"1 GB"`}
	case f.Key == "endpoint":
		valid = []string{"http://127.0.0.1:4318", "https://example.com/v1/traces"}
	case f.Key == "data":
		valid = []string{"perigee-data", "state"}
	case f.Key == "http":
		valid = []string{"off", "127.0.0.1:4290"}
	case f.Key == "type" && len(f.Choices) > 8:
		valid = append([]string{"decimal(18,2)", `"decimal(4, 2)"`}, f.Choices[:4]...)
	case f.Key == "warehouse": // a bucket needs a catalog, which the schema cannot know of a variable
		valid = []string{f.Example, "/srv/lake", `"/srv/lake"`, "${NONE:-/srv/lake}"}
	case f.Pattern != "":
		valid = []string{f.Example, `"` + f.Example + `"`, "${NONE:-" + f.Example + "}"}
	case len(f.Choices) > 0:
		valid = append([]string{"${NONE:-" + f.Choices[0] + "}"}, f.Choices...)
	case valid == nil:
		valid = []string{"text", "5", "1.5", "true", `"a b"`, `"${NONE:-x}"`, `"0640"`}
	}
	text := g.pick(valid...)
	if strings.HasPrefix(text, "$") || strings.Contains(text, "(") && text[0] != '"' {
		text = `"` + text + `"`
	}
	return text
}

// kind writes the settings of one kind, beside further keys.
func (g *configGenerator) kind(kinds []config.Kind, further string) string {
	k := kinds[g.IntN(len(kinds))]
	name := k.Name
	if g.isFault() {
		name = g.pick("rediss", "", "input")
	}
	value := g.mapping(k.Fields)
	if g.isFault() {
		value = g.pick("", "null", "text", "[]", "5")
	}
	parts := []string{name + ": " + value}
	if name == "" {
		parts = nil
	}
	if g.isFault() {
		parts = append(parts, "stdout: {}", "generate: {events: 1}")
	}
	if further != "" {
		parts = append(parts, further)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
