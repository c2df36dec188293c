package pipeline

import (
	"testing"

	"github.com/perigeedb/perigee/event"
)

func TestNumber(t *testing.T) {
	out := &event.Output{
		Range: event.Range{First: 100, Count: 3},
		From:  []uint32{0, 0, 0, 2, 2},
		Ends:  make([]uint32, 5),
	}
	for name, test := range map[string]struct {
		dead []event.Dead
		want []uint32 // by row
	}{
		"none dead":            {nil, []uint32{0, 1, 2, 0, 1}},
		"the first dead":       {[]event.Dead{{Position: 100, Number: 0}}, []uint32{1, 2, 3, 0, 1}},
		"one between":          {[]event.Dead{{Position: 102, Number: 1}}, []uint32{0, 1, 2, 0, 2}},
		"two, out of order":    {[]event.Dead{{Position: 100, Number: 3}, {Position: 100, Number: 1}}, []uint32{0, 2, 4, 0, 1}},
		"those after the last": {[]event.Dead{{Position: 102, Number: 2}}, []uint32{0, 1, 2, 0, 1}},
		"in another sink":      {[]event.Dead{{Position: 100, Number: 0, Sink: "other"}}, []uint32{0, 1, 2, 0, 1}},
		"in this sink":         {[]event.Dead{{Position: 100, Number: 0, Sink: "table"}}, []uint32{1, 2, 3, 0, 1}},
	} {
		for row, want := range test.want {
			if got := number(out, row, "table", test.dead); got != want {
				t.Errorf("%s: row %d is number %d, want %d", name, row, got, want)
			}
		}
	}
}
