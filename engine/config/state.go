package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A State is what the script of a pipeline remembers: nodes that are as exact as its rows.
type State struct {
	Name    string
	Version int    // of the layout of the nodes; 0 for 1
	Scope   string // ScopePartition or ScopePipeline
	Home    string // name of the sink that keeps the notes; "" for the first that can
	Standby int    // how many workers beside the owner of a unit keep a copy of it

	Time     string        // TimeClock or TimeEvent
	Field    string        // path of the time in events, with TimeEvent
	Unit     string        // of times that are numbers: s, ms, us or ns; "" for s
	Lateness time.Duration // how far the clock is behind the greatest time, with TimeEvent
	Idle     time.Duration // how long a partition without events holds the clock back; 0 for DefaultIdle

	// Archive keeps notes and snapshots; its To is empty for none.
	Archive Archive
	IsRead  bool // by another pipeline of the configuration; set by Resolve
	origin
}

// An Archive is the place from which a machine without a copy of a state restores it.
type Archive struct {
	To   string        `yaml:"to,required" example:"s3://backups/perigee" help:"s3://BUCKET/PREFIX, or a folder; a relative path starts in the folder of the configuration. No other engine may archive a state of the same name there, except workers of the same pipeline"`
	Keep time.Duration `yaml:"keep" default:"7d" example:"30d" help:"how far back in time the archive reaches; older parts are removed"`
}

// DefaultKeep is how far back an archive reaches.
const DefaultKeep = 7 * 24 * time.Hour

// The scopes of a state.
const (
	ScopePartition = "partition" // each partition of the source has nodes of its own
	ScopePipeline  = "pipeline"  // all partitions share them
)

// The clocks of a state.
const (
	TimeClock = "clock" // that of the machine
	TimeEvent = "event" // that of the events
)

// DefaultIdle is the default of Idle.
const DefaultIdle = time.Minute

// standbyMax is how many workers may follow a unit: each reads all of its notes.
const standbyMax = 10

// stateKeys are the keys of a state.
type stateKeys struct {
	Name     string        `yaml:"name,required" example:"users" help:"name of the state, by which commands find it; no other pipeline has one of this name"`
	Version  int           `yaml:"version" unit:"number" default:"1" example:"2" help:"version of the layout of the nodes; the pipeline refuses units of another one until perigee state migrate has converted them"`
	Scope    string        `yaml:"scope" choices:"partition,pipeline" default:"partition" example:"pipeline" help:"partition: each partition of the source has nodes of its own, such as each Redis list or Kafka partition; pipeline: all share them, and their scripts run one after the other"`
	Time     string        `yaml:"time" choices:"clock,event" default:"clock" example:"event" help:"clock: nodes expire and timers fire by the clock of the machine; event: by the times in the events of field"`
	Field    string        `yaml:"field" example:"user.seen_at" help:"field with the time of an event, with time: event; dots separate keys"`
	Unit     string        `yaml:"unit" choices:"s,ms,us,ns" default:"s" example:"ms" help:"unit of times that are numbers since 1970, with time: event; RFC 3339 is always understood"`
	Lateness time.Duration `yaml:"lateness" default:"0s" example:"10m" help:"with time: event, how far the clock stays behind the greatest time of a partition, for events out of order"`
	Idle     time.Duration `yaml:"idle" default:"1m" example:"5m" help:"with time: event, how long a partition without events holds the clock back"`
	Standby  int           `yaml:"standby" unit:"workers" example:"1" help:"number of workers that keep a copy of each unit beside its owner, to take it over within seconds; they share the pipeline through a MySQL, PostgreSQL or Redis sink"`
	Home     string        `yaml:"home" kind:"name of a sink" example:"mysql" help:"sink that commits the changes of the state with its rows; default is the first sink that can, and without one a log in the data folder"`
	Archive  Archive       `yaml:"archive" help:"where notes and snapshots of the state are kept, so that another machine can go on without a copy"`
}

// stateVersionMax is the last version of a state.
const stateVersionMax = 999_999_999

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
	s := &State{Name: keys.Name, Version: keys.Version, Scope: keys.Scope, Home: keys.Home, Archive: keys.Archive, Standby: keys.Standby, origin: d.originOf(e.value, "name")}
	s.Time, s.Field, s.Unit, s.Lateness, s.Idle = keys.Time, keys.Field, keys.Unit, keys.Lateness, keys.Idle
	d.checkEventTime(e.value, s)
	if s.Scope == "" {
		s.Scope = ScopePartition
	}
	if s.Name != "" && !stateName.MatchString(s.Name) {
		d.addFault(e.value.get("name").value.at, "use up to 64 small letters, digits, _ and -", "invalid name of a state %s", quoteShort(s.Name))
	}
	if s.Version < 0 || e.value.get("version") != nil && s.Version == 0 || s.Version > stateVersionMax {
		d.addFault(e.value.get("version").value.at, "count from 1", "invalid version of a state: %d", s.Version)
	}
	if s.Archive.To != "" && s.Archive.Keep == 0 {
		s.Archive.Keep = DefaultKeep
	}
	if s.Standby < 0 || s.Standby > standbyMax {
		d.addFault(e.value.get("standby").value.at, fmt.Sprintf("use a number from 0 to %d", standbyMax), "invalid standby %d", s.Standby)
	}
	d.checkHome(e.value, p, s)
	d.checkStateScript(e, p)
	return s
}

// checkEventTime checks the keys of the time of a state.
func (d *document) checkEventTime(n *node, s *State) {
	if s.Time == TimeEvent {
		if s.Field == "" {
			d.addFault(n.get("time").value.at, "for example: {time: event, field: seen_at}", "time: event needs the field that has the time of an event")
		}
		if s.Lateness < 0 || s.Idle < 0 {
			d.addFault(n.at, "for example: {lateness: 10m, idle: 1m}", "lateness and idle must not be negative")
		}
		return
	}
	for _, key := range []string{"field", "unit", "lateness", "idle"} {
		if e := n.get(key); e != nil {
			d.addFault(e.at, "add time: event, or remove it", "%s needs time: event", key)
		}
	}
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

// stateMemoryMin is the least memory of states with which batches of the default size overlap.
const stateMemoryMin = 16 << 20

func (c *Config) validateStateMemory() error {
	if c.StateMemory != 0 && c.StateMemory < stateMemoryMin {
		return errors.New("state_memory must be at least 16MiB")
	}
	return nil
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

// checkReadingScript refuses scripts that cannot read the states of other pipelines.
func (d *document) checkReadingScript(e *entry, p *Pipeline) {
	switch s := p.Script; {
	case len(p.Reads) == 0:
	case s == nil:
		d.addFault(e.at, "give the pipeline a script that uses it, with require \"state\"", "pipeline %s reads a state and has no script", p.Name)
	case s.Isolate != "":
		d.addFault(e.at, "remove isolate: limits and sandbox hold without it", "pipeline %s reads a state, which a script in a process of its own cannot reach", p.Name)
	case strings.HasSuffix(s.Text, ".so"):
		d.addFault(e.at, "write the script in Lua", "pipeline %s reads a state, which a Go plugin cannot reach", p.Name)
	case p.Shadow != nil:
		d.addFault(e.at, "try the new version with perigee test and perigee diff", "pipeline %s reads a state, which a shadow cannot reach", p.Name)
	}
}

// A readsFault is a fault in the reads of a pipeline.
type readsFault struct {
	pipeline      *Pipeline
	message, hint string
}

// checkReads compares the states that pipelines read with those of the configuration, and notes which
// ones are read.
func checkReads(pipelines []Pipeline) (faults []readsFault) {
	states := map[string]*State{}
	var shared []string
	for _, p := range pipelines {
		if p.State == nil {
			continue
		}
		states[p.State.Name] = p.State
		if p.State.Scope == ScopePipeline {
			shared = append(shared, p.State.Name)
		}
	}
	for i := range pipelines {
		p := &pipelines[i]
		for at, name := range p.Reads {
			add := func(hint, format string, args ...any) {
				faults = append(faults, readsFault{p, fmt.Sprintf(format, args...), hint})
			}
			of := states[name]
			switch {
			case p.State != nil && p.State.Name == name:
				add("remove it: the script has its own state with require \"nodedb\"", "pipeline %s reads its own state %s", p.Name, name)
			case of == nil:
				add(suggestName(name, shared), "pipeline %s reads an unknown state %q", p.Name, name)
			case of.Scope != ScopePipeline:
				add("give the state scope: pipeline, so that one copy has all of it", "pipeline %s reads the state %s, which each partition has its own part of", p.Name, name)
			case slices.Contains(p.Reads[:at], name):
				add("name it once", "pipeline %s reads the state %s twice", p.Name, name)
			default:
				of.IsRead = true
			}
		}
	}
	return faults
}

// AtReads adds the place of reads to an error.
func (p *Pipeline) AtReads(err error, hint string) error { return p.readsAt.At(err, hint) }

// toNode returns the state of a literal as the node of its YAML.
func (s *State) toNode() *node {
	n := &node{shape: mapping}
	n.set("name", scalarNode(s.Name))
	if s.Version != 0 {
		n.set("version", scalarNode(strconv.Itoa(s.Version)))
	}
	if s.Scope != "" {
		n.set("scope", scalarNode(s.Scope))
	}
	for key, text := range map[string]string{"home": s.Home, "time": s.Time, "field": s.Field, "unit": s.Unit} {
		if text != "" {
			n.set(key, scalarNode(text))
		}
	}
	for key, d := range map[string]time.Duration{"lateness": s.Lateness, "idle": s.Idle} {
		if d != 0 {
			n.set(key, scalarNode(d.String()))
		}
	}
	if s.Archive.To != "" {
		n.set("archive", nodeOf(reflect.ValueOf(s.Archive), false))
	}
	if s.Standby > 0 {
		n.set("standby", scalarNode(strconv.Itoa(s.Standby)))
	}
	return n
}
