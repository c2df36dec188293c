package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
)

// A move is what is to become of a partition in the books.
type move struct {
	part      *part
	books     []book
	partition string
	next      uint64
}

func movePositions(ctx context.Context, w io.Writer, l *ledger, q url.Values) error {
	m, err := l.plan(ctx, q)
	if err != nil {
		return err
	}
	if q.Has("dry") {
		return m.describe(w)
	}
	release, err := l.take(ctx, m, q.Has("force"))
	if err != nil {
		return err
	}
	defer release()
	for _, b := range m.books {
		if err := b.keeper.SetPosition(ctx, m.partition, m.next); err != nil {
			return fmt.Errorf("sink %s: %w", b.sink, err)
		}
	}
	if err := l.forget(m); err != nil {
		return err
	}
	return m.describe(w)
}

func (l *ledger) plan(ctx context.Context, q url.Values) (*move, error) {
	i := slices.IndexFunc(l.parts, func(p part) bool { return p.config.Name == q.Get("pipeline") })
	if i < 0 {
		return nil, fmt.Errorf("no pipeline is called %q", q.Get("pipeline"))
	}
	m := &move{part: &l.parts[i]}
	var err error
	if m.books, err = m.part.books(ctx, q.Get("sink")); err != nil {
		return nil, err
	}
	if len(m.books) == 0 {
		return nil, event.WithHint(fmt.Errorf("pipeline %s has no such sink that remembers positions", m.part.config.Name), "perigee position show lists those that do")
	}
	if m.partition, err = m.choose(q.Get("partition")); err != nil {
		return nil, err
	}
	return m, m.aim(q)
}

// choose finds the partition that a name begins, or the only one.
func (m *move) choose(name string) (string, error) {
	known := map[string]bool{}
	for _, b := range m.books {
		for partition := range b.ranges {
			if partition == name {
				return name, nil
			}
			if strings.HasPrefix(partition, name) && (name != "" || !deadletter.IsRetryBatch(partition)) {
				known[partition] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(known))
	switch len(names) {
	case 0:
		return "", event.WithHint(fmt.Errorf("no sink remembers such a partition of pipeline %s", m.part.config.Name), "perigee position show lists them")
	case 1:
		return names[0], nil
	}
	return "", event.WithHint(fmt.Errorf("pipeline %s has %d such partitions", m.part.config.Name, len(names)), "name one with --partition: "+strings.Join(names, ", "))
}

// aim finds the position to go on from.
func (m *move) aim(q url.Values) (err error) {
	if !q.Has("back") {
		m.next, err = strconv.ParseUint(q.Get("next"), 10, 64)
		return err
	}
	back, err := strconv.ParseUint(q.Get("back"), 10, 64)
	if err != nil {
		return err
	}
	first := true
	for _, b := range m.books {
		if has := b.ranges[m.partition]; len(has) > 0 && (first || has[0].End() < m.next) {
			m.next, first = has[0].End(), false
		}
	}
	if back > m.next {
		return fmt.Errorf("the next event is number %d: there are not %d before it", m.next, back)
	}
	m.next -= back
	return nil
}

// describe says what is read again and what is skipped.
func (m *move) describe(w io.Writer) error {
	text := fmt.Sprintf("pipeline %s, partition %s goes on from %d\n", m.part.config.Name, m.partition, m.next)
	for _, b := range m.books {
		has := b.ranges[m.partition]
		var again event.Ranges
		for _, r := range has {
			if r.End() > m.next {
				again.Add(bareTail(r, m.next))
			}
		}
		var skipped event.Ranges
		if len(has) > 0 && has[0].First < m.next {
			skipped = has.Missing(event.Range{First: has[0].First, Count: m.next - has[0].First})
		}
		text += fmt.Sprintf("  sink %s: %s read again, %s skipped\n", b.sink, spelt(again), spelt(skipped))
	}
	_, err := io.WriteString(w, text)
	return err
}

// bareTail is what of r is at from and past it, without fingerprints.
func bareTail(r event.Range, from uint64) event.Range {
	first := max(r.First, from)
	return event.Range{First: first, Count: r.End() - first}
}

func spelt(ranges event.Ranges) string {
	if len(ranges) == 0 {
		return "none"
	}
	return fmt.Sprintf("%s %s", counted(int(eventsIn(ranges)), "event"), ranges)
}

// positionTime is how long nobody else may take over what is being moved.
const positionTime = 10 * time.Second

// take makes sure that nobody has the partition until it is released, unless it is
// forced.
func (l *ledger) take(ctx context.Context, m *move, force bool) (release func(), err error) {
	const hint = "pause the pipeline first (perigee pause), or fence the worker with --force"
	release = func() {}
	if force {
		return release, nil
	}
	for _, p := range l.pipelines {
		if p.Name() == m.part.config.Name && p.Stats().OpenPartitions > 0 {
			return nil, event.WithHint(fmt.Errorf("the engine in %s is at work on pipeline %s", l.data, p.Name()), hint)
		}
	}
	for _, o := range m.part.sinks {
		leases := o.sink.Traits().Leases
		if leases == nil {
			continue
		}
		const me = "perigee position"
		holder, err := leases.AcquireLease(ctx, m.partition, me, positionTime)
		if err == nil && holder != me {
			err = event.WithHint(fmt.Errorf("worker %s has the partition %s", holder, m.partition), hint)
		}
		return func() { leases.ReleaseLease(ctx, m.partition, me) }, err // or the lease runs out
	}
	return release, nil
}

// forget drops what the outbox would still write to sinks.
func (l *ledger) forget(m *move) error {
	for _, p := range l.pipelines {
		if p.Name() == m.part.config.Name {
			return p.DiscardOutbox(m.partition)
		}
	}
	if !outbox.Exists(l.data) {
		return nil
	}
	store, err := outbox.Open(l.data)
	if err != nil {
		return err
	}
	return errors.Join(store.RemovePartition(m.part.config.Name, m.partition), store.Close())
}
