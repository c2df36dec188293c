package computed

import "github.com/perigeedb/perigee/event"

// sent is what a script made of a batch: the event of each output and the sinks that
// it is for. Rows are numbered by it, also when others were refused before.
type sent struct {
	from []uint32
	to   []uint64 // empty when nothing is routed
}

func (s *sent) take(out *event.Output) {
	s.from, s.to = append(s.from[:0], out.From...), append(s.to[:0], out.To...)
}

// wanted tells whether an output of the script is for sink i.
func (w *work) wanted(i, origin int) bool {
	to := uint64(0)
	if len(w.sent.to) > 0 {
		to = w.sent.to[origin]
	}
	return w.script.options.Wants(i, to)
}

// number is which of the event's rows in sink i an output of the script is.
func (w *work) number(i, origin int) (number uint32) {
	for at := origin - 1; at >= 0 && w.sent.from[at] == w.sent.from[origin]; at-- {
		if w.wanted(i, at) {
			number++
		}
	}
	return number
}

// origin is the output of the script that a row of sink i was.
func (w *work) origin(i, row int) int {
	for _, origin := range w.origins {
		if !w.wanted(i, int(origin)) {
			continue
		}
		if row == 0 {
			return int(origin)
		}
		row--
	}
	panic("computed: a sink has more rows than it was sent")
}
