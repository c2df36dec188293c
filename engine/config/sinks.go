package config

import (
	"reflect"
	"slices"
)

// sinksMax is the largest number of sinks of a pipeline.
const sinksMax = 64

// readSinks reads "sink: {KIND: …}" or "sinks: {NAME: {KIND: …, routed: true}, …}".
func (d *document) readSinks(pipeline entry, kinds []string) []Sink {
	several := pipeline.value.get("sinks")
	if several == nil {
		only := d.readKind(pipeline, "sink", kinds)
		return []Sink{{Kind: only.kind, Name: only.kind, settings: only}}
	}
	if pipeline.value.get("sink") != nil {
		d.addFault(several.at, "use one of them", "pipeline %s has both sink and sinks", pipeline.key)
	}
	if several.value.broken {
		return nil
	}
	if several.value.shape == null || several.value.shape == mapping && len(several.value.entries) == 0 {
		d.addFault(several.at, "name each sink: sinks: {table: {KIND: {…}}, …}", "pipeline %s has no sink", pipeline.key)
		return nil
	}
	if !d.hasShape(several.value, mapping, "sinks") {
		return nil
	}
	var all []Sink
	for _, e := range several.value.entries {
		all = append(all, d.readSink(e, kinds))
	}
	d.checkSinks(pipeline, several, all)
	return all
}

// readSink reads one of several sinks.
func (d *document) readSink(e entry, kinds []string) Sink {
	s := Sink{Name: e.key, settings: d.noKind(e)}
	if !pipelineName.MatchString(e.key) {
		d.addFault(e.at, "use up to 64 letters, digits and _ . -", "invalid sink name %s", quoteShort(e.key))
	}
	if e.value.shape == null {
		e.value = &node{shape: mapping, at: e.at}
	}
	if e.value.broken || !d.hasShape(e.value, mapping, "sink "+e.key) {
		return s
	}
	if routed := e.value.get("routed"); routed != nil {
		d.decode(routed.value, reflect.ValueOf(&s.Routed).Elem(), "routed", false)
	}
	var chosen, unknown []entry
	for _, one := range e.value.entries {
		switch {
		case slices.Contains(kinds, one.key):
			chosen = append(chosen, one)
		case one.key != "routed":
			unknown = append(unknown, one)
		}
	}
	for _, one := range unknown {
		d.addFault(one.at, suggestName(one.key, append(slices.Clone(kinds), "routed")), "unknown kind or key %q of sink %s", one.key, e.key)
	}
	switch {
	case len(chosen) == 1:
		s.settings = d.settingsOf(chosen[0])
		s.Kind = s.settings.kind
	case len(chosen) > 1 || len(unknown) == 0:
		d.addFault(e.value.at, suggestName("", kinds), "sink %s must have exactly one kind, not %d", e.key, len(chosen))
	}
	return s
}

// checkSinks checks the sinks of a pipeline together.
func (d *document) checkSinks(pipeline entry, at *entry, all []Sink) {
	if len(all) > sinksMax {
		d.addFault(at.at, "divide the sinks among several pipelines", "pipeline %s has %d sinks; at most %d are allowed", pipeline.key, len(all), sinksMax)
	}
	routed := func(s Sink) bool { return s.Routed }
	first := slices.IndexFunc(all, routed)
	if first < 0 {
		return
	}
	if !slices.ContainsFunc(all, func(s Sink) bool { return !s.Routed }) {
		d.addFault(at.at, "remove routed from one of them; it then gets the rows that the script does not route",
			"every sink of pipeline %s is routed", pipeline.key)
	}
	if s := pipeline.value.get("script"); s == nil || s.value.shape == null && !s.value.broken {
		e := at.value.get(all[first].Name).value.get("routed")
		d.addFault(e.at, "remove routed, or add a script that returns to(\"NAME\", event)", "sink %s is routed, but pipeline %s has no script to route rows to it", all[first].Name, pipeline.key)
	}
}
