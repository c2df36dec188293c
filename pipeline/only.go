package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// only is the part of event i of the batch that is wanted.
func (s *settling) only(i int) event.Part {
	if len(s.batch.Only) == 0 {
		return event.Part{}
	}
	return s.batch.Only[i]
}

// heed leaves of what came of events that are tried again the parts that were
// asked for: the others are durable already.
func (s *settling) heed() {
	if len(s.batch.Only) == 0 {
		return
	}
	came, kept := make([]bool, s.res.Ran), make([]bool, s.res.Ran) // of which events anything did, or is wanted
	for i := range s.res.Outputs {
		s.heedRows(i, came, kept)
	}
	s.heedDead(came, kept)
	for i := range s.res.Ran {
		switch only := s.only(i); {
		case !came[i] || kept[i]:
		case !s.known(only.Sink):
			s.res.Dead = append(s.res.Dead, s.homeless(i, only))
		default:
			s.res.Dropped++
		}
	}
}

func (s *settling) heedRows(i int, came, kept []bool) {
	out, name := &s.res.Outputs[i], s.t.p.config.Sinks[i].Name
	var unwanted []int
	for row, from := range out.From {
		came[from] = true
		only := s.only(int(from))
		if only.Sink != "" && (only.Sink != name || only.Number != number(out, row, name, s.res.Dead)) {
			unwanted = append(unwanted, row)
		} else {
			kept[from] = true
		}
	}
	out.RemoveRows(unwanted)
}

// heedDead leaves the dead that are wanted. An event that fails as a whole is
// dead for the part of it that was asked for.
func (s *settling) heedDead(came, kept []bool) {
	s.res.Dead = slices.DeleteFunc(s.res.Dead, func(d event.Dead) bool {
		at := int(d.Position - s.batch.Range.First)
		came[at] = true
		only := s.only(at)
		return only.Sink != "" && d.Sink != "" && (d.Sink != only.Sink || d.Number != only.Number)
	})
	for i := range s.res.Dead {
		d := &s.res.Dead[i]
		at := int(d.Position - s.batch.Range.First)
		if only := s.only(at); only.Sink != "" {
			d.Sink, d.Number = only.Sink, only.Number
		}
		kept[at] = true
	}
}

func (s *settling) known(sink string) bool {
	return slices.ContainsFunc(s.t.p.config.Sinks, func(one Sink) bool { return one.Name == sink })
}

// homeless is the dead letter of an event that is tried again for a sink that is
// there no more.
func (s *settling) homeless(i int, only event.Part) event.Dead {
	var names []string
	for _, one := range s.t.p.config.Sinks {
		names = append(names, one.Name)
	}
	return event.Dead{
		Position: s.batch.Range.First + uint64(i), Sink: only.Sink, Number: only.Number,
		Stage:    "sink",
		Error:    fmt.Sprintf("no sink called %q; there is %s", only.Sink, strings.Join(names, ", ")),
		Script:   s.script,
		Original: slices.Clone(s.batch.Doc(i)),
	}
}
