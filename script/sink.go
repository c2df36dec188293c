package script

import (
	"cmp"
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
			return 0, o.unknown(name)
		}
		to |= 1 << i
	}
	return to, nil
}

func (o *Options) unknown(name string) error {
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

// Share adds the rows that code has sent, with the sinks of each in To, to the
// outputs that they are for.
func (o *Options) Share(sent *event.Output, outputs []event.Output) {
	if o.Together {
		together(&outputs[0], sent)
		return
	}
	for i := range outputs {
		if len(sent.To) == 0 || o.Direct() {
			if o.Wants(i, 0) {
				extend(&outputs[i], sent, 0, sent.Len())
			}
			continue
		}
		first := 0 // of a run of rows that the sink gets
		for row, to := range sent.To {
			if !o.Wants(i, to) {
				extend(&outputs[i], sent, first, row)
				first = row + 1
			}
		}
		extend(&outputs[i], sent, first, sent.Len())
	}
}

// together is extend for all rows, with their sinks.
func together(out, sent *event.Output) {
	if len(out.To)+len(sent.To) > 0 {
		out.To = append(out.To, make([]uint64, out.Len()-len(out.To))...)
		out.To = append(out.To, sent.To...)
		out.To = append(out.To, make([]uint64, sent.Len()-len(sent.To))...)
	}
	extend(out, sent, 0, sent.Len())
}

// extend adds the rows from first up to end to out.
func extend(out, sent *event.Output, first, end int) {
	if first == end {
		return
	}
	start := uint32(0)
	if first > 0 {
		start = sent.Ends[first-1]
	}
	move := uint32(len(out.Data)) - start // wraps around, and back
	out.Data = append(out.Data, sent.Data[start:sent.Ends[end-1]]...)
	for _, e := range sent.Ends[first:end] {
		out.Ends = append(out.Ends, e+move)
	}
	out.From = append(out.From, sent.From[first:end]...)
}

// End ends the document that was appended to out: it came of event from, and is for
// the sinks in to.
func End(out *event.Output, from int, to uint64) {
	if to != 0 || len(out.To) > 0 {
		out.To = append(out.To, make([]uint64, out.Len()-len(out.To))...)
		out.To = append(out.To, to)
	}
	out.Ends = append(out.Ends, uint32(len(out.Data)))
	out.From = append(out.From, uint32(from))
}

// Cut takes what was appended to out away, down to so many bytes and rows.
func Cut(out *event.Output, data, rows int) {
	out.Data, out.Ends, out.From = out.Data[:data], out.Ends[:rows], out.From[:rows]
	out.To = out.To[:min(rows, len(out.To))]
}

// Sort puts dead letters into the order of their events, and those of one event into
// that of sinks' names and rows.
func Sort(dead []event.Dead) {
	if len(dead) < 2 {
		return
	}
	slices.SortStableFunc(dead, func(a, b event.Dead) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Number, b.Number))
	})
}
