package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/sink"
)

// A leaseManager assigns the partitions whose leases this worker holds. It renews
// leases, gives up more than the worker's fair share and takes over free ones.
type leaseManager struct {
	s       *supervisor
	store   sink.LeaseStore
	worker  string
	lease   time.Duration
	held    map[string]*heldLease
	standby standbyManager
	renewed time.Time // when leases were last renewed
	failing bool      // the last attempt failed
}

// A heldLease is a lease and the assignments that work under it: that of a partition, or those
// of a unit. Its timer cancels them before the lease expires.
type heldLease struct {
	mu          sync.Mutex // guards the fields below for the timer
	assignments []*assignment
	lost        bool
	expiry      *time.Timer
}

// cancel cancels the assignments.
func (h *heldLease) cancel() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = true
	for _, a := range h.assignments {
		a.cancel(errLeaseLost)
	}
}

// add adds assignments to those that work under the lease.
func (h *heldLease) add(started []*assignment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.assignments = append(h.assignments, started...)
	if h.lost {
		for _, a := range started {
			a.cancel(errLeaseLost)
		}
	}
}

// maxLeaseInterval bounds the time between two checks of the leases.
const maxLeaseInterval = time.Second

// findLeaseStore returns the first sink that keeps leases, or nil.
func findLeaseStore(sinks []Sink) *Sink {
	for i := range sinks {
		if sinks[i].Sink.Traits().Leases != nil {
			return &sinks[i]
		}
	}
	return nil
}

// startLeases starts a lease manager if a sink keeps leases. The returned function
// stops it and releases all leases; call it after all assignments have ended.
func (s *supervisor) startLeases() (releaseAll func()) {
	keeper := findLeaseStore(s.p.config.Sinks)
	if keeper == nil {
		return func() {}
	}
	s.leasing = true
	m := &leaseManager{
		s: s, store: keeper.Sink.Traits().Leases, worker: s.p.config.Worker, lease: s.p.config.Lease,
		held: make(map[string]*heldLease), standby: standbyManager{leases: make(map[string]string)},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := catchPanic(func() error { return m.run(ctx) }); err != nil {
			s.leaseErrors <- err
		}
	})
	if s.p.followers != nil {
		running.Go(func() { s.p.followers.runLeased(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
		m.releaseAll(context.WithoutCancel(ctx))
	}
}

// run maintains the leases until ctx ends. It returns a permanent error.
func (m *leaseManager) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := m.maintain(ctx)
		if event.IsPermanent(err) {
			return fmt.Errorf("share partitions: %w", err)
		}
		if ctx.Err() == nil {
			m.recordAttempt(err)
		}
		m.waitForRound(ctx)
	}
	return nil
}

// recordAttempt keeps the status of the leases up to date.
func (m *leaseManager) recordAttempt(err error) {
	retrier := m.s.p.leases
	switch {
	case err != nil:
		if !m.failing {
			retrier.startWaiting()
		}
		retrier.recordFailure(err)
	case m.failing:
		retrier.stopWaiting(nil)
	}
	m.failing = err != nil
}

// maintain renews, releases and acquires leases once. A timeout bounds it, so that
// one call that hangs does not let all leases expire.
func (m *leaseManager) maintain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.lease/3)
	defer cancel()
	if err := errors.Join(m.renewLeases(ctx), m.releaseUnassigned(ctx)); err != nil {
		return err
	}
	workers, err := m.store.Heartbeat(ctx, m.worker, m.lease)
	if err != nil {
		return fmt.Errorf("report this worker as alive: %w", err)
	}
	work := m.s.leasableWork()
	m.assignNew(work)
	partitions := slices.Collect(maps.Keys(work))
	fairShare := (len(partitions) + max(workers, 1) - 1) / max(workers, 1)
	defer func() { m.s.p.counters.leases.set(workers, len(m.held), len(partitions)) }()
	if m.s.p.units != nil {
		return m.shareUnits(ctx, work, workers, fairShare)
	}
	if len(m.held) > fairShare {
		m.giveUpPartition()
		return nil
	}
	return m.acquireLeases(ctx, work, fairShare)
}

// assignNew starts what is new in the units whose leases are held.
func (m *leaseManager) assignNew(work map[string][]*assignment) {
	for name, h := range m.held {
		if !h.isStopping() {
			h.add(m.s.assignAll(work[name]))
		}
	}
}

// removeEnded removes the assignments that have ended, and returns the number of the others.
func (h *heldLease) removeEnded(s *supervisor) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.assignments = slices.DeleteFunc(h.assignments, func(a *assignment) bool { return !s.isAssigned(a) })
	return len(h.assignments)
}

// isStopping reports whether one of the assignments drains.
func (h *heldLease) isStopping() bool {
	return slices.ContainsFunc(h.assignments, (*assignment).isStopping)
}

// releaseUnassigned releases the leases whose assignments have ended.
func (m *leaseManager) releaseUnassigned(ctx context.Context) error {
	var ended []string
	for partition, h := range m.held {
		if h.removeEnded(m.s) == 0 {
			h.expiry.Stop()
			ended = append(ended, partition)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	if err := m.store.ReleaseLeases(ctx, ended, m.worker); err != nil {
		return fmt.Errorf("release %s: %w", leasesOf(ended), err)
	}
	for _, partition := range ended {
		delete(m.held, partition)
	}
	return nil
}

// renewLeases renews all leases every third of their duration. An error does not keep those
// that were renewed from being so, nor those that were lost from being given up.
func (m *leaseManager) renewLeases(ctx context.Context) error {
	if time.Since(m.renewed) < m.lease/3 {
		return nil
	}
	began := time.Now()
	partitions := slices.Collect(maps.Keys(m.held))
	followed := slices.Collect(maps.Keys(m.standby.leases))
	leases := slices.Clone(partitions)
	for _, unit := range followed {
		leases = append(leases, m.standby.leases[unit])
	}
	if len(leases) == 0 {
		m.renewed = began
		return nil
	}
	holders, err := m.requestLeases(ctx, leases)
	for i, partition := range partitions {
		h := m.held[partition]
		switch holders[i] {
		case m.worker:
			h.expiry.Reset(m.workTime(began))
		case "": // unknown
		default:
			h.expiry.Stop()
			h.cancel()
		}
	}
	for i, unit := range followed {
		if holder := holders[len(partitions)+i]; holder != m.worker && holder != "" {
			m.loseStandby(unit)
		}
	}
	if err == nil {
		m.renewed = began
	}
	return err
}

// requestLeases acquires or renews leases, and returns the holder of each; "" if it is unknown.
func (m *leaseManager) requestLeases(ctx context.Context, partitions []string) (holders []string, err error) {
	holders, err = m.store.AcquireLeases(ctx, partitions, m.worker, m.lease)
	if err != nil {
		err = fmt.Errorf("request %s: %w", leasesOf(partitions), err)
	}
	return holders, err
}

// leasesOf names leases in an error.
func leasesOf(partitions []string) string {
	if len(partitions) == 1 {
		return "the lease of partition " + partitions[0]
	}
	return fmt.Sprintf("the lease of partition %s and of %d others", partitions[0], len(partitions)-1)
}

// workTime returns how long to work under a lease from now. It ends well before
// the lease expires, so that writes end before another worker takes over.
func (m *leaseManager) workTime(start time.Time) time.Duration {
	return time.Until(start.Add(m.lease * 3 / 4))
}

// giveUpPartition drains one partition, unless one is already draining.
func (m *leaseManager) giveUpPartition() {
	var chosen string
	for name, h := range m.held {
		if h.isStopping() {
			return
		}
		chosen = name
	}
	m.giveUp(chosen)
}

// giveUp drains the partitions of a lease, which is released once they have ended.
func (m *leaseManager) giveUp(name string) {
	m.s.p.log.Info("giving up a partition: other workers have too few", "partition", name)
	for _, a := range m.held[name].assignments {
		a.stopReading()
	}
}

// maxAcquired is how many leases a worker acquires between two looks at the number of
// workers: those that start at the same time notice each other before one has all.
const maxAcquired = 1000

// acquireLeases requests leases up to the fair share, in random order, so that
// workers do not compete for the same. It requests as many as the worker lacks; where
// other workers hold those, twice as many each time, so that a worker that lacks one of
// thousands finds it with few requests.
func (m *leaseManager) acquireLeases(ctx context.Context, work map[string][]*assignment, fairShare int) error {
	var candidates []string
	partitions := slices.Collect(maps.Keys(work))
	for _, i := range mathrand.Perm(len(partitions)) {
		if m.held[partitions[i]] == nil {
			candidates = append(candidates, partitions[i])
		}
	}
	lacking := min(fairShare-len(m.held), maxAcquired)
	for n := lacking; lacking > 0 && len(candidates) > 0 && m.s.reading.Err() == nil; n = min(2*n, maxAcquired) {
		n = min(n, len(candidates))
		assigned, err := m.acquireSome(ctx, candidates[:n], work, lacking)
		if err != nil {
			return err
		}
		lacking -= assigned
		candidates = candidates[n:]
	}
	return nil
}

// acquireCopies requests the leases of all units that this worker has a copy of, whatever its
// fair share is, because other workers cannot go on with them.
func (m *leaseManager) acquireCopies(ctx context.Context, work map[string][]*assignment) error {
	var units []string
	for unit := range work {
		if m.held[unit] == nil && m.s.p.config.State.HasCopy(unit) {
			units = append(units, unit)
		}
	}
	return m.acquireAll(ctx, units, work)
}

// acquireAll requests leases, and assigns the partitions of all that the worker gets.
func (m *leaseManager) acquireAll(ctx context.Context, names []string, work map[string][]*assignment) error {
	for some := range slices.Chunk(names, maxAcquired) {
		if m.s.reading.Err() != nil {
			return nil
		}
		if _, err := m.acquireSome(ctx, some, work, len(some)); err != nil {
			return err
		}
	}
	return nil
}

// acquireSome requests leases, assigns the partitions of up to maxAssigned that the worker
// gets, and releases the others.
func (m *leaseManager) acquireSome(ctx context.Context, partitions []string, work map[string][]*assignment, maxAssigned int) (assigned int, err error) {
	start := time.Now()
	holders, err := m.requestLeases(ctx, partitions)
	var surplus []string
	for i, partition := range partitions {
		if holders[i] != m.worker {
			continue
		}
		h := &heldLease{}
		if assigned < maxAssigned {
			h.add(m.s.assignAll(work[partition]))
		}
		if len(h.assignments) == 0 {
			surplus = append(surplus, partition)
			continue
		}
		assigned++
		h.expiry = time.AfterFunc(m.workTime(start), func() {
			m.s.p.log.Warn("lease could not be renewed; stopping work on the partition before it expires", "partition", partition)
			h.cancel()
		})
		m.held[partition] = h
	}
	if len(surplus) > 0 {
		err = errors.Join(err, m.store.ReleaseLeases(ctx, surplus, m.worker))
	}
	return assigned, err
}

// releaseAll releases all leases and reports the worker as gone. Leases that cannot
// be released expire.
func (m *leaseManager) releaseAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(closeTimeout, m.lease))
	defer cancel()
	for _, h := range m.held {
		h.expiry.Stop()
	}
	released := m.store.ReleaseLeases(ctx, slices.AppendSeq(m.standby.names(), maps.Keys(m.held)), m.worker)
	_, err := m.store.Heartbeat(ctx, m.worker, 0)
	// A permanent error is the one that stopped the pipeline, which reports it.
	if err := errors.Join(released, err); err != nil && !event.IsPermanent(err) {
		m.s.p.log.Warn("releasing leases failed; they will expire", "error", err)
	}
	if m.failing {
		m.s.p.leases.stopWaiting(context.Canceled)
	}
	m.s.p.counters.leases.set(0, 0, 0)
}

// workerFile is in the data folder and makes its owner's name unique.
const workerFile = "worker"

// WorkerName returns the name under which the owner of a data folder shares
// partitions: the host's name and 64 random bits that stay in the folder. A worker
// that restarts therefore has its leases back at once, and two workers on one host,
// or on hosts of the same name, do not conflict.
func WorkerName(folder string) (string, error) {
	name := filepath.Join(folder, workerFile)
	text, err := durable.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(strings.TrimSpace(string(text))) == 0 {
		text = []byte(randomName() + "\n")
		err = durable.WriteFile(name, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("name this worker: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + strings.TrimSpace(string(text)), nil
}

func randomName() string {
	var bits [8]byte
	rand.Read(bits[:]) // never fails
	return hex.EncodeToString(bits[:])
}
