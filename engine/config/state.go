package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// A State is what the script of a pipeline remembers: nodes that are as exact as its rows.
type State struct {
	Name  string
	Scope string // ScopePartition or ScopePipeline
	Home  string // name of the sink that keeps the notes; "" for the first that can
	origin
}

// The scopes of a state.
const (
	ScopePartition = "partition" // each partition of the source has nodes of its own
	ScopePipeline  = "pipeline"  // all partitions share them
)

// stateKeys are the keys of a state.
type stateKeys struct {
	Name  string `yaml:"name,required" example:"users" help:"name of the state, by which commands find it; no other pipeline has one of this name"`
	Scope string `yaml:"scope" choices:"partition,pipeline" default:"partition" example:"pipeline" help:"partition: each partition of the source has nodes of its own, such as each Redis list or Kafka partition; pipeline: all share them, and their scripts run one after the other"`
	Home  string `yaml:"home" kind:"name of a sink" example:"mysql" help:"sink that commits the changes of the state with its rows; default is the first sink that can, and without one a log in the data folder"`
}

// stateName matches the names of states, which become names of folders.
var stateName = regexp.MustCompile(`^[a-z0-9_][a-z0-9_-]{0,63}$`)

// readState reads the state of a pipeline whose script and sinks have been read.
func (d *document) readState(e *entry, p *Pipeline) *State {
	if e.value.shape == scalar {
		d.addFault(e.value.at, "write {name: "+e.value.raw+"}", "state must be a mapping, not %s", e.value.describe())
		return nil
	}
	if !d.hasShape(e.value, mapping, "state") {
		return nil
	}
	var keys stateKeys
	d.decodeStruct(e.value, reflect.ValueOf(&keys).Elem(), "state")
	s := &State{Name: keys.Name, Scope: keys.Scope, Home: keys.Home, origin: d.originOf(e.value, "name")}
	if s.Scope == "" {
		s.Scope = ScopePartition
	}
	if s.Name != "" && !stateName.MatchString(s.Name) {
		d.addFault(e.value.get("name").value.at, "use up to 64 small letters, digits, _ and -", "invalid name of a state %s", quoteShort(s.Name))
	}
	d.checkHome(e.value, p, s)
	d.checkStateScript(e, p)
	return s
}

func (d *document) checkHome(n *node, p *Pipeline, s *State) {
	if s.Home == "" {
		return
	}
	var names []string
	for _, one := range p.Sinks {
		names = append(names, one.Name)
	}
	if !slices.Contains(names, s.Home) {
		d.addFault(n.get("home").value.at, suggestName(s.Home, names), "pipeline %s has no sink %q that could be the home of its state", p.Name, s.Home)
	}
}

// checkStateScript refuses scripts that cannot change a state.
func (d *document) checkStateScript(e *entry, p *Pipeline) {
	switch s := p.Script; {
	case s == nil:
		d.addFault(e.at, "give the pipeline a script that uses it, with require \"nodedb\"", "pipeline %s has a state and no script", p.Name)
	case s.Isolate != "":
		d.addFault(e.at, "remove isolate: limits and sandbox hold without it", "pipeline %s has a state, which a script in a process of its own cannot reach", p.Name)
	case strings.HasSuffix(s.Text, ".so"):
		d.addFault(e.at, "write the script in Lua", "pipeline %s has a state, which a Go plugin cannot reach", p.Name)
	case p.Shadow != nil:
		d.addFault(e.at, "try the new version with perigee test and perigee diff", "pipeline %s has a state, and a shadow cannot have a copy of it", p.Name)
	}
}

// checkStateNames reports states of the same name.
func (d *document) checkStateNames(pipelines []Pipeline) {
	owners := map[string]string{}
	for _, p := range pipelines {
		if p.State == nil {
			continue
		}
		if first, taken := owners[p.State.Name]; taken {
			d.addFault(p.State.origin.at, "rename one of them", "pipelines %s and %s both have a state %s", first, p.Name, p.State.Name)
			continue
		}
		owners[p.State.Name] = p.Name
	}
}

// toNode returns the state of a literal as the node of its YAML.
func (s *State) toNode() *node {
	n := &node{shape: mapping}
	n.set("name", scalarNode(s.Name))
	if s.Scope != "" {
		n.set("scope", scalarNode(s.Scope))
	}
	if s.Home != "" {
		n.set("home", scalarNode(s.Home))
	}
	return n
}
