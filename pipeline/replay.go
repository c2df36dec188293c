package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/sink"
)

// replayOutbox delivers the partition's entries of the outbox to the sinks that
// lack them, and returns the ranges that every sink has after that. The dead
// letters of an entry are those of the run that made it, and replace others.
func (s *session) replayOutbox(ctx context.Context) (event.Ranges, error) {
	done := s.commonRanges()
	if s.p.config.Outbox == nil {
		return done, nil
	}
	for entry, err := range s.p.config.Outbox.Entries(s.p.config.Name, s.partition) {
		if err != nil {
			return nil, err
		}
		r := entry.Batch.Range
		if s.isWritten(r) {
			s.p.config.Outbox.Remove(s.p.config.Name, s.partition, r.First)
			continue
		}
		d := s.newReplay(entry)
		s.p.config.OnPoint(BeforeReplay)
		s.p.log.Info("writing stored outputs to the sinks that lack them",
			"partition", s.partition, "range", r.String(), "script", entry.Script)
		if err := d.commit(ctx); err != nil {
			return nil, fmt.Errorf("write stored outputs: %w", err)
		}
		s.p.counters.replayed.Add(r.Count)
		if !slices.Contains(d.withoutOutput, true) {
			done.Add(r)
		}
	}
	return done, nil
}

// isWritten reports whether every sink is known to have a range: the sinks that
// remember ranges have it, and the others were written before them.
func (s *session) isWritten(r event.Range) bool {
	remembered := false
	for i := range s.p.config.Sinks {
		if s.p.config.Sinks[i].isAtLeastOnce() || s.writers[i] == nil {
			continue
		}
		if remembered = s.ranges[i].Covers(r.First, r.End()); !remembered {
			return false
		}
	}
	return remembered
}

// newReplay makes a delivery of an entry. The pipeline may have other sinks now, or
// a sink may want other columns: such a sink gets the events from the source
// again.
func (s *session) newReplay(e *outbox.Entry) *delivery {
	d := &delivery{session: s, batch: &e.Batch, result: &e.Result, script: e.Script, stored: true, maybeWritten: true}
	outputs := make([]event.Output, len(s.p.config.Sinks))
	d.withoutOutput = make([]bool, len(outputs))
	for i := range s.p.config.Sinks {
		at := slices.Index(e.Sinks, s.p.config.Sinks[i].Name)
		if at < 0 || !outputFits(&e.Result.Outputs[at], s.p.config.Sinks[i].Sink) {
			d.withoutOutput[i] = true
			continue
		}
		outputs[i] = e.Result.Outputs[at]
	}
	e.Result.Outputs = outputs
	d.labelOutputs()
	return d
}

// outputFits reports whether an output has the columns that a sink wants, and
// documents if the sink reads them.
func outputFits(out *event.Output, s sink.Sink) bool {
	traits := s.Traits()
	if !traits.ColumnsOnly && lacksDocuments(out) {
		return false
	}
	if out.Columns == nil {
		return len(traits.Columns) == 0
	}
	return slices.EqualFunc(out.Columns.Spec, traits.Columns, func(a, b event.Column) bool {
		return a.Name == b.Name && a.Type == b.Type && a.Unit == b.Unit && a.Required == b.Required && slices.Equal(a.Path, b.Path)
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
