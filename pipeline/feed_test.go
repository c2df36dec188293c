package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// fingerprintedSource gives every event a fingerprint of its position, and a different one
// from position changed on.
type fingerprintedSource struct {
	*memorySource
	changed uint64
}

func (p fingerprintedSource) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	r, err := p.memorySource.Open(ctx, partition, done)
	return fingerprintedReader{r, p.changed}, err
}

type fingerprintedReader struct {
	source.Reader
	changed uint64
}

func (p fingerprintedReader) Read(ctx context.Context, b *event.Batch) error {
	if err := p.Reader.Read(ctx, b); err != nil {
		return err
	}
	b.Range.Fingerprints = fingerprints(b.Range, p.changed)
	return nil
}

func fingerprints(r event.Range, changed uint64) (all []uint32) {
	for at := r.First; at < r.End(); at++ {
		fingerprint := uint32(at)
		if at >= changed {
			fingerprint += 1000
		}
		all = append(all, fingerprint)
	}
	return all
}

// TestSinkAheadOfARestoredSource has two sinks at different positions, no entries in
// the outbox, and a source whose events changed between the two positions.
func TestSinkAheadOfARestoredSource(t *testing.T) {
	for _, c := range []struct {
		name    string
		changed uint64
		stops   bool
	}{
		{"nothing changed", 1000, false},
		{"changed behind both", 25, false},
		{"changed between them", 17, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, second := newMemorySink(), newMemorySink()
			for had, to := range map[uint64]*memorySink{20: first, 10: second} {
				r := event.Range{Count: had}
				r.Fingerprints = fingerprints(r, 1000)
				to.ranges["a"] = event.Ranges{r}
			}
			r := severalSinks(t, fingerprintedSource{newMemorySource(newMemoryPartition("a", 30)), c.changed}, versioned(1), first, second)
			err := r.Run(t.Context())
			var permanent *event.PermanentError
			if !c.stops {
				if err != nil || len(first.allRows()) != 10 || len(second.allRows()) != 20 {
					t.Errorf("ended with %v, rows %d and %d", err, len(first.allRows()), len(second.allRows()))
				}
				return
			}
			if !errors.As(err, &permanent) || !strings.Contains(err.Error(), "sink 0 has a different event than the source at position 17 of a") {
				t.Errorf("got %v", err)
			}
			if len(first.allRows()) > 0 {
				t.Errorf("rows %v", first.allRows())
			}
		})
	}
}
