package config

import (
	"reflect"
	"strconv"
	"strings"
)

// A Shadow is a new version of a pipeline's script that runs beside it, on a sample of the events.
type Shadow struct {
	Text   string  // code, a path or an address
	Sample float64 // share of the events, up to 1; 0 for the default
	origin
}

// DefaultSample is the share of the events that a shadow runs on.
const DefaultSample = 0.1

// shadowKeys are the keys of a shadow.
type shadowKeys struct {
	Script string `yaml:"script,required" example:"next.lua" help:"code, a path or an address of the new version, which runs with the settings of script"`
	Sample string `yaml:"sample" kind:"percentage" default:"10%" example:"100%" help:"share of the events that the new version runs on, such as 2.5%"`
}

// With returns the settings of a script with the code of the shadow, which shares no VMs with it.
func (s *Shadow) With(script *Script) *Script {
	with := *script
	with.Text, with.Pool, with.origin = s.Text, Pool{}, s.origin
	return &with
}

// readShadow reads the shadow of a pipeline whose script has been read.
func (d *document) readShadow(e *entry, p *Pipeline) *Shadow {
	if e.value.shape == scalar {
		d.addFault(e.value.at, "write {script: "+e.value.raw+"}", "shadow must be a mapping, not %s", e.value.describe())
		return nil
	}
	if !d.hasShape(e.value, mapping, "shadow") {
		return nil
	}
	var keys shadowKeys
	faults := len(d.faults)
	d.decodeStruct(e.value, reflect.ValueOf(&keys).Elem(), "shadow")
	s := &Shadow{Text: keys.Script, Sample: DefaultSample, origin: d.originOf(e.value, "script")}
	code := e.value.get("script")
	switch {
	case len(d.faults) > faults:
		return nil
	case strings.TrimSpace(s.Text) == "":
		d.addFault(code.value.at, "write the code or a path", "the shadow has no code")
	case p.Script == nil:
		d.addFault(e.at, "give the pipeline a script, such as: function main(event) return event end", "pipeline %s has a shadow, and no script that it could replace", p.Name)
	case strings.HasSuffix(s.Text, ".so") || strings.HasSuffix(p.Script.Text, ".so"):
		d.addFault(code.value.at, "write the new version in Lua", "a shadow cannot replace or be a Go plugin, which a running program cannot unload")
	}
	if keys.Sample != "" {
		s.Sample = d.readSample(e.value, keys.Sample)
	}
	if len(d.faults) > faults {
		return nil
	}
	return s
}

// readSample returns the share that the key sample of a mapping has; 0 for none.
func (d *document) readSample(n *node, text string) float64 {
	given := n.get("sample")
	if given == nil || text == "" {
		return 0
	}
	share, ok := parseShare(text)
	if !ok {
		d.addFault(given.value.at, "write a positive percentage up to 100%, such as 10%", "invalid sample %s", quoteShort(given.value.raw))
	}
	return share
}

// parseShare returns a percentage, or a fraction, as a share above 0 and up to 1.
func parseShare(text string) (share float64, ok bool) {
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		share /= 100
	}
	return share, err == nil && share > 0 && share <= 1
}

// toNode returns the shadow of a literal as the node of its YAML.
func (s *Shadow) toNode() *node {
	n := &node{shape: mapping}
	n.set("script", scalarNode(s.Text))
	if s.Sample != 0 {
		n.set("sample", scalarNode(strconv.FormatFloat(s.Sample, 'g', -1, 64)))
	}
	return n
}
