package config

import (
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// pipelineName is what a pipeline may be called: it becomes part of keys in databases.
var pipelineName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// config reads the top of the file.
func (d *document) config(root *node, c *Config, known Known) {
	var top struct {
		Data string `yaml:"data"`
		HTTP string `yaml:"http"`
	}
	if root.shape == null {
		d.fault(root.at, `begin with "pipelines:"`, "the configuration is empty")
		return
	}
	if !d.shaped(root, mapping, "the configuration") {
		return
	}
	d.structure(root, reflect.ValueOf(&top).Elem(), "the configuration", "pipelines")
	c.Data = absolute(c.Folder, orElse(top.Data, DefaultData))
	c.HTTP = orElse(top.HTTP, DefaultHTTP)
	if c.HTTP == "off" {
		c.HTTP = ""
	}
	e := root.get("pipelines")
	switch {
	case e == nil && slices.ContainsFunc(root.entries, func(e entry) bool { return nearest(e.key, []string{"pipelines"}) != "" }):
	case e == nil:
		d.fault(root.at, "", `key "pipelines" is missing in the configuration`)
	case e.value.shape == null || e.value.shape == mapping && len(e.value.entries) == 0:
		d.fault(e.at, "", "there is no pipeline")
	case d.shaped(e.value, mapping, "pipelines"):
		for _, p := range e.value.entries {
			c.Pipelines = append(c.Pipelines, d.pipeline(p, c.Folder, known))
		}
	}
}

func (d *document) pipeline(e entry, folder string, known Known) Pipeline {
	p := Pipeline{Name: e.key}
	if !pipelineName.MatchString(e.key) {
		d.fault(e.at, "letters, digits, _ . - and at most 64 of them", "a pipeline cannot be called %s", quote(e.key))
	}
	var rest struct {
		Lanes int   `yaml:"lanes"`
		Batch Batch `yaml:"batch"`
	}
	if e.value.shape == null {
		e.value = &node{shape: mapping, at: e.at}
	}
	if !d.shaped(e.value, mapping, "pipeline "+e.key) {
		return p
	}
	d.structure(e.value, reflect.ValueOf(&rest).Elem(), "pipeline "+e.key, "source", "script", "sink")
	p.Lanes, p.Batch = rest.Lanes, rest.Batch
	d.positive(e.value, "lanes", rest.Lanes)
	p.Source = d.choice(e, "source", known.Sources)
	p.Sink = d.choice(e, "sink", known.Sinks)
	if s := e.value.get("script"); s != nil && s.value.shape != null && !s.value.broken {
		p.Script = d.script(s, folder, known.Languages)
	}
	return p
}

func (d *document) positive(n *node, key string, value int) {
	if value < 0 {
		d.fault(n.get(key).value.at, "", "%s must not be negative", key)
	}
}

// choice reads the one kind below key.
func (d *document) choice(pipeline entry, key string, kinds []string) Choice {
	c := Choice{origin: origin{d, pipeline.at}, settings: &node{}}
	e := pipeline.value.get(key)
	if e != nil && e.value.broken {
		return c
	}
	if e == nil || e.value.shape == null {
		at := pipeline.at
		if e != nil {
			at = e.at
		}
		d.fault(at, suggest("", kinds), "pipeline %s has no %s", pipeline.key, key)
		return c
	}
	if e.value.shape == scalar && slices.Contains(kinds, e.value.text) {
		d.fault(e.value.at, "write {"+e.value.raw+": {}}", "%s must be a mapping", key)
		return c
	}
	if !d.shaped(e.value, mapping, key) {
		return c
	}
	if len(e.value.entries) != 1 {
		d.fault(e.value.at, suggest("", kinds), "%s must have exactly one kind, not %d", key, len(e.value.entries))
		return c
	}
	kind := e.value.entries[0]
	c.at = kind.at
	if !slices.Contains(kinds, kind.key) {
		d.fault(kind.at, suggest(kind.key, kinds), "unknown %s %q", key, kind.key)
		return c
	}
	c.Kind, c.settings = kind.key, kind.value
	if c.settings.shape == null {
		c.settings = &node{shape: mapping, at: kind.at}
	}
	return c
}

// script reads "script: FILE" or "script: {LANGUAGE: FILE, funcname: NAME, limits…}".
func (d *document) script(e *entry, folder string, languages []string) *Script {
	s := &Script{origin: origin{d, e.value.at}}
	if e.value.shape == scalar {
		s.Language, s.Path = orElse(languages...), d.scriptPath(e.value, folder)
		return s
	}
	if !d.shaped(e.value, mapping, "script") {
		return s
	}
	d.structure(e.value, reflect.ValueOf(&s.Limits).Elem(), "script", append([]string{"funcname"}, languages...)...)
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
			s.Language, s.Path, s.at = l, d.scriptPath(given.value, folder), given.value.at
		}
	}
	if s.Language == "" && !slices.ContainsFunc(languages, func(l string) bool { return e.value.get(l) != nil }) {
		d.fault(e.at, "name the file below its language: "+strings.Join(languages, ", "), "the script has no file")
	}
	return s
}

func (d *document) scriptPath(n *node, folder string) string {
	if n.text == "" {
		d.fault(n.at, "", "the script has no file")
		return ""
	}
	return absolute(folder, n.text)
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

func absolute(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}
