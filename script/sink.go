package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
)

// SinksMax is the maximum number of sinks of a script.
const SinksMax = 64

// A Sink is what a script knows of a sink.
type Sink struct {
	Name        string         // by which code routes to it
	Columns     []event.Column // to extract for it, or nil
	Routed      bool           // it gets only rows that are routed to it
	ColumnsOnly bool           // it reads columns only; documents may be empty
}

// Outputs returns the length of Result.Outputs.
func (o *Options) Outputs() int {
	if o.SingleOutput {
		return 1
	}
	return len(o.Sinks)
}

// Route returns the set of the named sinks, one bit per sink.
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
		return fmt.Errorf("unknown sink %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("unknown sink %q; known sinks: %s", name, strings.Join(known, ", "))
}

// Direct reports whether the first output gets all rows, so that an engine can write to
// it directly.
func (o *Options) Direct() bool {
	return o.SingleOutput || len(o.Sinks) == 1 && !o.Sinks[0].Routed
}

// Wants reports whether sink i gets a row that is routed to a set of sinks. 0 means that
// the code did not route it.
func (o *Options) Wants(i int, to uint64) bool {
	if to == 0 {
		return !o.Sinks[i].Routed
	}
	return to&(1<<i) != 0
}
