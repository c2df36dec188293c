package stores

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigeedb/perigee/bench/dataset"
)

// A Load says what to write: the events that follow those that were written before.
type Load struct {
	Batch   int           // rows of a commit
	Writers int           // goroutines that commit
	Rows    uint64        // when to end
	Time    time.Duration // when to end
	// Rate is of an open loop, in rows/s: batches fall due at this rate, whether or not those
	// before them were acknowledged. With 0, each writer commits batch after batch.
	Rate int
	// Probe measures after which time acknowledged rows are in the result of a query.
	Probe bool
	// Queries run one after another meanwhile, again and again.
	Queries []string
}

// A Report tells about a load.
type Report struct {
	Rows uint64
	Took time.Duration
	Ack  Times // of a commit; in an open loop, since it fell due
	// Visible is the time from an acknowledgement until a query found the rows.
	Visible Times
	Queries int      // that were answered
	Failed  []string // errors of the others
}

// Rate returns rows/s.
func (r Report) Rate() float64 { return float64(r.Rows) / r.Took.Seconds() }

// Times are quantiles of durations.
type Times struct{ Median, P99, Longest time.Duration }

func quantiles(times []time.Duration) Times {
	if len(times) == 0 {
		return Times{}
	}
	slices.Sort(times)
	return Times{times[len(times)/2], times[len(times)*99/100], times[len(times)-1]}
}

// A loader runs a load.
type loader struct {
	Load
	store  Store
	events *dataset.Events
	first  uint64
	began  time.Time
	next   atomic.Uint64 // batch
	rows   atomic.Uint64 // acknowledged
	newest atomic.Pointer[acknowledgement]

	mu   sync.Mutex
	acks []time.Duration
}

type acknowledgement struct {
	position uint64
	at       time.Time
}

func (l *loader) run(ctx context.Context) (Report, error) {
	var group errgroup.Group
	l.began = time.Now()
	for range l.Writers {
		group.Go(func() error { return l.write(ctx) })
	}
	var r Report
	var readers errgroup.Group
	stop := make(chan struct{})
	if l.Probe {
		readers.Go(func() error {
			visible, err := l.probe(ctx, stop)
			r.Visible = quantiles(visible)
			return err
		})
	}
	if len(l.Queries) > 0 {
		readers.Go(func() error {
			l.query(ctx, stop, &r)
			return nil
		})
	}
	err := group.Wait()
	took := time.Since(l.began)
	close(stop)
	err = errors.Join(err, readers.Wait())
	r.Rows, r.Took, r.Ack = l.rows.Load(), took, quantiles(l.acks)
	return r, err
}

// query runs the queries until stop is closed.
func (l *loader) query(ctx context.Context, stop <-chan struct{}, r *Report) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		if _, err := l.store.Query(ctx, l.Queries[n%len(l.Queries)]); err != nil {
			r.Failed = append(r.Failed, err.Error())
		} else {
			r.Queries++
		}
	}
}

// write commits batches until the load ends.
func (l *loader) write(ctx context.Context) error {
	w, err := l.store.NewWriter()
	if err != nil {
		return err
	}
	var acks []time.Duration
	for l.Time == 0 || time.Since(l.began) < l.Time {
		begin := (l.next.Add(1) - 1) * uint64(l.Batch)
		n := l.Batch
		if l.Rows > 0 {
			if begin >= l.Rows {
				break
			}
			n = int(min(uint64(n), l.Rows-begin))
		}
		w.Prepare(l.first+begin, n)
		due := time.Now()
		if l.Rate > 0 {
			due = l.began.Add(time.Duration(float64(begin) / float64(l.Rate) * float64(time.Second)))
			time.Sleep(time.Until(due))
		}
		if err := w.Commit(ctx); err != nil {
			return errors.Join(err, w.Close())
		}
		now := time.Now()
		acks = append(acks, now.Sub(due))
		l.rows.Add(uint64(n))
		l.newest.Store(&acknowledgement{l.first + begin, now})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, acks...)
	return w.Close()
}

// probeInterval is between two probes.
const probeInterval = 100 * time.Millisecond

// probe asks again and again for the newest acknowledged rows until stop is closed.
func (l *loader) probe(ctx context.Context, stop <-chan struct{}) (times []time.Duration, err error) {
	var last *acknowledgement
	for {
		select {
		case <-stop:
			return times, nil
		case <-time.After(probeInterval):
		}
		newest := l.newest.Load()
		if newest == last {
			continue
		}
		last = newest
		for rows := 0; rows == 0; {
			if rows, err = Count(ctx, l.store, l.events.Time(newest.position)); err != nil {
				return nil, err
			}
		}
		times = append(times, time.Since(newest.at))
	}
}
