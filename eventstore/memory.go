//go:build cgo

package eventstore

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/internal/document"
)

// DuckDB accounts for its buffers, but not for the texts and lists of the rows that it
// works on, nor for the states of some aggregates. So the memory of the whole process is
// watched while queries run, and a query since whose start it has grown too far ends. So
// does a query that has a quarter of that, while the process is too far above its floor:
// queries that have ended may still be giving their memory back.

const (
	memoryInterval = 5 * time.Millisecond
	// memoryBeyond is by how much the process may grow beyond the store's own limit.
	memoryBeyond = 256 << 20
	// evictedTime is how long a query that was ended has to give memory back before
	// the next one is ended.
	evictedTime = 200 * time.Millisecond
	// floorRise is by how much the floor may rise in a second.
	floorRise = 64 << 20
	// trimFrom is by how much the process must have grown during a query for the C
	// library's free memory to be returned to the system.
	trimFrom = 64 << 20
)

var errMemory = &QueryError{
	Message: "the query needs more memory than the store may use",
	Hint:    "narrow it by time, or give the store more memory",
}

// residentBytes returns the memory of this process, or 0 where it is not known.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

// A memoryFloor is the memory of the process without queries. It rises slowly, because
// what is resident when no query runs may be what the last one has left.
type memoryFloor struct {
	bytes     int64
	idleSince time.Time // when the last query ended
}

func newMemoryFloor() *memoryFloor {
	return &memoryFloor{bytes: residentBytes(), idleSince: time.Now()}
}

// rise brings the floor towards the memory of now, at which no query runs.
func (f *memoryFloor) rise(resident int64, now time.Time) {
	idle := min(now.Sub(f.idleSince), time.Minute)
	f.bytes = min(resident, f.bytes+int64(idle.Seconds()*floorRise))
}

// trimAfter returns free memory to the system after a query since whose start the process
// has grown. The C library would keep hundreds of megabytes that were values of aggregates,
// and an arena of its own for each thread that had them.
func (q *queries) trimAfter(r *Rows) {
	if residentBytes()-r.memoryBefore < trimFrom || !q.trimming.TryLock() {
		return
	}
	go func() {
		defer q.trimming.Unlock()
		document.TrimAllocator()
	}()
}

// watchMemory ends queries that need more memory than limit. It returns once stop is
// closed.
func (q *queries) watchMemory(limit int64, stop <-chan struct{}) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if q.evictOldest(limit) {
			select {
			case <-stop:
				return
			case <-time.After(evictedTime):
			}
		}
	}
}

// evictOldest ends the oldest query of those since whose start the process has grown by
// more than limit, or by a quarter of it while it is more than limit above its floor. It
// reports whether there was one.
func (q *queries) evictOldest(limit int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.running) == 0 {
		return false
	}
	now := residentBytes()
	allowed := limit
	if now-q.floor.bytes > limit {
		allowed = limit / 4
	}
	var oldest *Rows
	for r := range q.running {
		if now-r.memoryBefore > allowed && r.ctx.Err() == nil && (oldest == nil || r.started.Before(oldest.started)) {
			oldest = r
		}
	}
	if oldest == nil {
		return false
	}
	oldest.cancel(errMemory)
	return true
}

// withTimeLimit returns ctx, ended when a query has run for the longest time allowed.
func withTimeLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, &QueryError{
		Message: "the query took longer than " + limit.String(), Hint: "narrow it by time",
	})
}
