// Package replay sends events through a pipeline once more, into other tables, folders or
// topics than those of its sinks.
//
// A replay first copies its events into a folder of its own (Open), so that they have positions
// that mean the same events after a restart, whatever they come from. Then an engine runs the
// pipeline on the copy, in that folder: it has positions, dead letters and an outbox of its own,
// and never those of the pipeline (Replay.Config, Replay.Kinds). So a replay delivers as a
// pipeline does, exactly once where the sink delivers exactly once.
//
// A Plan and a Replay are not safe for concurrent use, except Replay.Done.
package replay

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// Options say which pipeline writes where.
type Options struct {
	Pipeline string   // "" for the only one
	Into     []string // PLACE for the only sink, or SINK=PLACE
	Skip     []string // sinks that write nothing
	Name     string   // of the replay; "" for one made of the pipeline and the places
}

// A Plan is a pipeline whose sinks write to other places.
type Plan struct {
	Name     string
	Pipeline config.Pipeline // as configured
	Targets  []Target        // in the order of the sinks

	config *config.Config
	kinds  engine.Kinds
}

// A Target is where a sink writes in a replay.
type Target struct {
	Sink  config.Sink
	Key   string // the setting that names the place; "" if the sink keeps nothing
	From  string // the place in the configuration
	Place string
	Skip  bool
}

func (t *Target) String() string {
	switch {
	case t.Skip:
		return t.Sink.Name + " skipped"
	case t.Key == "":
		return t.Sink.Name
	}
	return fmt.Sprintf("%s into %s %s", t.Sink.Name, t.Key, t.Place)
}

// prefix distinguishes a replay from a pipeline where sinks store positions.
const prefix = "replay."

// validName matches names of replays, which become names of folders and of pipelines.
var validName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,55}$`)

// NewPlan finds the pipeline and checks the places. The configuration must be one without
// faults that engine.Load has read.
func NewPlan(c *config.Config, kinds engine.Kinds, o Options) (*Plan, error) {
	chosen, err := engine.FindPipeline(c, o.Pipeline)
	if err != nil {
		return nil, err
	}
	p := &Plan{Name: o.Name, Pipeline: chosen, config: c, kinds: kinds}
	for _, s := range chosen.Sinks {
		p.Targets = append(p.Targets, Target{Sink: s})
	}
	if err := p.skip(o.Skip); err != nil {
		return nil, err
	}
	for _, text := range o.Into {
		if err := p.direct(text); err != nil {
			return nil, err
		}
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.Name == "" {
		p.Name = p.defaultName()
	}
	if !validName.MatchString(p.Name) {
		return nil, event.WithHint(fmt.Errorf("invalid name %q of the replay", p.Name), "use up to 56 letters, digits and _ . -")
	}
	return p, nil
}

func (p *Plan) skip(names []string) error {
	for _, name := range names {
		t := p.target(name)
		if t == nil {
			return p.unknownSink(name)
		}
		t.Skip = true
	}
	if !slices.ContainsFunc(p.Targets, func(t Target) bool { return !t.Skip }) {
		return fmt.Errorf("all sinks of pipeline %s are skipped: the replay would write nothing", p.Pipeline.Name)
	}
	return nil
}

func (p *Plan) target(name string) *Target {
	i := slices.IndexFunc(p.Targets, func(t Target) bool { return t.Sink.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Targets[i]
}

func (p *Plan) unknownSink(name string) error {
	var names []string
	for _, t := range p.Targets {
		names = append(names, t.Sink.Name)
	}
	return event.WithHint(fmt.Errorf("pipeline %s has no sink %q", p.Pipeline.Name, name), config.SuggestName(name, names))
}

// direct reads PLACE or SINK=PLACE. A place may have an equals sign, as in an address.
func (p *Plan) direct(text string) error {
	name, place, given := strings.Cut(text, "=")
	t := p.target(name)
	if !given || t == nil {
		if len(p.Targets) > 1 {
			if given {
				return p.unknownSink(name)
			}
			return event.WithHint(fmt.Errorf("pipeline %s has several sinks, and %q names none", p.Pipeline.Name, text), "use SINK=PLACE, once for each sink")
		}
		t, place = &p.Targets[0], text
	}
	switch {
	case t.Skip:
		return fmt.Errorf("sink %s is skipped and has a place: use one of them", t.Sink.Name)
	case t.Place != "":
		return fmt.Errorf("sink %s has two places: %s and %s", t.Sink.Name, t.Place, place)
	case place == "":
		return fmt.Errorf("sink %s has an empty place", t.Sink.Name)
	}
	t.Place = place
	return nil
}

// check refuses a sink without a place, and a place that a sink of the pipeline, or another one
// of the replay, writes to.
func (p *Plan) check() error {
	for i := range p.Targets {
		if err := p.locate(&p.Targets[i]); err != nil {
			return err
		}
	}
	taken := map[[2]string]string{}
	for _, t := range p.Targets {
		if t.Key == "" {
			continue
		}
		identity, _ := p.identity(&t, t.From)
		taken[[2]string{t.Sink.Kind, identity}] = fmt.Sprintf("sink %s of pipeline %s writes to %s", t.Sink.Name, p.Pipeline.Name, t.From)
	}
	for _, t := range p.Targets {
		if t.Key == "" || t.Skip {
			continue
		}
		identity, err := p.identity(&t, t.Place)
		by, isTaken := taken[[2]string{t.Sink.Kind, identity}]
		switch {
		case isTaken:
			return event.WithHint(fmt.Errorf("%s %s: %s", t.Key, t.Place, by), fmt.Sprintf("a replay writes to another %s: name one with --into", t.Key))
		case err != nil:
			return fmt.Errorf("sink %s: %w", t.Sink.Name, err)
		}
		taken[[2]string{t.Sink.Kind, identity}] = fmt.Sprintf("sink %s of the replay writes to it", t.Sink.Name)
	}
	return nil
}

// locate finds the setting that names the place of a sink.
func (p *Plan) locate(t *Target) error {
	kind := p.kinds.Sinks[slices.IndexFunc(p.kinds.Sinks, func(k sink.Kind) bool { return k.Name == t.Sink.Kind })]
	switch {
	case kind.Place == nil && !t.Skip:
		return event.WithHint(fmt.Errorf("sink %s: a sink of kind %s cannot write to another place", t.Sink.Name, t.Sink.Kind), "skip it: --skip "+t.Sink.Name)
	case kind.Place == nil:
		return nil
	case len(kind.Place.Keys) == 0 && t.Place != "":
		return fmt.Errorf("sink %s of kind %s needs no place: leave out %s", t.Sink.Name, t.Sink.Kind, t.Place)
	}
	for _, key := range kind.Place.Keys {
		if from, found := t.Sink.Setting(key); found {
			t.Key, t.From = key, from
		}
	}
	if t.Key != "" && t.Place == "" && !t.Skip {
		into := strings.ToUpper(t.Key)
		if len(p.Targets) > 1 {
			into = t.Sink.Name + "=" + into
		}
		hint := fmt.Sprintf("name one: --into %s", into)
		if len(p.Targets) > 1 {
			hint += fmt.Sprintf(", or skip the sink: --skip %s", t.Sink.Name)
		}
		return event.WithHint(fmt.Errorf("sink %s has no other %s than %s to write to", t.Sink.Name, t.Key, t.From), hint)
	}
	return nil
}

func (p *Plan) identity(t *Target, place string) (string, error) {
	kind := p.kinds.Sinks[slices.IndexFunc(p.kinds.Sinks, func(k sink.Kind) bool { return k.Name == t.Sink.Kind })]
	return kind.Place.Identity(sink.Env{Folder: p.config.Folder}, place)
}

// defaultName is the same for the same pipeline and places, so that the same command continues
// its replay.
func (p *Plan) defaultName() string {
	name := p.Pipeline.Name
	for _, t := range p.Targets {
		if t.Place != "" {
			name += "-" + cmp.Or(strings.Trim(regexp.MustCompile(`[^A-Za-z0-9_.]+`).ReplaceAllString(t.Place, "_"), "_."), "_")
		}
	}
	return name[:min(len(name), 56)]
}

// Data returns the data folder of the pipeline.
func (p *Plan) Data() string { return p.config.Data }

// Folder returns the folder of the replay, in the data folder of the pipeline.
func (p *Plan) Folder() string { return filepath.Join(p.config.Data, "replays", p.Name) }
