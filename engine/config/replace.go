package config

import "slices"

// NewSource returns a source without settings, for a program that replaces the source of a
// pipeline that Load has read.
func NewSource(kind string) Source {
	return Source{Kind: kind, settings: newSettings(kind, kind)}
}

// WithKind returns a sink of another kind, without settings, with the name and the routing of s.
func (s Sink) WithKind(kind string) Sink {
	return Sink{Kind: kind, Name: s.Name, Routed: s.Routed, settings: newSettings(kind, kind)}
}

func newSettings(kind, name string) settings {
	return settings{kind: kind, node: &node{shape: mapping}, origin: origin{document: &document{file: name}}}
}

// Setting returns the value of a setting that Load or Resolve has read.
func (s Sink) Setting(key string) (value string, found bool) {
	e := s.node.get(key)
	if e == nil || e.value.shape != scalar {
		return "", false
	}
	return e.value.text, true
}

// WithSetting returns the sink with another value of a setting. Faults of the value name the
// text from instead of a file.
func (s Sink) WithSetting(key, value, from string) Sink {
	replaced := *s.node
	replaced.entries = slices.Clone(s.node.entries)
	if e := replaced.get(key); e != nil {
		e.value = scalarNode(value)
	} else {
		replaced.set(key, scalarNode(value))
	}
	s.node, s.origin = &replaced, origin{document: &document{file: from}}
	return s
}
