package sqltest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// BenchmarkNote measures commits of an output with a note of 10 kB and without one, in turns, and
// reports the medians. output makes the one that begins at a position.
func BenchmarkNote(b *testing.B, s sink.Sink, output func(first uint64) *event.Output) {
	unit, err := s.Traits().Units.OpenUnit(b.Context(), "u")
	if err != nil {
		b.Fatal(err)
	}
	opened, _, err := s.Open(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	defer opened.Close()
	w := opened.(sink.NoteWriter)
	data := make([]byte, 10_000)
	random := rand.NewChaCha8([32]byte{})
	var plain, noted []time.Duration
	first, number := uint64(0), uint64(0)
	next := func() *event.Output {
		out := output(first)
		first += out.Range.Count
		return out
	}
	b.ResetTimer()
	for range b.N {
		out := next()
		began := time.Now()
		if err := w.Write(b.Context(), out); err != nil {
			b.Fatal(err)
		}
		plain = append(plain, time.Since(began))

		_, _ = random.Read(data)
		number++
		out = next()
		began = time.Now()
		if err := w.WriteNote(b.Context(), out, unit, &sink.Note{Number: number, Sum: random.Uint64(), Data: data}); err != nil {
			b.Fatal(err)
		}
		noted = append(noted, time.Since(began))
		if number%100 == 0 {
			if err := unit.Trim(b.Context(), number); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(median(plain), "µs/commit")
	b.ReportMetric(median(noted), "µs/commit-with-note")
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1000
}
