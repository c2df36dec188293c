package script

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A Trial makes the runs of code repeatable and observable, for tests. Go plugins, which call Go directly, and isolated
// scripts ignore it. Its fields are optional, and its functions are safe for concurrent use.
type Trial struct {
	// Now is the clock of the modules time and os, in place of the system's. os.clock, which
	// measures processor time, keeps its own.
	Now func() time.Time
	// Replace returns the function that runs in place of a function in Go, such as
	// "geo.lookup", or nil to run the original. It is called at each call.
	Replace func(function string) Func
	// Coverage collects the lines that run. Code runs interpreted then.
	Coverage *Coverage
	// LimitLog bounds the log lines as those of a pipeline. Otherwise all are written.
	LimitLog bool
}

// Clock returns the clock that code reads. A nil Trial has the system's.
func (t *Trial) Clock() func() time.Time {
	if t == nil || t.Now == nil {
		return time.Now
	}
	return t.Now
}

// Replaces returns Replace, or nil.
func (t *Trial) Replaces() func(function string) Func {
	if t == nil {
		return nil
	}
	return t.Replace
}

// Covers returns Coverage, or nil.
func (t *Trial) Covers() *Coverage {
	if t == nil {
		return nil
	}
	return t.Coverage
}

// Coverage is the set of lines of scripts that ran. The zero value is empty. It is safe for
// concurrent use.
type Coverage struct {
	mu    sync.Mutex
	lines map[string]map[int]bool // by file
}

// Add adds a line of a file.
func (c *Coverage) Add(file string, line int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines == nil {
		c.lines = make(map[string]map[int]bool)
	}
	if c.lines[file] == nil {
		c.lines[file] = make(map[int]bool)
	}
	c.lines[file][line] = true
}

// Files returns the files with a line that ran, sorted.
func (c *Coverage) Files() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.lines))
}

// Lines returns the lines of a file that ran, in order.
func (c *Coverage) Lines(file string) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.lines[file]))
}
