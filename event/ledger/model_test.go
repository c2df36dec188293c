package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testseed"
)

// space is the number of positions of the models.
const space = 60

func randomRange(r *rand.Rand) event.Range {
	first := r.Uint64N(space)
	return at(first, r.Uint64N(min(12, space-first)+1))
}

// A store is what a sink commits to: positions, each once, and commits whose sender no
// longer knows about them, which arrive until the next renewal fences them.
type store struct {
	testing.TB

	mu       sync.Mutex
	has      event.Ranges
	late     [][]event.Range
	inFlight event.Ranges // reserved
	failing  bool         // renewals fail
	renewed  int
}

// reserved checks that a new reservation has its positions alone.
func (s *store) reserved(r event.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.inFlight.Missing(r); r.Count > 0 && (len(got) != 1 || got[0].Count != r.Count) {
		s.Errorf("%v is reserved while %v is", r, s.inFlight)
	}
	s.inFlight.Add(r)
}

// released is called before Finish.
func (s *store) released(r event.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = without(s.inFlight, r)
}

// without returns the positions of rs that are not in r.
func without(rs event.Ranges, r event.Range) (rest event.Ranges) {
	var gone event.Ranges
	gone.Add(r)
	for _, have := range rs {
		for _, gap := range gone.Missing(have) {
			rest.Add(gap)
		}
	}
	return rest
}

// commit commits ranges. No position of them may be committed yet.
func (s *store) commit(ranges []event.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(ranges)
}

func (s *store) add(ranges []event.Range) {
	for _, r := range ranges {
		if both := s.has.Intersect(event.Ranges{r}); len(both) > 0 {
			s.Errorf("%v is committed twice", both)
		}
		s.has.Add(r)
	}
}

// postpone keeps a commit in flight whose sender has given up.
func (s *store) postpone(ranges []event.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = append(s.late, ranges)
}

// arrive commits one of the postponed.
func (s *store) arrive(r *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.late); n > 0 {
		i := r.IntN(n)
		s.add(s.late[i])
		s.late = slices.Delete(s.late, i, i+1)
	}
}

// renew is the ledger's way to learn what is committed.
func (s *store) renew(context.Context) (event.Ranges, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inFlight) > 0 {
		s.Errorf("renewed while %v is in flight", s.inFlight)
	}
	if s.failing {
		return nil, errStore
	}
	s.late = nil
	s.renewed++
	return slices.Clone(s.has), nil
}

// replace sets the position, as a person may do.
func (s *store) replace(next uint64) (event.Ranges, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inFlight) > 0 {
		s.Errorf("replaced while %v is in flight", s.inFlight)
	}
	s.late, s.has = nil, nil
	s.has.Add(at(0, next))
	return slices.Clone(s.has), nil
}

// setBack makes the store forget a range.
func (s *store) setBack(r event.Range) (lost event.Ranges) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost = s.has.Intersect(event.Ranges{r})
	s.has = without(s.has, r)
	return lost
}

// A model drives a ledger step by step. After each step, when everybody waits or is
// done, it compares the ledger with what it must have come to.
type model struct {
	*testing.T
	random *rand.Rand
	ledger *Ledger
	store  *store
	owner  *Owner

	mu      sync.Mutex
	known   event.Ranges // what the ledger must have
	unknown bool
	lost    bool // by a renewal of this step
	anyLost bool // by a renewal
	callers map[int]*caller
	next    int
	pending int // calls of Replace and Drain that have not returned
	history []string
}

// A caller has called Reserve.
type caller struct {
	r        event.Range
	owner    *Owner
	cancel   context.CancelFunc
	canceled bool
	held     *Reservation
	checked  bool
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{T: t, random: rand.New(rand.NewPCG(seed, 0)), store: &store{TB: t}, callers: map[int]*caller{}}
	m.ledger = New(nil, func(ctx context.Context) (event.Ranges, error) {
		found, err := m.store.renew(ctx)
		if err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, r := range m.known {
				m.lost = m.lost || len(found.Missing(r)) > 0
			}
			m.anyLost = m.anyLost || m.lost
			m.known, m.unknown = positions(found), false
		}
		return found, err
	})
	m.owner = m.ledger.TakeOver()
	return m
}

func (m *model) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

// step does one thing at random, and checks what comes of it.
func (m *model) step() {
	m.mu.Lock()
	m.lost = false
	owner := m.owner
	m.mu.Unlock()
	m.act()
	synctest.Wait()
	m.check()
	if m.lost && m.owner == owner && owner.Err() == nil {
		m.Error("the owner goes on although committed positions are lost")
	}
}

func (m *model) act() {
	switch n := m.random.IntN(40); {
	case n < 14:
		m.reserve()
	case n < 28:
		m.finishOne()
	case n < 30:
		m.cancel()
	case n < 33:
		m.note("a late commit arrives")
		m.store.arrive(m.random)
	case n < 35:
		m.note("take over")
		m.owner = m.ledger.TakeOver()
	case n == 35:
		m.note("fence")
		m.ledger.Fence()
	case n == 36:
		m.replace()
	case n == 37:
		m.note("drain")
		m.background(func() { _ = m.ledger.Drain(m.Context()) })
	case n == 38:
		m.store.mu.Lock()
		m.store.failing = !m.store.failing
		m.note("renewals fail: %v", m.store.failing)
		m.store.mu.Unlock()
	default:
		m.note("set back: %v", m.store.setBack(randomRange(m.random)))
	}
}

func (m *model) background(f func()) {
	m.mu.Lock()
	m.pending++
	m.mu.Unlock()
	go func() {
		f()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pending--
	}()
}

func (m *model) reserve() {
	ctx, cancel := context.WithCancel(m.Context())
	c := &caller{r: randomRange(m.random), owner: m.owner, cancel: cancel}
	m.next++
	id := m.next
	m.note("%d reserves %v", id, c.r)
	m.mu.Lock()
	m.callers[id] = c
	m.mu.Unlock()
	go func() {
		held, err := c.owner.Reserve(ctx, c.r)
		if err == nil {
			m.store.reserved(c.r)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if err == nil {
			c.held = &held
			return
		}
		delete(m.callers, id)
		_, lost := errors.AsType[*LostError](err)
		switch {
		case errors.Is(err, context.Canceled) && c.canceled, errors.Is(err, errStore), lost && m.anyLost,
			errors.Is(err, ErrFenced) && c.owner.Err() == ErrFenced:
		default:
			m.Errorf("%d: %v", id, err)
		}
	}()
}

// any returns a caller that holds a reservation, or one that waits.
func (m *model) any(holds bool) (id int, c *caller) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []int
	for id, c := range m.callers {
		if (c.held != nil) == holds {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	slices.Sort(ids)
	id = ids[m.random.IntN(len(ids))]
	return id, m.callers[id]
}

func (m *model) finishOne() {
	id, c := m.any(true)
	if c == nil {
		return
	}
	m.mu.Lock()
	delete(m.callers, id)
	m.mu.Unlock()
	how := Outcome(m.random.IntN(3))
	m.note("%d finishes: %v", id, how)
	switch how {
	case Committed:
		m.store.commit(c.held.Missing)
		m.mu.Lock()
		m.known.Add(c.r)
		m.mu.Unlock()
	case Unknown:
		m.mu.Lock()
		m.unknown = true
		m.mu.Unlock()
		switch m.random.IntN(3) {
		case 0:
			m.store.commit(c.held.Missing)
		case 1:
			m.store.postpone(c.held.Missing)
		}
	}
	m.store.released(c.r)
	c.held.Finish(how)
}

func (m *model) cancel() {
	id, c := m.any(false)
	if c == nil {
		return
	}
	m.note("%d is canceled", id)
	m.mu.Lock()
	c.canceled = true
	m.mu.Unlock()
	c.cancel()
}

func (m *model) replace() {
	next := m.random.Uint64N(space)
	m.note("replace by %d", next)
	m.background(func() {
		_ = m.ledger.Replace(m.Context(), func() (event.Ranges, error) {
			found, err := m.store.replace(next)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.known = slices.Clone(found)
			return found, err
		})
	})
}

// check compares the ledger with the model while nothing runs.
func (m *model) check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if got := m.ledger.Committed(); got.String() != m.known.String() {
		m.Errorf("committed %v, want %v", got, m.known)
	}
	var held event.Ranges
	holders, waiting := 0, []event.Range{}
	for id, c := range m.callers {
		if c.held == nil {
			waiting = append(waiting, c.r)
			continue
		}
		holders++
		held.Add(c.r)
		if want := event.Ranges(m.known.Missing(c.r)); !c.checked && c.held.Missing.String() != want.String() {
			m.Errorf("%d misses %v of %v, want %v", id, c.held.Missing, c.r, want)
		}
		c.checked = true
	}
	if holders == 0 && len(waiting)+m.pending > 0 {
		m.Errorf("%v and %d others wait for nobody", waiting, m.pending)
	}
	for _, r := range waiting {
		if !m.unknown && m.pending == 0 && len(held.Intersect(event.Ranges{r})) == 0 {
			m.Errorf("%v waits although %v is in flight", r, held)
		}
	}
}

// finishAll finishes all reservations that are held, and delivers every position.
func (m *model) finishAll() {
	for {
		synctest.Wait()
		if _, c := m.any(true); c == nil {
			break
		}
		m.finishOne()
	}
	m.store.failing = false
	for _, how := range []Outcome{Unknown, Committed} { // the renewal finds out whether the store was set back
		m.owner = m.ledger.TakeOver()
		held, err := m.owner.Reserve(m.Context(), at(0, space))
		if _, lost := errors.AsType[*LostError](err); lost {
			m.owner = m.ledger.TakeOver()
			held, err = m.owner.Reserve(m.Context(), at(0, space))
		}
		if err != nil {
			m.Fatal(err)
		}
		m.store.commit(held.Missing)
		held.Finish(how)
	}
	if got := m.store.has.String(); got != fmt.Sprintf("[0,%d)", space) {
		m.Errorf("at the end the store has %v", got)
	}
	if got := m.ledger.Committed().String(); got != fmt.Sprintf("[0,%d)", space) {
		m.Errorf("at the end the ledger has %v", got)
	}
}

// TestAgainstModel interleaves reservations, outcomes, renewals, fences and replacements
// step by step. A seed repeats the steps; only the order in which callers that wait for the
// same step continue may differ.
func TestAgainstModel(t *testing.T) {
	seed := testseed.Seed(t)
	for i := uint64(0); i < 300 && !t.Failed(); i++ {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, seed+i)
			for range 150 {
				if m.step(); t.Failed() {
					t.Fatalf("seed %d+%d after the steps\n%s", seed, i, m.lastSteps())
				}
			}
			if m.finishAll(); t.Failed() {
				t.Fatalf("seed %d+%d after the steps\n%s", seed, i, m.lastSteps())
			}
		})
	}
}

func (m *model) lastSteps() (text string) {
	for _, line := range m.history[max(0, len(m.history)-40):] {
		text += line + "\n"
	}
	return text
}

// TestConcurrentUse lets goroutines deliver the same positions with every outcome, while
// owners follow one another, until the store has each position once.
func TestConcurrentUse(t *testing.T) {
	seed := testseed.Seed(t)
	s := &store{TB: t}
	l := New(nil, s.renew)
	var owner atomic.Pointer[Owner]
	owner.Store(l.TakeOver())
	var takingOver sync.Mutex
	takeOver := func() {
		takingOver.Lock()
		defer takingOver.Unlock()
		owner.Store(l.TakeOver())
	}
	var group sync.WaitGroup
	for g := range uint64(8) {
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, g))
			for range 1500 {
				s.deliver(r, owner.Load())
				switch r.IntN(60) {
				case 0:
					takeOver()
				case 1:
					if err := l.Replace(t.Context(), func() (event.Ranges, error) { return s.replace(r.Uint64N(space)) }); err != nil {
						t.Error(err)
					}
					takeOver()
				}
			}
		})
	}
	group.Wait()
	held, err := l.TakeOver().Reserve(t.Context(), at(0, space))
	if err != nil {
		t.Fatal(err)
	}
	s.commit(held.Missing)
	held.Finish(Committed)
	want := fmt.Sprintf("[0,%d)", space)
	if got := l.Committed().String(); s.has.String() != want || got != want {
		t.Errorf("at the end the store has %v, the ledger %v", s.has, got)
	}
	if s.renewed == 0 {
		t.Error("nothing was renewed")
	}
}

// deliver reserves a range and finishes the reservation at random.
func (s *store) deliver(r *rand.Rand, o *Owner) {
	wanted := randomRange(r)
	held, err := o.Reserve(s.Context(), wanted)
	if err != nil {
		if !errors.Is(err, ErrFenced) {
			s.Error(err)
		}
		return
	}
	s.reserved(wanted)
	how := Outcome(r.IntN(3))
	switch {
	case how == Committed || how == Unknown && r.IntN(2) == 0:
		s.commit(held.Missing)
	case how == Unknown && r.IntN(2) == 0:
		s.postpone(held.Missing)
	}
	s.arrive(r)
	s.released(wanted)
	held.Finish(how)
}
