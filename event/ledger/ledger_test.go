package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

var errStore = errors.New("the store does not answer")

// A scene is a ledger and its callers, by name. Callers wait in the background; expect checks
// what they noted.
type scene struct {
	*testing.T
	ledger  *Ledger
	owner   *Owner
	stored  event.Ranges  // what a renewal finds
	failing error         // of renewals
	gate    chan struct{} // if not nil, a replacement waits for it

	mu     sync.Mutex
	held   map[string]Reservation
	cancel map[string]context.CancelFunc
	events []string
}

func newScene(t *testing.T, committed ...event.Range) *scene {
	s := &scene{T: t, held: map[string]Reservation{}, cancel: map[string]context.CancelFunc{}}
	s.ledger = New(committed, func(context.Context) (event.Ranges, error) {
		s.note("renewed")
		return s.stored, s.failing
	})
	s.owner = s.ledger.TakeOver()
	return s
}

func (s *scene) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf(format, args...))
}

// expect compares what has happened since the last call.
func (s *scene) expect(want ...string) {
	s.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.events)
	slices.Sort(want)
	if !slices.Equal(s.events, want) {
		s.Errorf("got %q, want %q", s.events, want)
	}
	s.events = nil
}

// start calls f in the background with a context that s.cancel[who] ends.
func (s *scene) start(who string, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(s.Context())
	s.cancel[who] = cancel
	go func() {
		if err := f(ctx); err != nil {
			s.note("%s: %v", who, err)
		}
	}()
}

func (s *scene) reserve(who string, first, count uint64) {
	owner := s.owner
	s.start(who, func(ctx context.Context) error {
		held, err := owner.Reserve(ctx, at(first, count))
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.held[who] = held
		s.mu.Unlock()
		s.note("%s misses %v", who, held.Missing)
		return nil
	})
}

func (s *scene) finish(who string, how Outcome) {
	s.mu.Lock()
	held := s.held[who]
	s.mu.Unlock()
	held.Finish(how)
}

// replace makes the ledger forget everything but the positions before next.
func (s *scene) replace(who string, next uint64, failure error) {
	s.start(who, func(ctx context.Context) error {
		err := s.ledger.Replace(ctx, func() (event.Ranges, error) {
			if s.gate != nil {
				s.note("%s replaces", who)
				<-s.gate
			}
			return event.Ranges{at(0, next)}, failure
		})
		if err == nil {
			s.note("%s replaced", who)
		}
		return err
	})
}

func (s *scene) drain(who string) {
	s.start(who, func(ctx context.Context) error {
		err := s.ledger.Drain(ctx)
		if err == nil {
			s.note("%s has drained", who)
		}
		return err
	})
}

func (s *scene) expectCommitted(want string) {
	s.Helper()
	if got := s.ledger.Committed().String(); got != want {
		s.Errorf("committed %q, want %q", got, want)
	}
}

func at(first, count uint64) event.Range { return event.Range{First: first, Count: count} }

// TestRules plays one rule of the ledger after the other.
func TestRules(t *testing.T) {
	for name, play := range map[string]func(*scene){
		"what is committed is not missing": func(s *scene) {
			s.reserve("a", 0, 30)
			s.expect("a misses [0,5) [10,20) [25,30)")
			s.finish("a", Committed)
			s.expectCommitted("[0,30)")
			s.reserve("b", 3, 20)
			s.expect("b misses ")
			s.finish("b", Committed)
			s.expectCommitted("[0,30)")
		},
		"an aborted commit leaves everything missing": func(s *scene) {
			s.reserve("a", 8, 4)
			s.expect("a misses [10,12)")
			s.finish("a", Aborted)
			s.expectCommitted("[5,10) [20,25)")
			s.reserve("a", 8, 4)
			s.expect("a misses [10,12)")
		},
		"overlapping callers wait, neighbours do not": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.reserve("left", 30, 10)
			s.reserve("right", 50, 10)
			s.expect("left misses [30,40)", "right misses [50,60)")
			for i, r := range []event.Range{at(45, 2), at(49, 5), at(35, 6), at(30, 50), at(40, 10)} {
				s.reserve(fmt.Sprint("overlap ", i), r.First, r.Count)
			}
			s.expect()
			for _, who := range []string{"left", "right"} {
				s.finish(who, Aborted)
			}
			s.expect()
		},
		"waiting callers miss what was not committed": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.reserve("b", 45, 10)
			s.expect()
			s.finish("a", Committed)
			s.expect("b misses [50,55)")
			s.reserve("c", 50, 10)
			s.expect()
			s.finish("b", Aborted)
			s.expect("c misses [50,60)")
		},
		"a reservation of what is committed holds it too": func(s *scene) {
			s.reserve("a", 5, 5)
			s.expect("a misses ")
			s.reserve("b", 5, 1)
			s.expect()
			s.finish("a", Committed)
			s.expect("b misses ")
		},
		"a caller that stops waiting holds nothing": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.reserve("b", 45, 10)
			s.cancel["b"]()
			s.expect("b: context canceled")
			s.reserve("c", 50, 10)
			s.expect("c misses [50,60)")
			s.start("d", func(context.Context) error {
				ended, cancel := context.WithCancel(s.Context())
				cancel()
				_, err := s.owner.Reserve(ended, at(70, 1))
				return err
			})
			s.expect("d: context canceled")
		},
		"an unknown outcome is renewed before the next reservation": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.finish("a", Unknown)
			s.expectCommitted("[5,10) [20,25)")
			s.stored = event.Ranges{at(5, 5), at(20, 5), at(40, 10)}
			s.reserve("a", 40, 12)
			s.expect("renewed", "a misses [50,52)")
			s.finish("a", Committed)
			s.reserve("b", 0, 5)
			s.expect("b misses [0,5)")
			s.expectCommitted("[5,10) [20,25) [40,52)")
		},
		"a renewal waits for all in flight and lets nobody in": func(s *scene) {
			s.reserve("a", 40, 10)
			s.reserve("b", 50, 10)
			s.reserve("c", 60, 10)
			s.expect("a misses [40,50)", "b misses [50,60)", "c misses [60,70)")
			s.finish("a", Unknown)
			s.reserve("d", 70, 1)
			s.reserve("e", 80, 1)
			s.expect()
			s.finish("b", Committed)
			s.expect()
			s.stored = event.Ranges{at(5, 5), at(20, 5), at(50, 10)}
			s.finish("c", Aborted)
			s.expect("renewed", "d misses [70,71)", "e misses [80,81)")
			s.expectCommitted("[5,10) [20,25) [50,60)")
		},
		"a second unknown outcome is renewed by the same renewal": func(s *scene) {
			s.reserve("a", 40, 10)
			s.reserve("b", 50, 10)
			s.expect("a misses [40,50)", "b misses [50,60)")
			s.finish("a", Unknown)
			s.reserve("a", 40, 10)
			s.expect()
			s.stored = event.Ranges{at(5, 5), at(20, 5), at(40, 20)}
			s.finish("b", Unknown)
			s.expect("renewed", "a misses ")
		},
		"a renewal that fails is repeated": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.finish("a", Unknown)
			s.failing = errStore
			for range 2 {
				s.reserve("a", 40, 10)
				s.expect("renewed", "a: the store does not answer")
			}
			s.stored, s.failing = event.Ranges{at(5, 5), at(20, 5)}, nil
			s.reserve("a", 40, 10)
			s.expect("renewed", "a misses [40,50)")
		},
		"a renewal that is canceled while it waits lets others renew": func(s *scene) {
			s.reserve("a", 40, 10)
			s.reserve("b", 50, 10)
			s.expect("a misses [40,50)", "b misses [50,60)")
			s.finish("a", Unknown)
			s.reserve("c", 60, 10)
			s.expect()
			s.reserve("d", 70, 10)
			s.expect()
			s.cancel["c"]()
			s.expect("c: context canceled")
			s.stored = event.Ranges{at(5, 5), at(20, 5)}
			s.finish("b", Aborted)
			s.expect("renewed", "d misses [70,80)")
		},
		"a store that was set back fails the owner": func(s *scene) {
			s.reserve("a", 40, 10)
			s.reserve("b", 50, 5)
			s.expect("a misses [40,50)", "b misses [50,55)")
			s.finish("a", Committed)
			s.finish("b", Unknown)
			s.stored = event.Ranges{at(5, 5), at(22, 20), at(50, 5)}
			s.reserve("c", 60, 1)
			s.expect("renewed", "c: committed events are lost: [20,22) [42,50)")
			s.reserve("d", 60, 1)
			s.expect("d: committed events are lost: [20,22) [42,50)")
			s.owner = s.ledger.TakeOver()
			s.reserve("e", 0, 100)
			s.expect("e misses [0,5) [10,22) [42,50) [55,100)")
		},
		"a fenced owner reserves nothing more": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.reserve("b", 40, 10)
			s.expect()
			old := s.owner
			s.owner = s.ledger.TakeOver()
			s.expect("b: another owner has taken over the partition")
			if err := old.Err(); err != ErrFenced {
				s.Errorf("the owner before has %v", err)
			}
			if err := s.owner.Err(); err != nil {
				s.Errorf("the owner has %v", err)
			}
			s.ledger.Fence()
			s.reserve("c", 60, 1)
			s.expect("c: another owner has taken over the partition")
		},
		"what a fenced owner has in flight counts": func(s *scene) {
			s.reserve("a", 40, 10)
			s.reserve("b", 60, 10)
			s.expect("a misses [40,50)", "b misses [60,70)")
			s.owner = s.ledger.TakeOver()
			s.drain("new")
			s.reserve("c", 50, 10)
			s.reserve("d", 45, 15)
			s.expect("c misses [50,60)")
			s.finish("c", Aborted)
			s.expect()
			s.finish("a", Committed)
			s.expect("d misses [50,60)")
			s.finish("d", Aborted)
			s.expect()
			s.finish("b", Aborted)
			s.expect("new has drained")
			s.expectCommitted("[5,10) [20,25) [40,50)")
		},
		"an unknown outcome of a fenced owner is renewed by the next": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.owner = s.ledger.TakeOver()
			s.finish("a", Unknown)
			s.stored = event.Ranges{at(5, 5), at(20, 5), at(40, 10)}
			s.reserve("b", 40, 10)
			s.expect("renewed", "b misses ")
		},
		"a caller that stops draining does not hold up others": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.drain("b")
			s.replace("c", 8, nil)
			s.expect()
			s.cancel["b"]()
			s.cancel["c"]()
			s.expect("b: context canceled", "c: context canceled")
			s.owner = s.ledger.TakeOver()
			s.reserve("d", 50, 10)
			s.expect("d misses [50,60)")
		},
		"replacing waits, fences, and lets nobody in": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.replace("b", 8, nil)
			s.expect()
			s.reserve("c", 60, 1)
			s.expect("c: another owner has taken over the partition")
			s.owner = s.ledger.TakeOver() // the replacement does not learn of it
			s.drain("new")
			s.reserve("d", 0, 100)
			s.replace("e", 9, nil)
			s.expect("d: another owner has taken over the partition")
			s.finish("a", Committed)
			s.expect("b replaced", "e replaced", "new has drained")
			if got := s.ledger.Committed(); got.String() != "[0,8)" && got.String() != "[0,9)" {
				s.Errorf("committed %v", got)
			}
		},
		"a new owner has what was replaced": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.replace("b", 8, nil)
			s.expect()
			s.owner = s.ledger.TakeOver()
			s.reserve("c", 0, 100)
			s.expect()
			s.finish("a", Committed)
			s.expect("b replaced", "c misses [8,100)")
		},
		"while one replaces, nobody has drained": func(s *scene) {
			s.gate = make(chan struct{})
			s.replace("a", 8, nil)
			s.expect("a replaces")
			s.owner = s.ledger.TakeOver()
			s.drain("new")
			s.drain("another")
			s.expect()
			s.gate <- struct{}{}
			s.expect("a replaced", "new has drained", "another has drained")
		},
		"one replaces after the other": func(s *scene) {
			s.gate = make(chan struct{})
			s.replace("a", 8, nil)
			s.expect("a replaces")
			s.replace("b", 9, nil)
			s.expect()
			s.gate <- struct{}{}
			s.expect("a replaced", "b replaces")
			s.expectCommitted("[0,8)")
			s.gate <- struct{}{}
			s.expect("b replaced")
			s.expectCommitted("[0,9)")
		},
		"a replacement that fails changes nothing": func(s *scene) {
			s.replace("a", 8, errStore)
			s.expect("a: the store does not answer")
			s.expectCommitted("[5,10) [20,25)")
			s.owner = s.ledger.TakeOver()
			s.reserve("b", 0, 10)
			s.expect("b misses [0,5)")
		},
		"a replacement may leave nothing": func(s *scene) {
			s.replace("a", 0, nil)
			s.expect("a replaced")
			s.expectCommitted("")
		},
		"an owner that failed stays so": func(s *scene) {
			s.reserve("a", 40, 10)
			s.expect("a misses [40,50)")
			s.reserve("b", 40, 10)
			s.expect()
			s.owner.Fail(errStore)
			s.expect("b: the store does not answer")
			s.owner.Fail(errors.New("later"))
			s.ledger.Fence()
			s.reserve("c", 60, 1)
			s.expect("c: the store does not answer")
			s.finish("a", Committed)
			s.expectCommitted("[5,10) [20,25) [40,50)")
		},
		"an empty range holds off renewals and nothing else": func(s *scene) {
			s.reserve("empty", 45, 0)
			s.reserve("same", 45, 0)
			s.reserve("a", 40, 10)
			s.expect("empty misses ", "same misses ", "a misses [40,50)")
			s.finish("a", Unknown)
			s.finish("same", Aborted)
			s.reserve("a", 40, 10)
			s.expect()
			s.stored = event.Ranges{at(5, 5), at(20, 5)}
			s.finish("empty", Committed)
			s.expect("renewed", "a misses [40,50)")
			s.expectCommitted("[5,10) [20,25)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, at(5, 5), at(20, 5))
				play(s)
				for _, cancel := range s.cancel { // ends calls that still wait
					cancel()
				}
			})
		})
	}
}

// TestFingerprintsPassThrough checks that a reservation has the fingerprints of its own
// range, and that the ledger keeps none, nor memory of its callers.
func TestFingerprintsPassThrough(t *testing.T) {
	fingerprinted := func(first uint64, fingerprints ...uint32) event.Range {
		return event.Range{First: first, Count: uint64(len(fingerprints)), Fingerprints: fingerprints}
	}
	begin := event.Ranges{fingerprinted(2, 1, 2), at(4, 1)}
	l := New(begin, nil)
	begin[0].First = 100
	asked := fingerprinted(0, 10, 11, 12, 13, 14, 15, 16)
	held, err := l.TakeOver().Reserve(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(event.Ranges{fingerprinted(0, 10, 11), fingerprinted(5, 15, 16)}, held.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	held.Finish(Committed)
	clear(asked.Fingerprints)
	if diff := cmp.Diff(event.Ranges{at(0, 7)}, l.Committed()); diff != "" {
		t.Errorf("committed (-want +got):\n%s", diff)
	}
	l.Committed()[0].Count = 3
	if got := l.Committed().String(); got != "[0,7)" {
		t.Errorf("a caller has changed the ledger to %s", got)
	}
}

func TestRowsOfMissingPositions(t *testing.T) {
	out := &event.Output{Range: at(10, 4), From: []uint32{0, 0, 1, 2, 2, 3}, Ends: make([]uint32, 6)}
	for _, test := range []struct {
		committed event.Ranges
		want      string
	}{
		{nil, "[0,6)"},
		{event.Ranges{at(0, 10), at(14, 5)}, "[0,6)"},
		{event.Ranges{at(0, 100)}, ""},
		{event.Ranges{at(10, 1)}, "[2,6)"},
		{event.Ranges{at(13, 1)}, "[0,5)"},
		{event.Ranges{at(11, 1)}, "[0,2) [3,6)"},
		{event.Ranges{at(11, 2)}, "[0,2) [5,6)"},
		{event.Ranges{at(10, 1), at(12, 1)}, "[2,3) [5,6)"},
		{event.Ranges{at(10, 1), at(12, 2)}, "[2,3)"},
	} {
		held, err := New(test.committed, nil).TakeOver().Reserve(t.Context(), out.Range)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for first, end := range held.Rows(out) {
			got = append(got, fmt.Sprintf("[%d,%d)", first, end))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("with %v committed: rows %s, want %s", test.committed, text, test.want)
		}
		for first := range held.Rows(out) { // stops early
			if want := test.want[1:2]; fmt.Sprint(first) != want {
				t.Errorf("with %v committed: the first row is %d, want %s", test.committed, first, want)
			}
			break
		}
		if none := (&event.Output{Range: out.Range}); test.want != "" {
			for first, end := range held.Rows(none) {
				t.Errorf("rows [%d,%d) of none", first, end)
			}
		}
	}
}

// TestAllocations bounds what a commit costs.
func TestAllocations(t *testing.T) {
	o := New(nil, nil).TakeOver()
	out := &event.Output{Range: at(0, 4), From: []uint32{0, 1, 2, 3}, Ends: make([]uint32, 4)}
	rows := 0
	n := testing.AllocsPerRun(100, func() {
		held, err := o.Reserve(t.Context(), out.Range)
		if err != nil {
			t.Fatal(err)
		}
		for first, end := range held.Rows(out) {
			rows += end - first
		}
		held.Finish(Committed)
		out.Range.First += out.Range.Count
	})
	if n > 2 { // the missing ranges of Reserve, and of Ranges.Add
		t.Errorf("%.0f allocations for a commit", n)
	}
	if rows != 4*101 {
		t.Errorf("%d rows", rows)
	}
}
