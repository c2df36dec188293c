package script

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Bounds of one Stats. Without them, a script that makes names or labels of its data would
// fill the memory of the monitoring system.
const (
	seriesMax = 1000 // names and combinations of labels
	labelsMax = 8    // per measurement
	nameMax   = 128  // bytes of a name or label
)

// A StatKind says how the measurements of one name are combined.
type StatKind uint8

const (
	Counter   StatKind = iota + 1 // their sum, which only grows
	Gauge                         // the last one
	Histogram                     // their distribution
)

func (k StatKind) String() string {
	return [...]string{"no kind", "counter", "gauge", "histogram"}[min(k, 3)]
}

// A Label is a dimension of a measurement.
type Label struct{ Name, Value string }

// A Stat is the value of a name with its labels.
type Stat struct {
	Kind   StatKind
	Name   string
	Labels []Label // sorted by name
	Value  float64 // of a counter or a gauge; the sum of a histogram
	Count  uint64  // of a histogram
	// Buckets[i] counts the measurements of a histogram that are at most Bounds[i].
	Bounds  []float64
	Buckets []uint64
}

// bounds are the bounds of every histogram: three per decade, from a thousandth to a
// million.
var bounds = []float64{
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500,
	1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6,
}

// Stats collects the measurements of scripts. Its zero value is ready for use. It is safe
// for concurrent use, and several scripts may share it.
type Stats struct {
	mu      sync.Mutex
	series  map[string]*Stat
	kinds   map[string]StatKind // of a name
	refused uint64
}

// A Series is a name with its labels in a Stats, for frequent measurements.
type Series struct {
	stats *Stats
	stat  *Stat
}

// Series finds or adds a series. It returns an error for an invalid name, for a name of
// another kind, and when a bound is exceeded. In names and label names, each character but
// letters, digits and underscores becomes an underscore.
func (s *Stats) Series(kind StatKind, name string, labels ...Label) (Series, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stat, err := s.findSeries(kind, name, labels)
	if err != nil {
		s.refused++
	}
	return Series{stats: s, stat: stat}, err
}

// Add adds a measurement. Counters refuse negative values.
func (s Series) Add(value float64) error {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	if s.stat.Kind == Counter && !(value >= 0) {
		s.stats.refused++
		return fmt.Errorf("the counter %s cannot go down by %g", s.stat.Name, -value)
	}
	s.stat.add(value)
	return nil
}

// Add adds a measurement to a series, see Series.
func (s *Stats) Add(kind StatKind, name string, value float64, labels ...Label) error {
	series, err := s.Series(kind, name, labels...)
	if err != nil {
		return err
	}
	return series.Add(value)
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

// findSeries returns the series of a name with its labels. It adds a missing one.
func (s *Stats) findSeries(kind StatKind, name string, labels []Label) (*Stat, error) {
	name, labels = cleanName(name), cleanLabels(labels)
	byName := func(a, b Label) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(labels, byName) {
		labels = slices.SortedFunc(slices.Values(labels), byName)
	}
	key := seriesKey(name, labels)
	if stat := s.series[key]; stat != nil && stat.Kind == kind {
		return stat, nil
	}
	if err := s.checkSeries(kind, name, labels); err != nil {
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

// checkSeries returns an error if the series cannot be added. Its labels are sorted.
func (s *Stats) checkSeries(kind StatKind, name string, labels []Label) error {
	if name == "" || len(name) > nameMax {
		return fmt.Errorf("name of a measurement has %d bytes; use 1 to %d", len(name), nameMax)
	}
	if was, found := s.kinds[name]; found && was != kind {
		return fmt.Errorf("%s is a %v, not a %v", name, was, kind)
	}
	if len(labels) > labelsMax {
		return fmt.Errorf("%s has %d labels; use at most %d", name, len(labels), labelsMax)
	}
	for i, label := range labels {
		if i > 0 && label.Name == labels[i-1].Name {
			return fmt.Errorf("the label %s is given twice", label.Name)
		}
		if label.Name == "" || len(label.Name) > nameMax {
			return fmt.Errorf("label name of %s has %d bytes; use 1 to %d", name, len(label.Name), nameMax)
		}
		if len(label.Value) > nameMax {
			return fmt.Errorf("value of label %s has %d bytes; use at most %d", label.Name, len(label.Value), nameMax)
		}
	}
	if len(s.series) >= seriesMax {
		return fmt.Errorf("cannot add %s: more than %d measurements; use fewer names and labels", name, seriesMax)
	}
	return nil
}

// seriesKey returns a unique key: no valid name contains a control character.
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

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isValidAt(name string, i int) bool {
	return isLetter(name[i]) || i > 0 && name[i] >= '0' && name[i] <= '9'
}

// cleanName replaces all but letters, digits and underscores.
func cleanName(name string) string {
	for i := range len(name) {
		if !isValidAt(name, i) {
			return replaceInvalid(name)
		}
	}
	return name
}

func replaceInvalid(name string) string {
	clean := []byte(name)
	for i := range clean {
		if !isValidAt(name, i) {
			clean[i] = '_'
		}
	}
	return string(clean)
}

func cleanLabels(labels []Label) []Label {
	dirty := func(l Label) bool { return cleanName(l.Name) != l.Name }
	if !slices.ContainsFunc(labels, dirty) {
		return labels
	}
	labels = slices.Clone(labels)
	for i := range labels {
		labels[i].Name = cleanName(labels[i].Name)
	}
	return labels
}

// Take returns what was measured since the last Take, as changes for Merge, and forgets
// it. The Series of callers stay valid.
func (s *Stats) Take() (changes []Stat, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stat := range s.series {
		unchanged := stat.Value == 0 && stat.Count == 0
		if stat.Kind == Gauge {
			unchanged = math.IsNaN(stat.Value)
		}
		if unchanged {
			continue
		}
		one := *stat
		one.Buckets = slices.Clone(stat.Buckets)
		changes = append(changes, one)
		stat.Value, stat.Count = 0, 0
		if stat.Kind == Gauge {
			stat.Value = math.NaN()
		}
		clear(stat.Buckets)
	}
	refused, s.refused = s.refused, 0
	return changes, refused
}

// Merge adds what another Stats collected. It returns an error for changes that no Stats
// returns, and for those that exceed a bound.
func (s *Stats) Merge(changes []Stat, refused uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused += refused
	var errs []error
	for i := range changes {
		if err := s.merge(&changes[i]); err != nil {
			s.refused++
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Stats) merge(change *Stat) error {
	switch {
	case change.Kind < Counter || change.Kind > Histogram:
		return fmt.Errorf("%s is of no kind", change.Name)
	case change.Kind == Counter && !(change.Value >= 0):
		return fmt.Errorf("the counter %s cannot go down by %g", change.Name, -change.Value)
	case change.Kind == Histogram && !isDistribution(change), change.Kind != Histogram && len(change.Buckets) > 0:
		return fmt.Errorf("%s has invalid buckets", change.Name)
	}
	stat, err := s.findSeries(change.Kind, change.Name, change.Labels)
	if err != nil {
		return err
	}
	if stat.Kind == Gauge {
		stat.Value = change.Value
		return nil
	}
	stat.Value += change.Value
	stat.Count += change.Count
	for i, n := range change.Buckets {
		stat.Buckets[i] += n
	}
	return nil
}

// isDistribution reports whether the buckets of a histogram can be what Add makes.
func isDistribution(s *Stat) bool {
	return len(s.Buckets) == len(bounds) && slices.IsSorted(s.Buckets) && s.Buckets[len(bounds)-1] <= s.Count
}

// Snapshot returns all series, sorted by name and labels, and the number of measurements
// that were refused.
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
