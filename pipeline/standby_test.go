//go:build cgo && lmdb

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/changelog"
	"github.com/perigeedb/perigee/source"
)

// A standbyBed is workers that share the units of a state: each partition of the source has one. Its
// home is a changelog that all use, beside a store of leases.
type standbyBed struct {
	t       *testing.T
	source  *memorySource
	store   *changelog.Store
	leases  *memoryLeases
	workers map[string]*standbyWorker
	shared  bool // all partitions have one unit
	standby int
}

// A sharedHome is one worker's view of a home that keeps leases. Once it is cut off, leases and
// notes of the worker stay as they are.
type sharedHome struct {
	*changelog.Sink
	leases *memoryLeases
	cutOff atomic.Bool
}

var errCutOff = errors.New("connection refused")

func (h *sharedHome) Traits() sink.Traits {
	traits := h.Sink.Traits()
	traits.Leases = h
	return traits
}

func (h *sharedHome) AcquireLeases(ctx context.Context, partitions []string, worker string, d time.Duration) ([]string, error) {
	if h.cutOff.Load() {
		return make([]string, len(partitions)), errCutOff
	}
	return h.leases.AcquireLeases(ctx, partitions, worker, d)
}

func (h *sharedHome) ReleaseLeases(ctx context.Context, partitions []string, worker string) error {
	if h.cutOff.Load() {
		return errCutOff
	}
	return h.leases.ReleaseLeases(ctx, partitions, worker)
}

func (h *sharedHome) Heartbeat(ctx context.Context, worker string, d time.Duration) (int, error) {
	if h.cutOff.Load() {
		return 0, errCutOff
	}
	return h.leases.Heartbeat(ctx, worker, d)
}

type standbyWorker struct {
	*Pipeline
	home   *sharedHome
	folder string
	kill   context.CancelFunc
	ended  chan error
}

// standbyLeaseTime is the lease of the test's workers.
const standbyLeaseTime = time.Second

func newStandbyBed(t *testing.T, partitions int) *standbyBed {
	t.Helper()
	store, err := changelog.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	b := &standbyBed{t: t, store: store, leases: newMemoryLeases(), workers: map[string]*standbyWorker{}, standby: 1}
	b.source = newSlowSource(partitions)
	t.Cleanup(func() {
		for name := range b.workers {
			b.stop(name)
		}
	})
	return b
}

// A countingScript counts the events of each unit in its state.
type countingScript struct{ testScript }

func (s countingScript) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	_, err := in.State.(*state.Delivery).Tx().Increment(nodedb.Name("^n"), int64(in.Len()))
	return errors.Join(err, s.testScript.Run(ctx, in, res))
}

// start starts a worker in a folder, which may have copies.
func (b *standbyBed) start(name, folder string) {
	b.t.Helper()
	w := &standbyWorker{home: &sharedHome{Sink: b.store.Sink("test", nil), leases: b.leases}, folder: folder, ended: make(chan error, 1)}
	letters, err := deadletter.Open(b.t.TempDir())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { letters.Close() })
	w.Pipeline = New(Config{
		Name: "test", Source: b.source, Script: countingScript{testScript{main: passThrough}}, DeadLetters: letters,
		Sinks:  []Sink{{Name: "changelog", Sink: w.home, Guarantee: sink.ExactlyOnce}},
		Limits: source.Limits{Events: 10, Bytes: 1 << 20}, Log: slog.New(slog.DiscardHandler),
		Worker: name, Lease: standbyLeaseTime,
		State: &state.Config{
			Name: "users", Shared: b.shared, Home: w.home, HomeName: "changelog", Folder: filepath.Join(folder, "users"),
			FlushAge: 20 * time.Millisecond, Standby: b.standby, KeepNotes: time.Minute, Log: slog.New(slog.DiscardHandler),
		},
	})
	var ctx context.Context
	ctx, w.kill = context.WithCancel(context.Background())
	go func() { w.ended <- w.Run(ctx) }()
	b.workers[name] = w
}

// stop stops a worker as if it were killed: it keeps its leases.
func (b *standbyBed) stop(name string) {
	w := b.workers[name]
	w.home.cutOff.Store(true)
	w.kill()
	<-w.ended
	delete(b.workers, name)
}

// owners returns the owner of each open unit.
func (b *standbyBed) owners() map[string]string {
	owners := map[string]string{}
	for name, w := range b.workers {
		for _, unit := range w.OwnedUnits() {
			owners[unit] = name
		}
	}
	return owners
}

func (b *standbyBed) followed() (units []string) {
	for _, w := range b.workers {
		for _, unit := range w.followers.names() {
			if w.followers.isReady(unit) {
				units = append(units, unit)
			}
		}
	}
	slices.Sort(units)
	return units
}

func (b *standbyBed) eventually(what string, happened func() bool) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("not within 20 s: %s; owners %v, followed %v, leases %v", what, b.owners(), b.followed(), b.leases.names())
		}
	}
}

// counts returns how many units each worker owns.
func (b *standbyBed) counts() map[string]int {
	counts := map[string]int{}
	for _, owner := range b.owners() {
		counts[owner]++
	}
	return counts
}

// expectProgress waits until each unit counts further events.
func (b *standbyBed) expectProgress() {
	b.t.Helper()
	before := map[string]int64{}
	for round := range 2 {
		for i, partition := range b.source.partitions {
			unit := partition.name
			b.eventually(fmt.Sprintf("unit %s goes on, round %d, partition %d", unit, round, i), func() bool {
				n, ok := b.count(unit)
				if ok && round == 0 {
					before[unit] = n
				}
				return ok && (round == 0 || n > before[unit])
			})
		}
	}
}

func (b *standbyBed) count(unit string) (n int64, ok bool) {
	for _, w := range b.workers {
		owned, err := w.ViewOwned(b.t.Context(), unit, func(tx *nodedb.Tx) error {
			v, err := tx.Get(nodedb.Name("^n"))
			n, _ = v.Int()
			return err
		})
		if owned && err == nil {
			return n, true
		}
	}
	return 0, false
}

// TestStandbyWorkers lets workers follow the units of each other. A worker that joins gets units of
// one that has more than its share; those of one that is killed go to its followers.
func TestStandbyWorkers(t *testing.T) {
	t.Parallel()
	b := newStandbyBed(t, 4)
	units := []string{"a", "b", "c", "d"}
	b.start("first", t.TempDir())
	b.eventually("the first has all units", func() bool { return b.counts()["first"] == 4 })
	b.expectProgress()
	b.start("second", t.TempDir())
	b.eventually("each has two, and follows the others", func() bool {
		c := b.counts()
		return c["first"] == 2 && c["second"] == 2 && slices.Equal(b.followed(), units)
	})
	b.expectProgress()
	folder := b.workers["first"].folder
	b.stop("first")
	b.eventually("the second takes over", func() bool { return b.counts()["second"] == 4 })
	b.expectProgress()
	b.start("first", folder)
	b.eventually("the first gets two back", func() bool {
		c := b.counts()
		return c["first"] == 2 && c["second"] == 2 && slices.Equal(b.followed(), units)
	})
	b.start("third", t.TempDir())
	b.expectProgress()
	b.eventually("all units have an owner and a follower", func() bool { return len(b.owners()) == 4 && slices.Equal(b.followed(), units) })
	for _, w := range b.workers {
		w.Drain()
	}
	for name, w := range b.workers {
		if err := <-w.ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.kill()
	}
	clear(b.workers)
	if left := b.leases.names(); len(left) != 0 {
		t.Errorf("leases are left behind: %v", left)
	}
}
