package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"time"
)

// This file is how workers divide the units of a state among each other. Workers without a copy of
// a unit cannot go on with it, so units stay where their copies are. With "standby", workers beside
// the owner keep copies, too. A worker that has a lease "standbyN@UNIT" follows the unit. Only
// followers ask for the lease of a unit that has an owner or had one; others become followers first.
// A follower that has less than its fair share of units says so by a lease "claim@UNIT", and an
// owner that has more than its share gives up a unit that is claimed.

// standbyInterval is how often a worker asks for the units that it follows.
const standbyInterval = 250 * time.Millisecond

func standbyLease(unit string, number int) string { return fmt.Sprintf("standby%d@%s", number, unit) }

func claimLease(unit string) string { return "claim@" + unit }

// A standbyManager is the part of a lease manager that is about followers.
type standbyManager struct {
	leases  map[string]string // held, by the unit that is followed
	claims  []string          // units that are claimed
	claimed time.Time         // when the claims were last requested
	started bool              // the leases of units with a copy on disk were requested
	extra   time.Time         // when a lease beyond the share was last requested
}

// shareUnits requests the leases of units, and of units to follow.
func (m *leaseManager) shareUnits(ctx context.Context, work map[string][]*assignment, workers, fairShare int) error {
	standbys := min(m.s.p.config.State.Standby, workers-1)
	if standbys < 1 {
		m.standby.started = true
		return errors.Join(m.releaseStandbys(ctx), m.acquireCopies(ctx, work), m.acquireLeases(ctx, work, fairShare))
	}
	var errs []error
	if !m.standby.started && len(work) > 0 { // those that a worker had before it was restarted
		if err := m.acquireCopies(ctx, work); err != nil {
			return err
		}
		m.standby.started = true
	}
	followers := m.s.p.followers
	fresh := maps.Clone(work)
	maps.DeleteFunc(fresh, func(unit string, _ []*assignment) bool { return !followers.isNew(unit) })
	errs = append(errs, m.acquireFollowed(ctx, work), m.acquireLeases(ctx, fresh, fairShare),
		m.releaseStandbys(ctx), m.acquireStandbys(ctx, standbys, workers))
	if len(m.held) > fairShare {
		errs = append(errs, m.giveUpClaimed(ctx))
	}
	return errors.Join(append(errs, m.claimFollowed(ctx, fairShare))...)
}

// acquireFollowed requests the leases of the units that this worker follows, whatever its fair share
// is: it gets those whose owner is gone.
func (m *leaseManager) acquireFollowed(ctx context.Context, work map[string][]*assignment) error {
	var units []string
	for unit := range work {
		if m.held[unit] == nil && m.s.p.followers.isReady(unit) {
			units = append(units, unit)
		}
	}
	return m.acquireAll(ctx, units, work)
}

// waitForRound waits until leases are maintained the next time. A worker that follows units asks
// for them meanwhile.
func (m *leaseManager) waitForRound(ctx context.Context) {
	left := min(maxLeaseInterval, m.lease/10)
	for ; left > standbyInterval && len(m.standby.leases) > 0; left -= standbyInterval {
		if !sleep(ctx, standbyInterval) {
			return
		}
		asking, cancel := context.WithTimeout(ctx, m.lease/3)
		_ = m.acquireFollowed(asking, m.s.leasableWork()) // the next round reports what fails
		cancel()
	}
	sleep(ctx, left)
}

// acquireStandbys requests leases of units to follow, up to this worker's share of owned and
// followed units together. It asks for one more now and then, in case that a unit has no follower
// because those that have room own it.
func (m *leaseManager) acquireStandbys(ctx context.Context, standbys, workers int) error {
	units := m.s.knownUnits()
	var candidates []string
	for _, i := range mathrand.Perm(len(units)) {
		unit := units[i]
		if m.held[unit] == nil && m.standby.leases[unit] == "" && !m.s.p.followers.isNew(unit) && !m.s.p.followers.isRefused(unit) {
			candidates = append(candidates, unit)
		}
	}
	hasCopy := m.s.p.config.State.HasCopy
	slices.SortStableFunc(candidates, func(a, b string) int { return rank(hasCopy(a)) - rank(hasCopy(b)) })
	share := (len(units)*(1+standbys) + workers - 1) / workers
	room := min(share-len(m.held)-len(m.standby.leases), maxAcquired)
	if room < 1 && time.Since(m.standby.extra) > m.lease {
		room, m.standby.extra = 1, time.Now()
		candidates = candidates[:min(len(candidates), 1)]
	}
	for n := room; room > 0 && len(candidates) > 0 && m.s.reading.Err() == nil; n = min(2*n, maxAcquired) {
		n = min(n, len(candidates))
		began, err := m.followSome(ctx, candidates[:n], standbys, room)
		if err != nil {
			return err
		}
		room -= began
		candidates = candidates[n:]
	}
	return nil
}

// rank sorts what is true first.
func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// followSome requests a lease to follow each of some units, follows up to maxUnits, and releases the
// other leases that it gets.
func (m *leaseManager) followSome(ctx context.Context, units []string, standbys, maxUnits int) (began int, err error) {
	leases := make([]string, len(units))
	for i, unit := range units {
		leases[i] = standbyLease(unit, 1+mathrand.IntN(standbys))
	}
	holders, err := m.requestLeases(ctx, leases)
	var surplus []string
	for i, unit := range units {
		switch {
		case holders[i] != m.worker:
		case began == maxUnits:
			surplus = append(surplus, leases[i])
		default:
			began++
			m.standby.leases[unit] = leases[i]
			m.s.p.followers.add(unit)
			m.s.p.log.Info("following a unit of the state", "unit", unit)
		}
	}
	if len(surplus) > 0 {
		err = errors.Join(err, m.store.ReleaseLeases(ctx, surplus, m.worker))
	}
	return began, err
}

// releaseStandbys stops following the units that this worker owns, those that are gone, and those
// that it cannot follow.
func (m *leaseManager) releaseStandbys(ctx context.Context) error {
	known := map[string]bool{}
	for _, unit := range m.s.knownUnits() {
		known[unit] = true
	}
	var ended []string
	for unit, lease := range m.standby.leases {
		if m.held[unit] != nil || !known[unit] || m.s.p.followers.isRefused(unit) {
			ended = append(ended, lease)
			delete(m.standby.leases, unit)
		}
	}
	for _, unit := range m.s.p.followers.names() {
		if m.held[unit] == nil && m.standby.leases[unit] == "" { // a unit that is held takes the copy
			m.s.p.followers.remove(unit)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	if err := m.store.ReleaseLeases(ctx, ended, m.worker); err != nil {
		return fmt.Errorf("release %s: %w", leasesOf(ended), err)
	}
	return nil
}

// loseStandby stops following a unit, since another worker does it in its place.
func (m *leaseManager) loseStandby(unit string) {
	delete(m.standby.leases, unit)
	m.s.p.followers.remove(unit)
}

// claimFollowed asks the owners of as many followed units as this worker lacks for them, and
// withdraws the claims that it does not need any more.
func (m *leaseManager) claimFollowed(ctx context.Context, fairShare int) error {
	lacking := max(0, min(fairShare-len(m.held), maxAcquired))
	var claims, ended []string
	for _, unit := range m.standby.claims {
		if m.held[unit] == nil && m.s.p.followers.isReady(unit) && len(claims) < lacking {
			claims = append(claims, unit)
		} else {
			ended = append(ended, unit)
		}
	}
	if len(ended) > 0 {
		if err := m.store.ReleaseLeases(ctx, claimLeases(ended), m.worker); err != nil {
			return fmt.Errorf("release %s: %w", leasesOf(claimLeases(ended)), err)
		}
	}
	kept := len(claims)
	for unit := range m.standby.leases {
		if len(claims) < lacking && m.s.p.followers.isReady(unit) && !slices.Contains(claims, unit) {
			claims = append(claims, unit)
		}
	}
	m.standby.claims = claims
	if len(claims) == kept && (kept == 0 || time.Since(m.standby.claimed) < m.lease/3) {
		return nil
	}
	m.standby.claimed = time.Now()
	_, err := m.requestLeases(ctx, claimLeases(claims))
	return err
}

func claimLeases(units []string) (leases []string) {
	for _, unit := range units {
		leases = append(leases, claimLease(unit))
	}
	return leases
}

// giveUpClaimed drains one unit that another worker claims, unless one is already draining.
func (m *leaseManager) giveUpClaimed(ctx context.Context) error {
	var units []string
	for unit, h := range m.held {
		if h.isStopping() {
			return nil
		}
		units = append(units, unit)
	}
	units = units[:min(len(units), maxAcquired)]
	holders, err := m.requestLeases(ctx, claimLeases(units))
	var unclaimed []string
	chosen := ""
	for i, unit := range units {
		switch holders[i] {
		case m.worker:
			unclaimed = append(unclaimed, claimLease(unit))
		case "":
		default:
			chosen = unit
		}
	}
	if len(unclaimed) > 0 {
		err = errors.Join(err, m.store.ReleaseLeases(ctx, unclaimed, m.worker))
	}
	if chosen != "" {
		m.giveUp(chosen)
	}
	return err
}

// names returns the leases that are held.
func (s *standbyManager) names() []string {
	return slices.Concat(slices.Collect(maps.Values(s.leases)), claimLeases(s.claims))
}
