package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bytedance/sonic"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// countInRedis moves the events as a worker without exact state would. It takes batches as large as the
// engine's, as many at the same time, counts each with one pipeline of HINCRBY, inserts its rows with one
// statement, and removes it from the list. A crash counts what was not removed a second time.
func (b *bench) countInRedis(ctx context.Context, l load) (*result, error) {
	if err := b.prepare(ctx, l, "bench"); err != nil {
		return nil, err
	}
	const lanes = 4 // the default of the engine
	servers, own, began := startUsage(b.redis.PID(), b.maria.PID()), ownTime(), time.Now()
	w := &worker{bench: b}
	var running errgroup.Group
	for range lanes {
		running.Go(func() error { return w.run(ctx) })
	}
	if err := running.Wait(); err != nil {
		return nil, err
	}
	r := &result{rate: float64(l.events) / time.Since(began).Seconds(), program: perEvent(ownTime()-own, l.events)}
	r.source, r.database = servers.perEvent(0, l.events), servers.perEvent(1, l.events)
	if n, err := left(ctx, b.few, 1); err != nil || n != 0 {
		return nil, fmt.Errorf("%d events were left in the list: %w", n, err)
	}
	return r, b.checkRows(ctx, "bench", l.events, true)
}

// ownTime returns the CPU time of this process.
func ownTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fmt.Fprintf(os.Stderr, "state: read the CPU time: %v\n", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A worker moves the list events0 in several goroutines.
type worker struct {
	*bench
	mu      sync.Mutex
	first   int    // batch that begins at the head of the list
	sizes   []int  // of the batches from it on
	written []bool // which of them are
}

func (w *worker) run(ctx context.Context) error {
	for {
		docs, number, err := w.take(ctx)
		if err != nil || len(docs) == 0 {
			return err
		}
		if err := w.move(ctx, docs); err != nil {
			return err
		}
		if err := w.remove(ctx, number); err != nil {
			return err
		}
	}
}

// take reads the next batch behind those that others have taken.
func (w *worker) take(ctx context.Context) (docs []string, number int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := int64(0)
	for _, size := range w.sizes {
		from += int64(size)
	}
	docs, err = w.few.LRange(ctx, listName(0), from, from+eventsOfBatch-1).Result()
	if err == nil && len(docs) > 0 {
		w.sizes, w.written = append(w.sizes, len(docs)), append(w.written, false)
	}
	return docs, w.first + len(w.sizes) - 1, err
}

// remove removes a batch from the list, once those before it are removed.
func (w *worker) remove(ctx context.Context, number int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[number-w.first] = true
	n, events := 0, int64(0)
	for ; n < len(w.written) && w.written[n]; n++ {
		events += int64(w.sizes[n])
	}
	if n == 0 {
		return nil
	}
	w.first, w.sizes, w.written = w.first+n, w.sizes[n:], w.written[n:]
	return w.few.LTrim(ctx, listName(0), events, -1).Err()
}

func (w *worker) move(ctx context.Context, docs []string) error {
	type event struct {
		ID   int64  `json:"id"`
		User string `json:"user"`
		Name string `json:"event_name"`
		Time string `json:"time"`
	}
	events := make([]event, len(docs))
	pipe, counts := w.few.Pipeline(), make([]*redis.IntCmd, len(docs))
	for i, doc := range docs {
		if err := sonic.UnmarshalString(doc, &events[i]); err != nil {
			return err
		}
		counts[i] = pipe.HIncrBy(ctx, "users", events[i].User, 1)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	var statement strings.Builder
	statement.WriteString("INSERT INTO bench.events (id, user, event_name, time, n) VALUES ")
	for i, e := range events {
		if i > 0 {
			statement.WriteByte(',')
		}
		fmt.Fprintf(&statement, "(%d,'%s','%s','%s',%d)", e.ID, e.User, e.Name, strings.TrimSuffix(e.Time, "Z"), counts[i].Val())
	}
	_, err := w.db.ExecContext(ctx, statement.String())
	return err
}
