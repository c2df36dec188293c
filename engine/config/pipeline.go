package config

import (
	"fmt"
	"github.com/perigeedb/perigee/internal/address"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/nearest"
)

// leastLease is long enough to renew a lease in time on a busy machine.
const leastLease = time.Second

// pipelineName is what a pipeline may be called: it becomes part of keys in databases.
var pipelineName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// config reads the top of the file.
func (d *document) config(root *node, c *Config, known Known) {
	var top struct {
		Data   string   `yaml:"data"`
		HTTP   string   `yaml:"http"`
		Reload string   `yaml:"reload"`
		Allow  []string `yaml:"allow"`
		S3     S3       `yaml:"s3"`
	}
	if root.shape == null {
		d.fault(root.at, `begin with "pipelines:"`, "the configuration is empty")
		return
	}
	if !d.shaped(root, mapping, "the configuration") {
		return
	}
	d.structure(root, reflect.ValueOf(&top).Elem(), "the configuration", "computed", "pipelines")
	c.Allow, c.S3 = Allow{top.Allow, d.origin(root, "allow")}, top.S3
	c.S3.origin = d.origin(root, "s3")
	c.Reload = d.reload(root, orElse(top.Reload, DefaultReload))
	c.Data, c.dataAt = dataFolder(c.Folder, top.Data), d.origin(root, "data")
	c.HTTP = orElse(top.HTTP, DefaultHTTP)
	if c.HTTP == "off" {
		c.HTTP = ""
	} else if err := address.Validate(c.HTTP); err != nil {
		d.fault(root.get("http").value.at, `or "off" to listen nowhere`, "http: %v", err)
	}
	everywhere := d.computed(root, nil, known)
	e := root.get("pipelines")
	switch {
	case e == nil && slices.ContainsFunc(root.entries, func(e entry) bool { return nearest.Name(e.key, []string{"pipelines"}) != "" }):
	case e == nil:
		d.fault(root.at, "", `key "pipelines" is missing in the configuration`)
	case e.value.shape == null || e.value.shape == mapping && len(e.value.entries) == 0:
		d.fault(e.at, "", "there is no pipeline")
	case d.shaped(e.value, mapping, "pipelines"):
		for _, p := range e.value.entries {
			c.Pipelines = append(c.Pipelines, d.pipeline(p, everywhere, known))
		}
	}
}

// origin is that of the value below key, or of the mapping when there is none.
func (d *document) origin(n *node, key string) origin {
	if e := n.get(key); e != nil {
		return origin{d, e.value.at}
	}
	return origin{d, n.at}
}

// reload reads how often to look for new versions of scripts.
func (d *document) reload(root *node, text string) time.Duration {
	if text == "off" {
		return 0
	}
	every, err := time.ParseDuration(text)
	if err != nil || every < time.Second {
		d.fault(root.get("reload").value.at, "", "reload must be a duration of at least 1s, or off, not %s", quote(text))
	}
	return every
}

// computed reads the columns listed in n, which come after those before.
func (d *document) computed(n *node, before []Computed, known Known) []Computed {
	all := slices.Clone(before)
	e := n.get("computed")
	if e == nil || e.value.shape == null || e.value.broken || !d.shaped(e.value, sequence, "computed") {
		return all
	}
	for i, item := range e.value.items {
		if name := fmt.Sprintf("item %d of computed", i+1); d.shaped(item, mapping, name) {
			var one Computed
			d.structure(item, reflect.ValueOf(&one).Elem(), name)
			one.origin = d.origin(item, "func")
			if d.sound(item, one, all, known) {
				all = append(all, one)
			}
		}
	}
	return all
}

// sound tells whether a column can be used, and notes why not.
func (d *document) sound(item *node, c Computed, before []Computed, known Known) bool {
	faults := len(d.faults)
	if c.Name != "" && slices.ContainsFunc(before, func(b Computed) bool { return b.Name == c.Name }) {
		d.fault(item.get("name").value.at, "", "column %s is computed twice", c.Name)
	}
	if c.Type != "" && !slices.Contains(known.Types, c.Type) {
		d.fault(item.get("type").value.at, suggest(c.Type, known.Types), "unknown type %q of column %s", c.Type, c.Name)
	}
	return len(d.faults) == faults && c.Name != "" && c.Type != "" && c.Func != ""
}

func (d *document) pipeline(e entry, everywhere []Computed, known Known) Pipeline {
	p := Pipeline{Name: e.key, read: true}
	if !pipelineName.MatchString(e.key) {
		d.fault(e.at, "letters, digits, _ . - and at most 64 of them", "a pipeline cannot be called %s", quote(e.key))
	}
	var rest struct {
		Lanes int           `yaml:"lanes"`
		Batch Batch         `yaml:"batch"`
		Lease time.Duration `yaml:"lease"`
	}
	if e.value.shape == null {
		e.value = &node{shape: mapping, at: e.at}
	}
	if !d.shaped(e.value, mapping, "pipeline "+e.key) {
		return p
	}
	d.structure(e.value, reflect.ValueOf(&rest).Elem(), "pipeline "+e.key, "source", "script", "computed", "sink", "sinks")
	p.Computed = d.computed(e.value, everywhere, known)
	p.Lanes, p.Batch, p.Lease = rest.Lanes, rest.Batch, rest.Lease
	d.positive(e.value, "lanes", rest.Lanes)
	if lease := e.value.get("lease"); lease != nil && rest.Lease < leastLease {
		d.fault(lease.value.at, "10s is the default; a dead worker's share waits that long", "lease must be at least %v", leastLease)
	}
	p.Source = d.source(e, known.Sources)
	p.Sinks = d.sinks(e, known.Sinks)
	if s := e.value.get("script"); s != nil && s.value.shape != null && !s.value.broken {
		p.Script = d.script(s, known.Languages)
	}
	return p
}

func (d *document) positive(n *node, key string, value int) {
	if value < 0 {
		d.fault(n.get(key).value.at, "", "%s must not be negative", key)
	}
}

// source reads the kind below the key source.
func (d *document) source(pipeline entry, kinds []string) Source {
	chosen := d.oneKind(pipeline, "source", kinds)
	return Source{Kind: chosen.kind, settings: chosen}
}

// oneKind reads the one kind below key. Its kind is empty if there is a fault.
func (d *document) oneKind(pipeline entry, key string, kinds []string) settings {
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
		d.fault(at, suggest("", kinds), "pipeline %s has no %s", pipeline.key, key)
		return none
	}
	if e.value.shape == scalar && slices.Contains(kinds, e.value.text) {
		d.fault(e.value.at, "write {"+e.value.raw+": {}}", "%s must be a mapping", key)
		return none
	}
	if !d.shaped(e.value, mapping, key) {
		return none
	}
	if len(e.value.entries) != 1 {
		d.fault(e.value.at, suggest("", kinds), "%s must have exactly one kind, not %d", key, len(e.value.entries))
		return none
	}
	kind := e.value.entries[0]
	none.at = kind.at
	if !slices.Contains(kinds, kind.key) {
		d.fault(kind.at, suggest(kind.key, kinds), "unknown %s %q", key, kind.key)
		return none
	}
	return d.settingsOf(kind)
}

// noKind stands for a kind that is missing at e.
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

// script reads "script: CODE" or "script: {LANGUAGE: CODE, funcname: NAME, limits…}",
// where CODE may also be a path or an address.
func (d *document) script(e *entry, languages []string) *Script {
	s := &Script{origin: origin{d, e.value.at}}
	if e.value.shape == scalar {
		s.Language, s.Text = orElse(languages...), d.scriptText(e.value)
		return s
	}
	if !d.shaped(e.value, mapping, "script") {
		return s
	}
	var settings ScriptSettings
	d.structure(e.value, reflect.ValueOf(&settings).Elem(), "script", append([]string{"funcname"}, languages...)...)
	s.Limits, s.Pool = settings.Limits, settings.Pool
	if name := e.value.get("funcname"); name != nil && !name.value.broken && d.shaped(name.value, scalar, "funcname") {
		s.Func = name.value.text
	}
	for _, l := range languages {
		given := e.value.get(l)
		switch {
		case given == nil:
		case s.Language != "":
			d.fault(given.at, "", "a script has one language, not both %s and %s", s.Language, l)
		case d.shaped(given.value, scalar, l):
			s.Language, s.Text, s.at = l, d.scriptText(given.value), given.value.at
		}
	}
	if s.Language == "" && !slices.ContainsFunc(languages, func(l string) bool { return e.value.get(l) != nil }) {
		d.fault(e.at, "name the file below its language: "+strings.Join(languages, ", "), "the script has no file")
	}
	return s
}

func (d *document) scriptText(n *node) string {
	if strings.TrimSpace(n.text) == "" {
		d.fault(n.at, "", "the script has no file")
	}
	return n.text
}

// decodeAlone decodes one value and returns only the faults found in it.
func (d *document) decodeAlone(n *node, into any, name string) error {
	alone := document{file: d.file, lines: d.lines, expressions: d.expressions}
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

// dataFolder returns the data folder. One that is named starts in the folder of the
// configuration. The default starts in the working folder, where commands without a
// configuration look for it.
func dataFolder(folder, path string) string {
	switch {
	case path == "":
		folder, path = "", DefaultData
	case filepath.IsAbs(path):
		return path
	}
	absolute, err := filepath.Abs(filepath.Join(folder, path))
	if err != nil { // there is no working folder
		return filepath.Join(folder, path)
	}
	return absolute
}
