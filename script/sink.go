package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
)

// SinksMax is how many sinks a script can be loaded for.
const SinksMax = 64

// A Sink is what a script knows of a sink.
type Sink struct {
	Name    string         // by which code routes to it
	Columns []event.Column // that it asks for, or nil
	Routed  bool           // it gets nothing but what is routed to it
	Bare    bool           // it reads columns and no documents, which may be empty then
}

// Outputs is the length of Result.Outputs.
func (o *Options) Outputs() int {
	if o.Together {
		return 1
	}
	return len(o.Sinks)
}

// Route returns the set of the named sinks, a bit for each.
func (o *Options) Route(names ...string) (to uint64, err error) {
	for _, name := range names {
		i := slices.IndexFunc(o.Sinks, func(s Sink) bool { return s.Name == name })
		if i < 0 {
			return 0, o.unknownSink(name)
		}
		to |= 1 << i
	}
	return to, nil
}

func (o *Options) unknownSink(name string) error {
	var known []string
	for i := range o.Sinks {
		known = append(known, o.Sinks[i].Name)
	}
	if near := nearest.Name(name, known); near != "" {
		return fmt.Errorf("there is no sink %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("there is no sink %q; known: %s", name, strings.Join(known, ", "))
}

// Direct tells whether the first output gets all that code sends, so that an engine
// can write there at once.
func (o *Options) Direct() bool {
	return o.Together || len(o.Sinks) == 1 && !o.Sinks[0].Routed
}

// Wants tells whether sink i gets what is routed to a set of sinks; 0 says that the
// code did not route it.
func (o *Options) Wants(i int, to uint64) bool {
	if to == 0 {
		return !o.Sinks[i].Routed
	}
	return to&(1<<i) != 0
}
