package config

import (
	"encoding/json"
	"fmt"
	"strings"
)

// SchemaID names the JSON Schema of configurations.
const SchemaID = "https://github.com/perigeedb/perigee/configuration.schema.json"

// A rule is a JSON Schema, or a part of one.
type rule = map[string]any

// Schema returns the JSON Schema (draft 2020-12) of configurations, for editors. It accepts
// every configuration that the decoder accepts. It cannot tell whether values fit each other,
// such as the columns that a key names.
func (d *Description) Schema() []byte {
	definitions := rule{}
	for group, kinds := range map[string][]Kind{"source": d.Sources, "sink": d.Sinks} {
		for _, k := range kinds {
			one := d.object(k.Fields)
			one["description"] = k.Doc
			definitions[group+"."+k.Name] = one
		}
	}
	definitions["source"] = d.oneKind("source", d.Sources)
	definitions["sink"] = d.oneKind("sink", d.Sinks)
	definitions["named sink"] = d.namedSink()
	definitions["script"] = d.script()

	root := d.object(d.Keys)
	root["type"] = "object"
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = SchemaID
	root["title"] = "Perigee configuration"
	root["$defs"] = definitions
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("config: the schema is not JSON: %v", err))
	}
	return append(text, '\n')
}

// object returns the rule for a mapping with these keys. An absent value is one without keys.
func (d *Description) object(fields []Field) rule {
	properties := rule{}
	required := []string{}
	for _, f := range fields {
		properties[f.Key] = d.property(f)
		if f.Required {
			required = append(required, f.Key)
		}
	}
	if len(required) > 0 {
		return rule{"type": "object", "properties": properties, "additionalProperties": false, "required": required}
	}
	return rule{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

// property returns the rule for the value of a key, with its help.
func (d *Description) property(f Field) rule {
	r := d.value(f, f.Kind)
	switch {
	case mayBeAbsent(f):
		r = orNull(r)
	case f.Kind == "string":
		r["minLength"] = 1
	}
	r["description"] = strings.TrimSpace(f.Help + describeDefault(f))
	if example := f.ExampleOf(); example != "" && len(f.Fields) == 0 && f.Kind != "bool" {
		r["examples"] = []any{exampleValue(f, example)}
	}
	if f.HasDefault() {
		r["default"] = exampleValue(f, f.Default)
	}
	return r
}

// mayBeAbsent reports whether a key may be there without a value. The rule of a script says so
// itself.
func mayBeAbsent(f Field) bool {
	return !f.Required && f.Kind != "script" && f.Kind != "sink" && f.Kind != mapTo+"sink"
}

func describeDefault(f Field) string {
	switch {
	case f.Env != "":
		return " (default: environment variable " + f.Env + ")"
	case f.Default != "" && !f.HasDefault():
		return " (default: " + strings.Trim(f.Default, "()") + ")"
	}
	return ""
}

// exampleValue returns a value in YAML as JSON has it.
func exampleValue(f Field, text string) any {
	_, root := parse("value", "value: "+text, func(string) (string, bool) { return "", true })
	return jsonOf(root.get("value").value, f.Kind)
}

func jsonOf(n *node, kind string) any {
	switch n.shape {
	case sequence:
		items := []any{}
		for _, item := range n.items {
			items = append(items, jsonOf(item, "string"))
		}
		return items
	case mapping:
		m := map[string]any{}
		for _, e := range n.entries {
			m[e.key] = jsonOf(e.value, "string")
		}
		return m
	}
	if kind == "integer" || kind == "bool" || kind == "number" {
		return json.RawMessage(n.raw)
	}
	return n.raw
}

// Patterns of scalars in text. A variable may be anywhere in a value.
const (
	variablePattern = `\$\{|\$\$`
	integerPattern  = `^[+-]?[0-9][0-9_]*$`
	numberPattern   = `^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`
	durationPattern = `^\+?0$|^[0-9]+d$|^([0-9]+d)?\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	sizePattern     = `^[0-9][0-9_]*(\.[0-9_]*)?\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$`
	// percentagePattern also matches percentages that are too large, which the decoder refuses.
	percentagePattern = `^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*%?$`
	decimalPattern    = `^decimal\([0-9]{1,2}, ?[0-9]{1,2}\)$`
	namePattern       = `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`
	tableName         = `^[A-Za-z_][A-Za-z0-9_]{0,62}$`
)

// value returns the rule for a value that is there.
func (d *Description) value(f Field, kind string) rule {
	switch {
	case kind == "source" || kind == "sink" || kind == "script":
		return rule{"$ref": "#/$defs/" + kind}
	case kind == mapTo+"sink":
		return rule{"type": "object", "propertyNames": rule{"pattern": namePattern}, "minProperties": 1, "maxProperties": sinksMax,
			"additionalProperties": rule{"$ref": "#/$defs/named sink"}}
	case kind == "string or list of string":
		return either(text(), rule{"type": "array", "items": text()})
	case strings.HasPrefix(kind, listOf):
		return rule{"type": "array", "items": d.item(f, strings.TrimPrefix(kind, listOf))}
	case strings.HasPrefix(kind, mapTo):
		return d.named(f, strings.TrimPrefix(kind, mapTo))
	}
	return d.item(f, kind)
}

// named returns the rule for a mapping whose keys are names that the user chooses.
func (d *Description) named(f Field, kind string) rule {
	switch f.Key {
	case "pipelines":
		return rule{"type": "object", "minProperties": 1, "propertyNames": rule{"pattern": namePattern}, "additionalProperties": d.pipeline(f.Fields)}
	case "tables":
		return rule{"type": "object", "propertyNames": rule{"pattern": tableName}, "additionalProperties": orNull(d.item(f, kind))}
	}
	return rule{"type": "object", "additionalProperties": orNull(d.item(f, kind))}
}

// item returns the rule for a scalar or a mapping, of a key or of its list.
func (d *Description) item(f Field, kind string) rule {
	switch kind {
	case "mapping":
		r := d.object(f.Fields)
		r["type"] = "object"
		if f.Key == "lake" { // a bucket needs a catalog
			r["anyOf"] = []rule{
				{"not": rule{"properties": rule{"warehouse": rule{"pattern": "^s3://"}}, "required": []string{"warehouse"}}},
				{"properties": rule{"catalog": rule{"type": "string", "minLength": 1}}, "required": []string{"catalog"}},
			}
		}
		return r
	case "bool":
		return either(rule{"type": "boolean"}, spelled(`^(true|false)$`))
	case "integer":
		return either(rule{"type": "integer"}, spelled(integerPattern))
	case "number":
		return either(rule{"type": "number"}, spelled(numberPattern))
	case "size":
		return either(rule{"type": "integer", "minimum": 0}, spelled(sizePattern))
	case "duration":
		return either(rule{"const": 0}, spelled(durationPattern))
	case "percentage":
		return either(rule{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, spelled(percentagePattern))
	case "duration or off":
		return either(rule{"enum": []string{"off"}}, spelled(durationPattern))
	}
	switch {
	case f.Pattern != "":
		return spelled(f.Pattern)
	case len(f.Choices) == 0:
		return text()
	}
	pattern := variablePattern
	if d.isColumnType(f) {
		pattern += "|" + decimalPattern
	}
	return either(rule{"enum": f.Choices}, rule{"type": "string", "pattern": pattern})
}

// isColumnType reports whether the choices of a key are types of columns of tables, among
// which decimal has digits.
func (d *Description) isColumnType(f Field) bool {
	return f.Key == "type" && len(f.Choices) == len(d.known.ColumnTypes)
}

// text is the rule for any scalar: a number in place of a text is that text.
func text() rule { return rule{"type": []string{"string", "number", "boolean"}} }

// spelled is the rule for a value in a text, or a text with variables.
func spelled(pattern string) rule {
	return rule{"type": "string", "pattern": pattern + "|" + variablePattern}
}

func either(rules ...rule) rule { return rule{"anyOf": rules} }

// orNull adds an absent value to a rule.
func orNull(r rule) rule {
	switch t := r["type"].(type) {
	case string:
		r["type"] = []string{t, "null"}
		return r
	case []string:
		if t[len(t)-1] != "null" {
			r["type"] = append(t, "null")
		}
		return r
	}
	if rules, ok := r["anyOf"].([]rule); ok {
		return either(append(rules, rule{"type": "null"})...)
	}
	return either(r, rule{"type": "null"})
}

// oneKind returns the rule for a mapping from exactly one kind to its settings.
func (d *Description) oneKind(group string, kinds []Kind) rule {
	properties := rule{}
	for _, k := range kinds {
		properties[k.Name] = rule{"$ref": "#/$defs/" + group + "." + k.Name, "description": k.Doc}
	}
	return rule{"type": "object", "properties": properties, "additionalProperties": false, "minProperties": 1, "maxProperties": 1}
}

// namedSink returns the rule for one of several sinks: a kind, beside further keys.
func (d *Description) namedSink() rule {
	r := d.oneKind("sink", d.Sinks)
	properties := r["properties"].(rule)
	var oneOf []rule
	for _, k := range d.Sinks {
		oneOf = append(oneOf, rule{"required": []string{k.Name}})
	}
	for _, f := range SinkKeys() {
		properties[f.Key] = d.property(f)
	}
	delete(r, "minProperties")
	delete(r, "maxProperties")
	r["oneOf"] = oneOf
	return r
}

// script returns the rule for code, or a mapping with the code below its language.
func (d *Description) script() rule {
	code := rule{"type": []string{"string", "number", "boolean"}, "pattern": `\S`}
	settings := d.object(Fields(ScriptSettings{}))
	settings["type"] = "object"
	properties := settings["properties"].(rule)
	var oneOf []rule
	for _, k := range d.Languages {
		properties[k.Name] = rule{"type": code["type"], "pattern": code["pattern"], "description": k.Doc}
		oneOf = append(oneOf, rule{"required": []string{k.Name}})
	}
	settings["oneOf"] = oneOf
	return either(code, settings, rule{"type": "null"})
}

// pipeline returns the rule for a pipeline, which has one of sink and sinks, and a script if it has a
// shadow or a state.
func (d *Description) pipeline(fields []Field) rule {
	r := d.object(fields)
	r["oneOf"] = []rule{{"required": []string{"sink"}}, {"required": []string{"sinks"}}}
	null := rule{"type": "null"}
	r["anyOf"] = []rule{
		{"properties": rule{"shadow": null, "state": null}},
		{"required": []string{"script"}, "properties": rule{"script": rule{"not": null}}},
	}
	return r
}
