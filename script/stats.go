package script

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// What scripts may measure in one Stats. A script that makes names or labels out
// of its data would otherwise fill the memory of whoever collects them.
const (
	seriesMax = 1000 // names and combinations of labels
	labelsMax = 8    // of one measurement
	nameMax   = 128  // bytes of a name or label
)

// A StatKind says how measurements of one name are put together.
type StatKind uint8

const (
	Counter   StatKind = iota + 1 // the sum; it only grows
	Gauge                         // the last one
	Histogram                     // how many were up to each bucket's bound
)

func (k StatKind) String() string {
	return [...]string{"no kind", "counter", "gauge", "histogram"}[min(k, 3)]
}

// A Label is a dimension of a measurement.
type Label struct{ Name, Value string }

// A Stat is what a name with its labels has come to.
type Stat struct {
	Kind   StatKind
	Name   string
	Labels []Label // by name
	Value  float64 // of a counter or a gauge; the sum of a histogram
	Count  uint64  // of a histogram
	// Buckets of a histogram: Buckets[i] counts what was up to Bounds[i].
	Bounds  []float64
	Buckets []uint64
}

// bounds are those of every histogram: a decade in three steps, from a
// thousandth to a million.
var bounds = []float64{
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500,
	1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6,
}

// Stats collects what scripts measure, until it is asked for it. Its zero value is
// ready. It is safe for concurrent use, and may be shared by several scripts.
type Stats struct {
	mu      sync.Mutex
	series  map[string]*Stat
	kinds   map[string]StatKind // of a name
	refused uint64
}

// Add takes a measurement. It refuses what has no valid name, what was another
// kind of thing before, and what would be too much; names and labels consist of
// letters, digits and underscores.
func (s *Stats) Add(kind StatKind, name string, value float64, labels ...Label) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	stat, err := s.find(kind, name, labels)
	if err == nil && kind == Counter && !(value >= 0) {
		err = fmt.Errorf("the counter %s cannot go down by %g", name, -value)
	}
	if err != nil {
		s.refused++
		return err
	}
	stat.add(value)
	return nil
}

func (s *Stat) add(value float64) {
	switch s.Kind {
	case Gauge:
		s.Value = value
		return
	case Histogram:
		s.Count++
		for i, bound := range s.Bounds {
			if value <= bound {
				s.Buckets[i]++
			}
		}
	}
	s.Value += value
}

// find returns the series of a name with its labels, made if there may be more.
func (s *Stats) find(kind StatKind, name string, labels []Label) (*Stat, error) {
	byName := func(a, b Label) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(labels, byName) {
		labels = slices.SortedFunc(slices.Values(labels), byName)
	}
	key := seriesKey(name, labels)
	if stat := s.series[key]; stat != nil && stat.Kind == kind {
		return stat, nil
	}
	if err := s.check(kind, name, labels); err != nil {
		return nil, err
	}
	stat := &Stat{Kind: kind, Name: name, Labels: slices.Clone(labels)}
	if kind == Histogram {
		stat.Bounds, stat.Buckets = bounds, make([]uint64, len(bounds))
	}
	if s.series == nil {
		s.series, s.kinds = make(map[string]*Stat), make(map[string]StatKind)
	}
	s.series[key], s.kinds[name] = stat, kind
	return stat, nil
}

// check says why a series cannot be made. Its labels are sorted.
func (s *Stats) check(kind StatKind, name string, labels []Label) error {
	if !validName(name) {
		return fmt.Errorf("%q is no name for a measurement: use letters, digits and underscores", clip(name))
	}
	if was, found := s.kinds[name]; found && was != kind {
		return fmt.Errorf("%s is a %v, not a %v", name, was, kind)
	}
	if len(labels) > labelsMax {
		return fmt.Errorf("%s has %d labels; at most %d are kept", name, len(labels), labelsMax)
	}
	for i, label := range labels {
		if i > 0 && label.Name == labels[i-1].Name {
			return fmt.Errorf("the label %s is given twice", label.Name)
		}
		if !validName(label.Name) {
			return fmt.Errorf("%q is no name for a label: use letters, digits and underscores", clip(label.Name))
		}
		if len(label.Value) > nameMax {
			return fmt.Errorf("the label %s has a value of %d bytes; at most %d are kept", label.Name, len(label.Value), nameMax)
		}
	}
	if len(s.series) >= seriesMax {
		return fmt.Errorf("there are %d measurements already, %s is not kept: use fewer names and labels", seriesMax, name)
	}
	return nil
}

func clip(s string) string { return s[:min(len(s), nameMax)] }

// seriesKey is unique, for no valid name holds a control character.
func seriesKey(name string, labels []Label) string {
	if len(labels) == 0 {
		return name
	}
	var key strings.Builder
	key.WriteString(name)
	for _, label := range labels {
		fmt.Fprintf(&key, "\x00%s\x00%d\x00%s", label.Name, len(label.Value), label.Value)
	}
	return key.String()
}

func validName(name string) bool {
	if name == "" || len(name) > nameMax || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for _, c := range []byte(name) {
		if c != '_' && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') {
			return false
		}
	}
	return true
}

// Snapshot returns all there is, by name and labels, and how many measurements
// were refused.
func (s *Stats) Snapshot() (stats []Stat, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stat := range s.series {
		one := *stat
		one.Buckets = slices.Clone(stat.Buckets)
		stats = append(stats, one)
	}
	slices.SortFunc(stats, func(a, b Stat) int {
		return strings.Compare(seriesKey(a.Name, a.Labels), seriesKey(b.Name, b.Labels))
	})
	return stats, s.refused
}
