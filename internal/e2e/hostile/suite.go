package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	patience    = 2 * time.Second // within which every neighbour must be served
	caseTimeout = 20 * time.Second
	// afterwards is how long the neighbours are watched once an attack is over.
	afterwards = 60 * time.Millisecond
)

// An attackCase is one attack.
type attackCase struct {
	name string
	// run attacks and returns what came of it, for a person to read. An error means
	// that the engine answered in a way that it must not.
	run func(context.Context, *target) (string, error)
}

// A suite is attacks on one engine, which is restarted when an attack ends it.
type suite struct {
	name    string
	memory  int64 // bytes that the engine may take in all
	cases   []attackCase
	verbose bool

	loaded  float64 // events that the pipeline load committed meanwhile
	took    time.Duration
	longest time.Duration // that a neighbour waited
}

// run runs the cases and returns how many failed.
func (s *suite) run(binary string) (failed int, err error) {
	var t *target
	defer func() { t.stop() }()
	peak := int64(0)
	for _, c := range s.cases {
		if t == nil {
			if t, err = startTarget(binary); err != nil {
				return failed, err
			}
		}
		outcome, longest, fault := s.attack(t, c)
		s.longest = max(s.longest, longest.time)
		peak = max(peak, t.engine.PeakBytes())
		if s.verbose || fault != nil {
			fmt.Printf("%-60s %4d MiB, %s waited %v  %s\n", c.name, t.engine.PeakBytes()>>20, longest.who, longest.time.Round(time.Millisecond), outcome)
		}
		if fault != nil {
			s.count(t)
			failed++
			fmt.Printf("FAIL %s: %v\n", c.name, fault)
			if s.verbose && !t.isAlive() {
				t.printLog(os.Stdout)
			}
			t.stop()
			t = nil
		}
	}
	s.count(t)
	fmt.Printf("%s: %d MiB at most, %d MiB are allowed\n", s.name, peak>>20, s.memory>>20)
	return failed, nil
}

// count adds what a target has ingested beside the attacks.
func (s *suite) count(t *target) {
	if t != nil && t.isAlive() {
		s.loaded += t.loaded()
		s.took += time.Since(t.started)
	}
}

// rate returns the events per second that were ingested beside the attacks, of the 2,000 that
// came.
func (s *suite) rate() float64 { return s.loaded / max(s.took.Seconds(), 1) }

// attack runs one case, with neighbours beside it, and returns how long they waited at most.
func (s *suite) attack(t *target, c attackCase) (outcome string, longest wait, fault error) {
	if err := t.engine.ResetPeak(); err != nil {
		return "", longest, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	beside := startNeighbours(t)
	outcome, fault = c.run(ctx, t)
	time.Sleep(afterwards)
	longest, err := beside.stop()
	switch {
	case !t.isAlive():
		fault = fmt.Errorf("the engine ended")
	case fault != nil:
	case err != nil:
		fault = err
	case longest.time > patience:
		fault = fmt.Errorf("the neighbour %s waited %v", longest.who, longest.time)
	case t.engine.PeakBytes() > s.memory:
		fault = fmt.Errorf("the engine took %d MiB", t.engine.PeakBytes()>>20)
	}
	return outcome, longest, fault
}
