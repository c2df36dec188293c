package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
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
	renewed time.Time // when leases were last renewed
	failing bool      // the last attempt failed
}

// A heldLease is a lease and the assignment that works under it. Its timer cancels
// the assignment before the lease expires.
type heldLease struct {
	assignment *assignment
	expiry     *time.Timer
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
		held: make(map[string]*heldLease),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := catchPanic(func() error { return m.run(ctx) }); err != nil {
			s.leaseErrors <- err
		}
	})
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
		sleep(ctx, min(maxLeaseInterval, m.lease/10))
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
	partitions := m.s.leasablePartitions()
	fairShare := (len(partitions) + max(workers, 1) - 1) / max(workers, 1)
	defer func() { m.s.p.counters.leases.set(workers, len(m.held), len(partitions)) }()
	if len(m.held) > fairShare {
		m.giveUpPartition()
		return nil
	}
	return m.acquireLeases(ctx, partitions, fairShare)
}

// releaseUnassigned releases the leases whose assignments have ended.
func (m *leaseManager) releaseUnassigned(ctx context.Context) error {
	for partition, h := range m.held {
		if m.s.isAssigned(h.assignment) {
			continue
		}
		h.expiry.Stop()
		if err := m.store.ReleaseLease(ctx, partition, m.worker); err != nil {
			return fmt.Errorf("release the lease of partition %s: %w", partition, err)
		}
		delete(m.held, partition)
	}
	return nil
}

// renewLeases renews all leases every third of their duration.
func (m *leaseManager) renewLeases(ctx context.Context) error {
	if time.Since(m.renewed) < m.lease/3 {
		return nil
	}
	began := time.Now()
	for partition, h := range m.held {
		held, start, err := m.requestLease(ctx, partition)
		if err != nil {
			return err
		}
		if !held {
			h.expiry.Stop()
			h.assignment.cancel(errLeaseLost)
			continue
		}
		h.expiry.Reset(m.workTime(start))
	}
	m.renewed = began
	return nil
}

// requestLease acquires or renews a lease, which lasts from start at the earliest.
func (m *leaseManager) requestLease(ctx context.Context, partition string) (held bool, start time.Time, err error) {
	start = time.Now()
	holder, err := m.store.AcquireLease(ctx, partition, m.worker, m.lease)
	if err != nil {
		return false, start, fmt.Errorf("request the lease of partition %s: %w", partition, err)
	}
	return holder == m.worker, start, nil
}

// workTime returns how long to work under a lease from now. It ends well before
// the lease expires, so that writes end before another worker takes over.
func (m *leaseManager) workTime(start time.Time) time.Duration {
	return time.Until(start.Add(m.lease * 3 / 4))
}

// giveUpPartition drains one partition, unless one is already draining.
func (m *leaseManager) giveUpPartition() {
	var any *assignment
	for _, h := range m.held {
		if h.assignment.isStopping() {
			return
		}
		any = h.assignment
	}
	m.s.p.log.Info("giving up a partition: other workers have too few", "partition", any.partition)
	any.stopReading()
}

// acquireLeases requests leases up to the fair share, in random order, so that
// workers do not compete for the same.
func (m *leaseManager) acquireLeases(ctx context.Context, partitions []string, fairShare int) error {
	for _, i := range mathrand.Perm(len(partitions)) {
		partition := partitions[i]
		if len(m.held) >= fairShare || m.s.reading.Err() != nil {
			return nil
		}
		if m.held[partition] != nil {
			continue
		}
		held, start, err := m.requestLease(ctx, partition)
		if err != nil {
			return err
		}
		if !held {
			continue
		}
		a := &assignment{partition: partition, leased: true}
		if !m.s.assign(a) {
			return m.store.ReleaseLease(ctx, partition, m.worker)
		}
		expiry := time.AfterFunc(m.workTime(start), func() {
			m.s.p.log.Warn("lease could not be renewed; stopping work on the partition before it expires", "partition", partition)
			a.cancel(errLeaseLost)
		})
		m.held[partition] = &heldLease{a, expiry}
	}
	return nil
}

// releaseAll releases all leases and reports the worker as gone. Leases that cannot
// be released expire.
func (m *leaseManager) releaseAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(closeTimeout, m.lease))
	defer cancel()
	var errs []error
	for partition, h := range m.held {
		h.expiry.Stop()
		errs = append(errs, m.store.ReleaseLease(ctx, partition, m.worker))
	}
	_, err := m.store.Heartbeat(ctx, m.worker, 0)
	if err := errors.Join(append(errs, err)...); err != nil {
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
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(strings.TrimSpace(string(text))) == 0 {
		text = []byte(randomName() + "\n")
		err = os.WriteFile(name, text, 0o600)
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
