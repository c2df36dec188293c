package shadow

import (
	"math"
	"testing"
)

// TestChoose chooses each event of a batch with the probability that is asked for.
func TestChoose(t *testing.T) {
	const draws = 20_000
	for _, share := range []float64{0.004, 0.1, 0.25, 0.3, 0.7, 0.999, 1} {
		for _, n := range []int{1, 2, 7, 100} {
			times := make([]int, n)
			for range draws {
				first, chosen := choose(n, share)
				for i := first; i < first+chosen; i++ {
					times[i]++
				}
			}
			deviation := 6 * math.Sqrt(share*(1-share)/draws)
			for i := range times {
				if got := float64(times[i]) / draws; math.Abs(got-share) > deviation+1e-9 {
					t.Errorf("event %d of %d is chosen with probability %.4f, want %.4f", i, n, got, share)
				}
			}
		}
	}
}
