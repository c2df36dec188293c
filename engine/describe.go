package engine

import "github.com/perigeedb/perigee/engine/config"

// Describe returns every key of a configuration with these kinds, for references and the
// JSON Schema.
func (k Kinds) Describe() *config.Description {
	var sources, sinks, languages []config.Kind
	for _, one := range k.Sources {
		sources = append(sources, config.Kind{Name: one.Name, Doc: one.Doc, Fields: config.Fields(one.Config)})
	}
	for _, one := range k.Sinks {
		sinks = append(sinks, config.Kind{Name: one.Name, Doc: one.Doc, Fields: config.Fields(one.Config)})
	}
	for _, one := range k.Languages {
		languages = append(languages, config.Kind{Name: one.Name, Doc: one.Doc, Fields: config.Fields(config.ScriptSettings{})})
	}
	return config.Describe(k.names(), sources, sinks, languages)
}
