package pool

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/internal/testseed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRace has many goroutines do everything at the same time.
func TestRace(t *testing.T) {
	for _, s := range []Settings{
		{}, {Core: 1, Max: 1}, {Core: 2, Max: 4}, {Core: 2, Max: 4, Eager: true, Idle: time.Millisecond},
		{Core: -1, Max: 8, Eager: true, Idle: -1}, {Core: 2, Max: -1, Eager: true, Memory: 64 << 10},
	} {
		t.Run(s.String(), func(t *testing.T) { race(t, s) })
	}
}

func race(t *testing.T, s Settings) {
	p := New(s)
	fail := func(text string) { t.Error(text) }
	maker := &fakes{closesHeld: true, max: func() int { return s.withDefaults().Max }, wrong: fail}
	keep := p.Join("key", func() Maker { return maker }) // others come and go
	var group sync.WaitGroup
	var served atomic.Int64
	seed := testseed.Seed(t)
	for caller := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, caller))
		group.Go(func() {
			g := p.Join("key", func() Maker { t.Error("a second maker"); return maker })
			defer g.Leave()
			for range 200 {
				served.Add(use(t, g, random))
			}
		})
	}
	resizes := make(chan struct{})
	group.Go(func() {
		for {
			select {
			case <-resizes:
				return
			case <-time.After(time.Millisecond):
				p.Resize(s)
			}
		}
	})
	for end := time.Now().Add(2 * time.Minute); served.Load() < 100*100; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d calls were served, stats are %+v", served.Load(), p.Stats())
		}
	}
	close(resizes)
	group.Wait()
	// The pool may just release an idle VM, so that the two counts agree a moment later.
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got, live := p.Stats(), maker.live.Load()
		if got.InUse+got.Suspended+got.Waiting == 0 && int64(got.Made-got.Released-got.Discarded) == live {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("stats are %+v, %d live", got, live)
		}
	}
	keep.Leave()
	if maker.live.Load() != 0 || !maker.closed.Load() || p.Stats().Memory != 0 {
		t.Errorf("%d VMs are left, stats are %+v", maker.live.Load(), p.Stats())
	}
}

// TestLeaveClosesUnderTheLock: no group closes while a caller holds the lock. Otherwise Leave and
// the last VM that is closed would both report the group empty, which is a panic.
func TestLeaveClosesUnderTheLock(t *testing.T) {
	p := New(Settings{})
	g := p.Join("key", func() Maker { return &fakes{wrong: func(text string) { t.Error(text) }} })
	joined := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.groups["key"] != nil
	}
	g.mu.Lock()
	var group sync.WaitGroup
	group.Go(g.Leave)
	for end := time.Now().Add(time.Minute); joined() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // it comes to the lock
	if g.closed || joined() {
		t.Errorf("the group is closed: %v, joined: %v; its lock is held", g.closed, joined())
	}
	g.mu.Unlock()
	group.Wait()
	if !g.closed {
		t.Error("the group is not closed")
	}
}

// use is one call that may be given up, waits inside, or breaks its VM. It returns
// how many VMs it got.
func use(t *testing.T, g *Group, random *rand.Rand) int64 {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if random.IntN(10) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(200))*time.Microsecond)
		defer cancel()
	}
	m, err := g.Acquire(ctx)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return 1
	}
	f := m.VM.(*fake)
	hold := func() {
		if f.held.Add(1) != 1 || f.closed.Load() {
			t.Error("two hold one VM, or it is closed")
		}
		f.runs.Add(1)
	}
	hold()
	switch random.IntN(20) {
	case 0:
		f.broken.Store(true)
	case 1, 2, 3:
		f.held.Add(-1)
		m.Suspend()
		time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
		m.Resume()
		hold()
	case 4:
		time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
	case 5:
		f.size.Store(random.Int64N(1 << 18))
	}
	f.held.Add(-1)
	m.Release()
	return 1
}

// TestNobodyStarves: a waiting caller gets a VM although another caller never stops using it.
func TestNobodyStarves(t *testing.T) {
	p := New(Settings{Core: 1, Max: 1})
	g := p.Join("key", func() Maker {
		return &fakes{closesHeld: true, max: func() int { return 1 }, wrong: func(s string) { t.Error(s) }}
	})
	defer g.Leave()
	stop := make(chan struct{})
	var group sync.WaitGroup
	var others atomic.Int64 // their calls
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				m, err := g.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				others.Add(1)
				time.Sleep(10 * time.Microsecond) // so that the VM is nearly never free
				m.Release()
			}
		})
	}
	defer group.Wait()
	defer close(stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for others.Load() < 100 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	for i := range 100 {
		m, err := g.Acquire(ctx)
		if err != nil {
			t.Fatalf("after %d calls: %v", i, err)
		}
		m.Release()
	}
}

// TestHandsOverByTurns: those who wait for any VM and calls that wait inside of one
// get it by turns, whenever it is handed over.
func TestHandsOverByTurns(t *testing.T) {
	g := New(Settings{Core: 1, Max: 1}).Join("key", func() Maker {
		return &fakes{max: func() int { return 1 }, wrong: func(s string) { t.Error(s) }}
	})
	defer g.Leave()
	m, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	for range 4 {
		for _, q := range []*queue{&m.waiters, &g.waiters} {
			q.push(&waiter{handoff: make(chan *Member, 1)}, false)
		}
	}
	for left := int32(4); left > 0; left-- {
		for range 2 {
			if m.handedOverAt = time.Now().Add(-handOverAfter); !g.handOver(m, false) {
				t.Fatal("nobody got the VM")
			}
		}
		if in, out := m.waiters.length.Load(), g.waiters.length.Load(); in != left-1 || out != left-1 {
			t.Fatalf("%d wait inside and %d for any VM, want %d each", in, out, left-1)
		}
		if m.uses += handOverEvery; g.handOver(m, false) {
			t.Fatal("the VM was handed over at once again")
		}
	}
	g.waiters.push(&waiter{handoff: make(chan *Member, 1)}, false)
	for _, broken := range []bool{true, false} { // none but calls inside get one that is broken
		m.waiters.push(&waiter{handoff: make(chan *Member, 1)}, false)
		m.handedOverAt, m.handedToResume = time.Time{}, broken
		if !g.handOver(m, broken) || m.waiters.length.Load() != 0 {
			t.Fatal("the call inside did not get the VM")
		}
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	g := New(Settings{}).Join("key", func() Maker {
		return &fakes{closesHeld: true, max: func() int { return 100 }, wrong: func(s string) { t.Error(s) }}
	})
	defer g.Leave()
	per := testing.AllocsPerRun(1000, func() {
		m, err := g.Acquire(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		m.Release()
	})
	if per > 0 {
		t.Errorf("%v allocations", per)
	}
}

// TestGrowsWhileVMsWait lets a pool grow when what is in use waits, not when it
// computes.
func TestGrowsWhileVMsWait(t *testing.T) {
	cores := runtime.GOMAXPROCS(0)
	g := New(Settings{}).Join("key", func() Maker {
		return &fakes{closesHeld: true, max: func() int { return 8 * cores }, wrong: func(s string) { t.Error(s) }}
	})
	defer g.Leave()
	var all []*Member
	for range cores {
		m, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.VM.(*fake).computing.Store(true)
		all = append(all, m)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*shortTick)
	defer cancel()
	if _, err := g.Acquire(short); err == nil {
		t.Error("the pool grew although all cores compute")
	}
	all[0].VM.(*fake).computing.Store(false)
	m, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append(all, m) {
		m.Release()
	}
	if s := g.Pool().Stats(); s.Made != uint64(cores)+1 || s.Waits == 0 || s.WaitTime < 10*shortTick {
		t.Errorf("stats are %+v", s)
	}
}

// TestIdleVMsAreClosed lets a pool that has had no more than its core get VMs beyond it: they end
// when they have been idle.
func TestIdleVMsAreClosed(t *testing.T) {
	made := &fakes{max: func() int { return 4 }, wrong: func(s string) { t.Error(s) }}
	p := New(Settings{Core: 1, Max: 4, Eager: true, Idle: 5 * shortTick})
	g := p.Join("key", func() Maker { return made })
	defer g.Leave()
	var all []*Member
	for i := range 3 {
		m, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		for until := time.Now().Add(10 * time.Second); i == 0 && p.monitored.Load(); time.Sleep(shortTick) {
			if time.Now().After(until) {
				t.Fatal("the monitor runs although no VM is beyond the core")
			}
		}
	}
	for _, m := range all {
		m.Release()
	}
	for until := time.Now().Add(10 * time.Second); made.live.Load() > 1; time.Sleep(shortTick) {
		if time.Now().After(until) {
			t.Fatalf("%d VMs stay open", made.live.Load())
		}
	}
}

func BenchmarkAcquire(b *testing.B) {
	g := New(Settings{}).Join("key", func() Maker {
		return &fakes{closesHeld: true, max: func() int { return 100 }, wrong: func(s string) { b.Error(s) }}
	})
	defer g.Leave()
	b.ReportAllocs()
	b.SetParallelism(2000)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m, err := g.Acquire(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			m.Release()
		}
	})
}
