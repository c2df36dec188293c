//go:build linux && cgo

package tableview

import (
	"math"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// TestWithin checks the boundaries of the rows that a query's bounds exclude.
func TestWithin(t *testing.T) {
	all := Selection{
		Files:  []*manifest.File{{MinTime: 10, MaxTime: 20}},
		Frames: []*logscan.Frame{{MinTime: 10, MaxTime: 20}},
	}
	for _, test := range []struct {
		min, max int64
		want     int
	}{{20, 30, 1}, {21, 30, 0}, {0, 10, 1}, {0, 9, 0}, {12, 13, 1}, {0, 100, 1}, {math.MinInt64, math.MaxInt64, 1}, {10, 10, 1}, {20, 20, 1}} {
		got := all.Within(&manifest.Table{Time: "time"}, bounds{min: test.min, max: test.max})
		if len(got.Files) != test.want || len(got.Frames) != test.want {
			t.Errorf("from %d to %d: %d files and %d frames", test.min, test.max, len(got.Files), len(got.Frames))
		}
	}
	if got := all.Within(&manifest.Table{}, bounds{min: 50, max: 60}); len(got.Files) != 1 || len(got.Frames) != 1 {
		t.Error("a table without a time column has bounds")
	}
}
