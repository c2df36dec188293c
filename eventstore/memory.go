//go:build cgo

package eventstore

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"time"
)

// DuckDB accounts for its buffers, but not for the texts and lists of the rows that it
// works on, nor for the states of some aggregates. So the memory of the whole process is
// watched while queries run, and a query since whose start it has grown too far ends.

const (
	memoryInterval = 5 * time.Millisecond
	// memoryBeyond is by how much the process may grow beyond the store's own limit.
	memoryBeyond = 256 << 20
	// evictedTime is how long a query that was ended has to give memory back before
	// the next one is ended.
	evictedTime = 200 * time.Millisecond
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

// watchMemory ends the oldest query since whose start the process has grown by more than
// limit. It returns once stop is closed.
func (q *queries) watchMemory(limit int64, stop <-chan struct{}) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if q.evictLargest(limit) {
			select {
			case <-stop:
				return
			case <-time.After(evictedTime):
			}
		}
	}
}

// evictLargest ends the oldest query of those since whose start the process has grown by
// more than limit, and reports whether there was one.
func (q *queries) evictLargest(limit int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.running) == 0 {
		return false
	}
	now := residentBytes()
	var oldest *Rows
	for r := range q.running {
		if now-r.memoryBefore > limit && r.ctx.Err() == nil && (oldest == nil || r.started.Before(oldest.started)) {
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
