package pipeline

import (
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// keepAhead forgets what every sink had when the partition was opened: the source
// has compared that. What only some of them had it knows nothing of; their
// fingerprints stay, to be compared with what is read.
func (t *partition) keepAhead(done event.Ranges) {
	for i, had := range t.has {
		var ahead event.Ranges
		for _, r := range had {
			for _, part := range done.Missing(r) {
				part.Prints = slices.Clone(part.Prints)
				ahead.Add(part)
			}
		}
		t.has[i] = ahead
	}
}

// compare refuses a batch in which a sink that is ahead of others has other
// events under the same positions: it would skip the new ones in silence. That
// takes two mishaps at once, a source that was restored to an older state and an
// outbox that is gone.
func (t *partition) compare(b *event.Batch) error {
	if len(b.Range.Prints) == 0 {
		return nil
	}
	for i, had := range t.has {
		for _, same := range had.Intersect(event.Ranges{{First: b.Range.First, Count: b.Range.Count}}) {
			for j, print := range same.Prints {
				if print == b.Range.Prints[same.First-b.Range.First+uint64(j)] {
					continue
				}
				position := same.First + uint64(j)
				return &event.PermanentError{
					Err: fmt.Errorf("sink %s has another event at position %d of %s than the source, which the other sinks still need from there",
						t.p.config.Sinks[i].Name, position, t.name),
					Hint: fmt.Sprintf("the source was restored to an older state while the sinks stood at different positions; go on with: %s",
						source.SetPosition(t.p.config.Name, t.name, position)),
				}
			}
		}
	}
	return nil
}
