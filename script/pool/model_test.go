package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A fake is a VM that knows what may not happen to it.
type fake struct {
	maker     *fakes
	held      atomic.Int32
	suspended int
	broken    atomic.Bool
	closed    atomic.Bool
	computing atomic.Bool
	runs      atomic.Uint32
	size      atomic.Int64
}

func (f *fake) Close() {
	if f.held.Load() > 0 && !f.maker.closesHeld || f.closed.Swap(true) {
		f.maker.wrong("a VM was closed twice or while somebody held it")
	}
	f.maker.live.Add(-1)
}
func (f *fake) Broken() bool             { return f.broken.Load() }
func (f *fake) Memory() int              { return int(f.size.Load()) }
func (f *fake) Progress() (uint32, bool) { return f.runs.Load(), f.computing.Load() }

// fakes makes them for one script.
type fakes struct {
	closesHeld bool // their holder is the one who closes
	live       atomic.Int64
	max        func() int
	closed     atomic.Bool
	fails      atomic.Bool
	wrong      func(string)
}

var errOpen = errors.New("no VM today")

func (m *fakes) Open(context.Context) (VM, error) {
	if m.fails.Load() {
		return nil, errOpen
	}
	if m.live.Add(1) > int64(max(1, m.max())) {
		m.wrong("there are more VMs than the maximum")
	}
	f := &fake{maker: m}
	f.size.Store(1000)
	return f, nil
}

func (m *fakes) Close() {
	if m.live.Load() != 0 {
		m.wrong("the maker was closed before its VMs")
	}
	m.closed.Store(true)
}

// A caller is somebody in the model: he waits, or holds a VM, or has suspended a call.
type caller struct {
	cancel context.CancelFunc
	member *Member
	err    error
	done   atomic.Bool
}

func (c *caller) vm() *fake { return c.member.VM.(*fake) }

// A model is a plain picture of a pool with one script, beside the pool itself.
type model struct {
	t        *rapid.T
	pool     *Pool
	settings Settings // in full
	group    *Group
	maker    *fakes
	waiting  []*caller // for any VM, in their order
	resuming []*caller
	holding  []*caller
	asleep   []*caller // that have suspended a call
	extended int       // calls that go on without a VM
}

func newModel(t *rapid.T) *model {
	m := &model{t: t, pool: New(drawSettings(t))}
	m.settings = *m.pool.settings.Load()
	m.join()
	return m
}

func drawSettings(t *rapid.T) Settings {
	return Settings{
		Core: rapid.IntRange(-1, 3).Draw(t, "core"), Max: rapid.SampledFrom([]int{1, 2, 3, 5, -1}).Draw(t, "max"),
		Eager: rapid.Bool().Draw(t, "eager"), Idle: rapid.SampledFrom([]time.Duration{-1, 20 * time.Millisecond, 0}).Draw(t, "idle"),
	}
}

func (m *model) join() {
	m.maker = &fakes{closesHeld: true, max: func() int { return m.pool.settings.Load().Max }, wrong: func(s string) { panic(s) }}
	m.group = m.pool.Join("key", func() Maker { return m.maker })
}

// pick takes a random caller out of a list.
func (m *model) pick(list *[]*caller) *caller {
	if len(*list) == 0 {
		m.t.Skip("there is nobody")
	}
	i := rapid.IntRange(0, len(*list)-1).Draw(m.t, "who")
	c := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return c
}

func (m *model) acquire() {
	ctx, cancel := context.WithCancel(context.Background())
	c := &caller{cancel: cancel}
	m.waiting = append(m.waiting, c)
	go func() {
		c.member, c.err = m.group.Acquire(ctx)
		c.done.Store(true)
	}()
	m.settle(false)
}

func (m *model) acquireForAWhile() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rapid.IntRange(1, 30).Draw(m.t, "ms"))*time.Millisecond)
	c := &caller{cancel: cancel}
	m.waiting = append(m.waiting, c)
	go func() {
		c.member, c.err = m.group.Acquire(ctx)
		c.done.Store(true)
	}()
	m.settle(false)
}

func (m *model) release() {
	c := m.pick(&m.holding)
	c.vm().held.Add(-1)
	c.member.Release()
	c.cancel()
	m.settle(false)
}

func (m *model) breakAndRelease() {
	c := m.pick(&m.holding)
	c.vm().broken.Store(true)
	c.vm().held.Add(-1)
	c.member.Release()
	c.cancel()
	m.settle(false)
}

func (m *model) extend() {
	if len(m.holding) == 0 {
		m.t.Skip("nobody holds a VM")
	}
	m.group.Extend()
	m.extended++
	m.release()
}

func (m *model) finish() {
	if m.extended == 0 {
		m.t.Skip("there is none")
	}
	m.extended--
	m.group.Done()
}

func (m *model) suspend() {
	c := m.pick(&m.holding)
	c.vm().suspended++
	c.vm().held.Add(-1)
	c.member.Suspend()
	m.asleep = append(m.asleep, c)
	m.settle(false)
}

func (m *model) resume() {
	c := m.pick(&m.asleep)
	c.done.Store(false)
	m.resuming = append(m.resuming, c)
	go func() {
		c.member.Resume()
		c.done.Store(true)
	}()
	m.settle(false)
}

func (m *model) cancel() {
	c := m.pick(&m.waiting)
	c.cancel()
	synctest.Wait()
	if !c.done.Load() || !errors.Is(c.err, context.Canceled) && !errors.Is(c.err, context.DeadlineExceeded) {
		m.t.Fatalf("a caller whose context ended got %v", c.err)
	}
	m.settle(true)
}

func (m *model) compute() {
	if len(m.holding) == 0 {
		m.t.Skip("nobody holds a VM")
	}
	f := m.holding[rapid.IntRange(0, len(m.holding)-1).Draw(m.t, "who")].vm()
	f.computing.Store(!f.computing.Load())
	f.runs.Add(1)
}

func (m *model) grow() {
	if len(m.holding) == 0 {
		m.t.Skip("nobody holds a VM")
	}
	m.holding[0].vm().size.Store(rapid.Int64Range(0, 1<<20).Draw(m.t, "bytes"))
}

func (m *model) pass() {
	time.Sleep(time.Duration(rapid.IntRange(1, 60).Draw(m.t, "ms")) * time.Millisecond)
	m.settle(true)
}

func (m *model) resize() {
	m.pool.Resize(drawSettings(m.t))
	m.settings = *m.pool.settings.Load()
	m.settle(true)
}

func (m *model) fail() {
	m.maker.fails.Store(true)
	m.acquire()
	m.maker.fails.Store(false)
	if len(m.waiting) > 0 { // they go on when there is reason to
		m.t.Skip("somebody waits")
	}
}

// settle lets all callers run until they wait, and notes the VMs that they got.
func (m *model) settle(mayEnd bool) {
	synctest.Wait()
	m.resuming = slices.DeleteFunc(m.resuming, func(c *caller) bool {
		if c.done.Load() {
			c.vm().suspended--
			m.holds(c)
		}
		return c.done.Load()
	})
	skipped := false
	m.waiting = slices.DeleteFunc(m.waiting, func(c *caller) bool {
		if !c.done.Load() {
			skipped = true
			return false
		}
		if c.err != nil {
			ended := errors.Is(c.err, context.DeadlineExceeded) || errors.Is(c.err, context.Canceled)
			if !ended && !errors.Is(c.err, errOpen) && !mayEnd {
				m.t.Fatalf("a caller got %v", c.err)
			}
			return true
		}
		if skipped {
			m.t.Fatal("a caller got a VM before one who waited longer")
		}
		if c.vm().broken.Load() {
			m.t.Fatal("a caller got a broken VM")
		}
		m.holds(c)
		return true
	})
}

func (m *model) holds(c *caller) {
	if c.vm().held.Add(1) != 1 || c.vm().closed.Load() {
		m.t.Fatal("two hold one VM, or it is closed")
	}
	m.holding = append(m.holding, c)
}

// check holds the pool to the model.
func (m *model) check(t *rapid.T) {
	m.settle(true)
	s := m.pool.Stats()
	live := int(m.maker.live.Load())
	want := Stats{
		Scripts: 1, InUse: len(m.holding), Idle: live - len(m.holding), Waiting: len(m.waiting) + len(m.resuming),
		Suspended: len(m.asleep) + len(m.resuming),
	}
	got := Stats{Scripts: s.Scripts, InUse: s.InUse, Idle: s.Idle, Waiting: s.Waiting, Suspended: s.Suspended}
	if got != want {
		t.Fatalf("stats are %+v, want %+v", got, want)
	}
	if n := s.Made - s.Released - s.Discarded; n != uint64(live) {
		t.Fatalf("made %d, released %d, discarded %d, but %d live", s.Made, s.Released, s.Discarded, live)
	}
	m.checkWaiting(t, live)
}

// checkWaiting: nobody waits for what there is, or what might be made.
func (m *model) checkWaiting(t *rapid.T, live int) {
	for _, c := range m.resuming {
		if c.vm().held.Load() == 0 {
			t.Fatal("a call waits for a VM that nobody holds")
		}
	}
	if len(m.waiting) == 0 {
		return
	}
	free := 0
	for _, one := range *m.group.members.Load() {
		if f := one.VM.(*fake); f.held.Load() == 0 && !f.broken.Load() {
			free++
		}
	}
	if free > 0 {
		t.Fatalf("%d wait although %d VMs are free", len(m.waiting), free)
	}
	if bound := m.settings.Max; live < bound && (m.settings.Eager || live < m.settings.Core || live == 0) {
		t.Fatalf("%d wait although there are %d VMs of %d", len(m.waiting), live, bound)
	}
}

// unload gives everything back and frees the script.
func (m *model) unload() {
	left := make(chan struct{})
	go func() {
		m.group.Leave()
		close(left)
	}()
	synctest.Wait()
	for _, c := range m.waiting {
		if !c.done.Load() || !errors.Is(c.err, ErrClosed) && c.err != nil && !errors.Is(c.err, context.DeadlineExceeded) && !errors.Is(c.err, errOpen) {
			m.t.Fatalf("a caller of an unloaded script got %v", c.err)
		}
	}
	m.settle(true)
	for len(m.holding)+len(m.resuming)+len(m.asleep) > 0 {
		for len(m.holding) > 0 {
			m.release()
		}
		if len(m.asleep) > 0 {
			m.resume()
		}
	}
	for ; m.extended > 0; m.finish() {
		if synctest.Wait(); m.maker.closed.Load() {
			m.t.Fatal("a script is unloaded although calls of it go on")
		}
	}
	<-left
	if m.maker.live.Load() != 0 || !m.maker.closed.Load() {
		m.t.Fatalf("%d VMs are left of an unloaded script", m.maker.live.Load())
	}
	if s := m.pool.Stats(); s.Memory != 0 || s.Scripts != 0 {
		m.t.Fatalf("stats of an empty pool are %+v", s)
	}
	if _, err := m.group.Acquire(context.Background()); !errors.Is(err, ErrClosed) {
		m.t.Fatalf("a script that is unloaded gave %v", err)
	}
	m.join()
}

// TestModel makes thousands of random steps, in a time of their own.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) { // it asks T for what T does not say here
			m := newModel(t)
			defer func() {
				for _, c := range slices.Concat(m.waiting, m.holding, m.asleep) {
					c.cancel()
				}
			}()
			t.Repeat(map[string]func(*rapid.T){
				"acquire": m.step(m.acquire), "acquire, too": m.step(m.acquire), "acquire for a while": m.step(m.acquireForAWhile),
				"release": m.step(m.release), "break": m.step(m.breakAndRelease), "suspend": m.step(m.suspend), "resume": m.step(m.resume),
				"extend": m.step(m.extend), "finish": m.step(m.finish),
				"cancel": m.step(m.cancel), "compute": m.step(m.compute), "grow": m.step(m.grow), "pass": m.step(m.pass),
				"resize": m.step(m.resize), "unload": m.step(m.unload), "fail": m.step(m.fail), "": m.check,
			})
			m.step(m.unload)(t)
			m.group.Leave()
			time.Sleep(2 * shortTick)
			if synctest.Wait(); m.pool.monitored.Load() {
				t.Fatal("there is a tender, although there is nothing to look at")
			}
		})
	})
}

func (m *model) step(f func()) func(*rapid.T) {
	return func(t *rapid.T) {
		m.t = t
		f()
	}
}

// TestIdleCountsFromTheLastUse: a VM beyond the core stays for the idle time after its last use,
// however long it was held before, and however short its uses are.
func TestIdleCountsFromTheLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle, tick = time.Minute, time.Second
		maker := &fakes{max: func() int { return 2 }, wrong: func(s string) { t.Error(s) }}
		g := New(Settings{Core: 1, Max: 2, Eager: true, Idle: idle}).Join("key", func() Maker { return maker })
		defer g.Leave()
		acquire := func() *Member {
			t.Helper()
			m, err := g.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		expect := func(when string, want int64) {
			t.Helper()
			if synctest.Wait(); maker.live.Load() != want {
				t.Fatalf("%s there are %d VMs, want %d", when, maker.live.Load(), want)
			}
		}
		first, second := acquire(), acquire()
		time.Sleep(10 * idle) // held, and waiting
		second.Release()
		time.Sleep(idle - 2*tick)
		expect("after a long hold", 2)
		for range 3 {
			m := acquire()
			m.VM.(*fake).runs.Add(1)
			m.Release()
			time.Sleep(idle - 2*tick)
			expect("after a short use", 2)
		}
		time.Sleep(4 * tick)
		expect("after the idle time", 1)
		first.Release()
	})
}

// TestMemoryMayBeUsedUp: VMs that take all of the bounded memory and no more stay open.
func TestMemoryMayBeUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maker := &fakes{max: func() int { return 2 }, wrong: func(s string) { t.Error(s) }}
		settings := Settings{Core: 1, Max: 2, Eager: true, Idle: time.Hour, Memory: 2 * 1000}
		p := New(settings)
		g := p.Join("key", func() Maker { return maker })
		defer g.Leave()
		var all []*Member
		for range 2 {
			m, err := g.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		for _, m := range all {
			m.Release()
		}
		for _, test := range []struct {
			memory int
			want   int64 // VMs
		}{{2 * 1000, 2}, {2*1000 - 1, 1}} {
			settings.Memory = test.memory
			p.Resize(settings)
			time.Sleep(10 * longTick)
			if synctest.Wait(); maker.live.Load() != test.want {
				t.Errorf("in %d bytes there are %d VMs of 1000 bytes, want %d", test.memory, maker.live.Load(), test.want)
			}
		}
	})
}

func TestSettings(t *testing.T) {
	for _, test := range []struct {
		settings Settings
		want     string
	}{
		{Settings{}, "adaptive"},
		{Settings{Core: 2, Max: 2}, "fixed 2"},
		{Settings{Core: 2, Max: 8, Eager: true}, "scaling 2 to 8"},
		{Settings{Core: 2, Max: -1, Eager: true}, "scaling from 2"},
		{Settings{Core: -1, Max: -1, Eager: true}, "cached"},
		{Settings{Core: -1, Max: -1, Eager: true, Idle: -1}, "per call"},
		{Settings{Core: 2, Max: 8}, "adaptive 2 to 8"},
	} {
		if got := fmt.Sprint(test.settings); got != test.want {
			t.Errorf("%+v is called %q, want %q", test.settings, got, test.want)
		}
	}
}
