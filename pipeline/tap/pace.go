package tap

import (
	"math"
	"sync"
	"time"
)

// A Pace bounds how many events pass in a second at each point, and for each sink there. It is
// safe for concurrent use.
type Pace struct {
	rate float64

	mu     sync.Mutex // guards places
	places map[place]*allowance
}

// A place is a point, or that of a sink.
type place struct {
	point Point
	sink  string
}

// An allowance is how many events may pass a place now.
type allowance struct {
	left     float64
	refilled time.Time
}

// NewPace returns a pace of so many events in a second; 0 stands for RateMax, which is the highest.
func NewPace(rate float64) *Pace {
	if rate <= 0 || rate > RateMax {
		rate = RateMax
	}
	return &Pace{rate: rate, places: map[place]*allowance{}}
}

// Allow returns how many of n events may pass now. They count as passed.
func (p *Pace) Allow(at Point, sink string, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, now := p.places[place{at, sink}], time.Now()
	if a == nil {
		a = &allowance{left: math.Inf(1)}
		p.places[place{at, sink}] = a
	}
	a.left = min(max(1, p.rate), a.left+now.Sub(a.refilled).Seconds()*p.rate)
	a.refilled = now
	allowed := min(n, int(a.left))
	a.left -= float64(allowed)
	return allowed
}
