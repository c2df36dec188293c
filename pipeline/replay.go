package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/sink"
)

// replay writes what the outbox has of the partition to the sinks that lack it,
// and returns what every sink has then. The letters of an entry are those of the
// run that it is of, and replace any other.
func (t *partition) replay(ctx context.Context) (event.Ranges, error) {
	done := t.done()
	if t.p.config.Outbox == nil {
		return done, nil
	}
	for entry, err := range t.p.config.Outbox.Entries(t.p.config.Name, t.name) {
		if err != nil {
			return nil, err
		}
		r := entry.Batch.Range
		if t.settled(r) {
			t.p.config.Outbox.Remove(t.p.config.Name, t.name, r.First)
			continue
		}
		s := t.resume(entry)
		t.p.config.Reached(BeforeReplay)
		t.p.log.Info("writing stored outputs to sinks that may lack them",
			"partition", t.name, "range", r.String(), "script", entry.Script)
		if err := s.commit(ctx); err != nil {
			return nil, fmt.Errorf("write stored outputs: %w", err)
		}
		t.p.counters.replayed.Add(r.Count)
		if !slices.Contains(s.absent, true) {
			done.Add(r)
		}
	}
	return done, nil
}

// settled tells whether a range is known to be in every sink: they remember it,
// and those that remember nothing were written before.
func (t *partition) settled(r event.Range) bool {
	remembered := false
	for i := range t.p.config.Sinks {
		if t.p.config.Sinks[i].forgets() {
			continue
		}
		if remembered = t.has[i].Covers(r.First, r.End()); !remembered {
			return false
		}
	}
	return remembered
}

// resume makes a settling of an entry, whose outputs may be for other sinks than
// the pipeline has now, or for one that wants other columns: to that sink the
// events must come from the source again.
func (t *partition) resume(e *outbox.Entry) *settling {
	s := &settling{t: t, batch: &e.Batch, res: &e.Result, script: e.Script, stored: true, begun: true}
	outputs := make([]event.Output, len(t.p.config.Sinks))
	s.absent = make([]bool, len(outputs))
	for i := range t.p.config.Sinks {
		at := slices.Index(e.Sinks, t.p.config.Sinks[i].Name)
		if at < 0 || !fits(&e.Result.Outputs[at], t.p.config.Sinks[i].Sink) {
			s.absent[i] = true
			continue
		}
		outputs[i] = e.Result.Outputs[at]
	}
	e.Result.Outputs = outputs
	s.name()
	return s
}

// fits tells whether an output has the columns that a sink asks for, and documents
// where it reads them.
func fits(out *event.Output, s sink.Sink) bool {
	traits := s.Traits()
	if !traits.ColumnsOnly && lacksDocuments(out) {
		return false
	}
	if out.Columns == nil {
		return len(traits.Columns) == 0
	}
	return slices.EqualFunc(out.Columns.Spec, traits.Columns, func(a, b event.Column) bool {
		return a.Name == b.Name && a.Type == b.Type && a.Required == b.Required && slices.Equal(a.Path, b.Path)
	})
}

func lacksDocuments(out *event.Output) bool {
	for i := range out.Len() {
		if len(out.Doc(i)) == 0 {
			return true
		}
	}
	return false
}
