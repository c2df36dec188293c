package tuning

import (
	"path/filepath"
	"strings"
	"time"
)

// A Report is the result of a trial.
type Report struct {
	Script      string
	Version     string // of the script
	Command     string
	Began       time.Time
	Took        time.Duration
	Machine     Machine
	Sample      *Sample
	Plan        Plan
	Slice       time.Duration // of a round
	Pools       []Measurement // by goroutines, each with all pools
	Cores       []Measurement // of the adaptive pool
	Batches     []Measurement // of the adaptive pool
	Compilation *Compilation  // nil where there is no compiler
	Advice      Advice
}

// A Machine describes where the figures were measured.
type Machine struct {
	Processor string
	Cores     int
	Memory    uint64
	System    string
	Versions  []string // of Go and linked libraries
}

// A Compilation says which parts of the script the engine's compiler compiled.
type Compilation struct {
	Traces    int // pieces of code that were compiled
	Uncovered []Uncovered
}

// An Uncovered is a line that is interpreted, or where compiled code ends.
type Uncovered struct {
	File   string
	Line   int
	Source string // the text of the line, where it is known
	Reason string // in the compiler's words
	Plain  string // in plain words
	Count  int
	Minor  bool // it costs little
}

// addSource adds the lines of the script and shortens its name.
func (c *Compilation) addSource(name string, text []byte) {
	lines := strings.Split(string(text), "\n")
	for i := range c.Uncovered {
		u := &c.Uncovered[i]
		if u.Line > 0 && u.Line <= len(lines) && strings.HasSuffix(name, strings.TrimPrefix(u.File, "...")) {
			u.File, u.Source = filepath.Base(name), strings.TrimSpace(lines[u.Line-1])
		}
	}
}

// Lines returns the lines that matter, or the minor ones.
func (c *Compilation) Lines(minor bool) (lines []Uncovered) {
	for _, u := range c.Uncovered {
		if u.Minor == minor {
			lines = append(lines, u)
		}
	}
	return lines
}

// byPool returns the measurements of one pool, by goroutines.
func (r *Report) byPool(name string) (all []Measurement) {
	for _, m := range r.Pools {
		if m.Pool == name {
			all = append(all, m)
		}
	}
	return all
}

// poolNames returns the names of the pools in order.
func (r *Report) poolNames() (names []string) {
	for _, s := range r.Plan.pools() {
		names = append(names, s.String())
	}
	return names
}
