package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/internal/durable"
)

// literalName is the name of the file in errors of a literal.
const literalName = "configuration"

// Resolve checks a configuration and fills in its defaults. It returns a copy in which the
// settings of every pipeline can be decoded, and all faults, including those that Load
// found, as Errors. It checks pipelines of a literal like those of a file.
func (c *Config) Resolve(known Known) (*Config, error) {
	resolved := *c
	if c.File == "" {
		folder, err := filepath.Abs(c.Folder)
		if err != nil {
			return nil, fmt.Errorf("find the folder of the configuration: %w", err)
		}
		resolved.Folder = folder
		resolved.Data, resolved.dataNamed = dataFolder(folder, c.Data), c.Data != ""
	}
	resolved.Base = cmp.Or(c.Base, resolved.Folder)
	faults := slices.Clone(c.faults)
	if err := durable.CheckDir(resolved.Data); err != nil {
		faults = append(faults, c.dataAt.At(err, "set data to a folder that can be created").(Errors)...)
	} else if unsafe, ok := errors.AsType[*datafolder.FolderError](datafolder.Check(resolved.Data)); ok {
		faults = append(faults, c.dataAt.At(unsafe, unsafe.Hint).(Errors)...)
	}
	if err := validateHTTP(c.HTTP); c.File == "" && err != nil {
		faults = append(faults, &Error{File: literalName, Message: "HTTP: " + err.Error()})
	}
	if err := c.Query.validate(); err != nil && c.File == "" {
		faults = append(faults, &Error{File: literalName, Message: "Query: " + err.Error()})
	}
	if err := c.Traces.validate(); err != nil && c.File == "" {
		faults = append(faults, &Error{File: literalName, Message: "Traces: " + err.Error()})
	}
	if err := c.validateStateMemory(); err != nil && c.File == "" {
		faults = append(faults, &Error{File: literalName, Message: err.Error()})
	}
	if c.Reload != 0 && c.Reload < time.Second {
		faults = append(faults, &Error{File: literalName, Message: "Reload must be at least 1s, or 0"})
	}
	if c.File == "" && len(c.Tables) > 0 {
		d, tables := &document{file: literalName}, &node{shape: mapping}
		for _, t := range c.Tables {
			tables.set(t.Name, t.toNode())
		}
		root := &node{shape: mapping}
		root.set("tables", tables)
		resolved.Tables = d.readTables(root, known)
		faults = append(faults, d.faults...)
	}
	if c.File == "" && len(c.Functions) > 0 {
		d, root := &document{file: literalName}, &node{shape: mapping}
		root.set("functions", nodeOf(reflect.ValueOf(c.Functions), false))
		resolved.Functions = d.readComputed(root, "functions", nil, known)
		faults = append(faults, d.faults...)
	}
	resolved.Pipelines = nil
	names := map[string]bool{}
	for _, p := range c.Pipelines {
		if names[p.Name] {
			faults = append(faults, &Error{File: literalName, Message: fmt.Sprintf("two pipelines have the name %q", p.Name)})
		}
		names[p.Name] = true
		if !p.read {
			d := &document{file: "pipeline " + p.Name}
			seen := map[string]bool{}
			for _, s := range p.Sinks {
				name := cmp.Or(s.Name, s.Kind)
				if seen[name] {
					d.addFault(place{}, "", "two sinks have the name %q", name)
				}
				seen[name] = true
			}
			p = d.readPipeline(entry{key: p.Name, value: p.toNode(known)}, nil, known)
			faults = append(faults, d.faults...)
		}
		resolved.Pipelines = append(resolved.Pipelines, p)
	}
	names = map[string]bool{}
	for _, p := range resolved.Pipelines {
		if p.State != nil && names[p.State.Name] && !p.read {
			faults = append(faults, &Error{File: literalName, Message: fmt.Sprintf("two pipelines have a state %q", p.State.Name)})
		}
		if p.State != nil {
			names[p.State.Name] = true
		}
	}
	for _, fault := range checkReads(resolved.Pipelines) {
		if c.File == "" {
			faults = append(faults, &Error{File: "pipeline " + fault.pipeline.Name, Message: fault.message, Hint: fault.hint})
		}
	}
	if len(c.Pipelines) == 0 && len(faults) == 0 {
		faults = append(faults, &Error{File: cmp.Or(c.File, literalName), Message: "the configuration has no pipeline"})
	}
	return &resolved, faults.sorted()
}

// toNode returns a pipeline of a literal as the node of its YAML.
func (p *Pipeline) toNode(known Known) *node {
	n := &node{shape: mapping}
	if p.Source.Kind != "" {
		n.set("source", kindNode(p.Source.Kind, p.Source.Settings))
	}
	if p.Script != nil {
		s := nodeOf(reflect.ValueOf(ScriptSettings{p.Script.Func, p.Script.Limits, p.Script.Pool, p.Script.Isolate}), false)
		s.set(cmp.Or(p.Script.Language, orElse(known.Languages...)), &node{shape: scalar, raw: p.Script.Text, text: p.Script.Text})
		n.set("script", s)
	}
	if p.State != nil {
		n.set("state", p.State.toNode())
	}
	if len(p.Reads) > 0 {
		n.set("reads", nodeOf(reflect.ValueOf(p.Reads), false))
	}
	if p.Shadow != nil {
		n.set("shadow", p.Shadow.toNode())
	}
	if len(p.Computed) > 0 {
		n.set("computed", nodeOf(reflect.ValueOf(p.Computed), false))
	}
	if len(p.Sinks) == 1 && (p.Sinks[0].Name == "" || p.Sinks[0].Name == p.Sinks[0].Kind) && !p.Sinks[0].Routed {
		n.set("sink", kindNode(p.Sinks[0].Kind, p.Sinks[0].Settings))
	} else {
		sinks := &node{shape: mapping}
		for _, s := range p.Sinks {
			one := kindNode(s.Kind, s.Settings)
			if s.Routed {
				one.set("routed", &node{shape: scalar, raw: "true", text: "true"})
			}
			sinks.set(cmp.Or(s.Name, s.Kind), one)
		}
		n.set("sinks", sinks)
	}
	rest := nodeOf(reflect.ValueOf(pipelineNumbers{p.Lanes, p.Batch, p.MaxEvent, p.Lease}), false)
	n.entries = append(n.entries, rest.entries...)
	return n
}

func kindNode(kind string, settings any) *node {
	n := &node{shape: mapping}
	value := &node{shape: mapping}
	if settings != nil {
		value = nodeOf(reflect.ValueOf(settings), false)
	}
	n.set(kind, value)
	return n
}

// set adds an entry.
func (n *node) set(key string, value *node) {
	n.entries = append(n.entries, entry{key: key, value: value})
}

// nodeOf returns a Go value as the node of its YAML, without zero fields of structs.
func nodeOf(v reflect.Value, size bool) *node {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return &node{}
		}
		v = v.Elem()
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return scalarNode(string(text))
		}
	}
	switch {
	case v.Type() == duration:
		return scalarNode(v.Interface().(time.Duration).String())
	case v.Kind() == reflect.Struct:
		n := &node{shape: mapping}
		for _, f := range fieldsOf(v.Type()) {
			if value := v.FieldByIndex(f.index); !value.IsZero() {
				n.set(f.Key, nodeOf(value, f.size))
			}
		}
		return n
	case v.Kind() == reflect.Map:
		n := &node{shape: mapping}
		keys := slices.SortedFunc(maps.Keys(mapOf(v)), strings.Compare)
		for _, key := range keys {
			n.set(key, nodeOf(mapOf(v)[key], false))
		}
		return n
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
		n := &node{shape: sequence}
		for i := range v.Len() {
			n.items = append(n.items, nodeOf(v.Index(i), false))
		}
		return n
	case v.CanFloat():
		return scalarNode(strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits()))
	}
	return scalarNode(fmt.Sprint(v.Interface()))
}

func mapOf(v reflect.Value) map[string]reflect.Value {
	m := map[string]reflect.Value{}
	for _, key := range v.MapKeys() {
		m[fmt.Sprint(key.Interface())] = v.MapIndex(key)
	}
	return m
}

func scalarNode(text string) *node { return &node{shape: scalar, raw: text, text: text} }

// SharesCode reports whether locations of code mean the same in two resolved configurations:
// paths start at the same place, and the same hosts are allowed.
func (c *Config) SharesCode(other *Config) bool {
	return c.Folder == other.Folder && c.Base == other.Base && slices.Equal(c.Allow.Hosts, other.Allow.Hosts) &&
		c.S3.Endpoint == other.S3.Endpoint && c.S3.Region == other.S3.Region &&
		c.S3.AccessKey == other.S3.AccessKey && c.S3.SecretKey == other.S3.SecretKey
}

// Equal reports whether two pipelines of resolved configurations have the same settings.
// Order matters; places in the file and spelling do not.
func (p *Pipeline) Equal(other *Pipeline) bool { return p.canonical() == other.canonical() }

func (p *Pipeline) canonical() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %d %v %d %v\n", p.Name, p.Lanes, p.Batch, p.MaxEvent, p.Lease)
	fmt.Fprintf(&b, "source %q ", p.Source.Kind)
	p.Source.node.write(&b)
	if s := p.Script; s != nil {
		fmt.Fprintf(&b, "script %q %q %q %v %v %q\n", s.Language, s.Text, s.Func, s.Limits, s.Pool, s.Isolate)
	}
	if s := p.State; s != nil {
		fmt.Fprintf(&b, "state %q %d %q %q %q %v %d %v\n", s.Name, s.Version, s.Scope, s.Home, s.Archive.To, s.Archive.Keep, s.Standby, s.IsRead)
		fmt.Fprintf(&b, "time %q %q %q %v %v\n", s.Time, s.Field, s.Unit, s.Lateness, s.Idle)
	}
	fmt.Fprintf(&b, "reads %q\n", p.Reads)
	if s := p.Shadow; s != nil {
		fmt.Fprintf(&b, "shadow %q %v\n", s.Text, s.Sample)
	}
	for _, c := range p.Computed {
		fmt.Fprintf(&b, "computed %q %q %q %q\n", c.Name, c.Type, c.Func, c.FuncName)
	}
	for _, s := range p.Sinks {
		fmt.Fprintf(&b, "sink %q %q %v ", s.Name, s.Kind, s.Routed)
		s.node.write(&b)
	}
	return b.String()
}

// write writes the node without places.
func (n *node) write(b *strings.Builder) {
	switch n.shape {
	case scalar:
		fmt.Fprintf(b, "%q ", n.text)
	case sequence:
		b.WriteString("[")
		for _, item := range n.items {
			item.write(b)
		}
		b.WriteString("]")
	case mapping:
		b.WriteString("{")
		for _, e := range n.entries {
			fmt.Fprintf(b, "%q:", e.key)
			e.value.write(b)
		}
		b.WriteString("}")
	}
	b.WriteString("\n")
}
