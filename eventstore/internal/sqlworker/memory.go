//go:build linux && cgo

package sqlworker

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/document"
)

// DuckDB accounts for its buffers, but not for the texts and lists of the rows that it
// processes, nor for the states of some aggregates. A memoryWatch therefore monitors the whole
// worker while requests run. When the worker exceeds its limit, even without the free memory that
// allocators keep, the watch ends the oldest request during which the worker has grown by more
// than a quarter of the limit.
const (
	memoryInterval = 5 * time.Millisecond
	// evictedTime is the time that an ended request has to free its memory before the
	// next one is ended.
	evictedTime = 200 * time.Millisecond
	// trimFrom is the growth of the process during a request from which the C library's
	// free memory is returned to the system.
	trimFrom = 64 << 20
)

// A memoryWatch ends requests that need too much memory.
type memoryWatch struct {
	limit   int64
	statm   *os.File
	mu      sync.Mutex
	running map[*watched]bool

	trimming sync.Mutex // held while free memory is returned to the system
}

type watched struct {
	cancel  context.CancelCauseFunc
	started time.Time
	before  int64 // size of the process at the start, in bytes
	ended   bool
}

func newMemoryWatch(limit int64) *memoryWatch {
	statm, _ := os.Open("/proc/self/statm") // if unavailable, only RLIMIT_DATA limits memory
	return &memoryWatch{limit: limit, statm: statm, running: map[*watched]bool{}}
}

// resident returns the private resident memory of the process, in bytes, or 0 if unknown.
func (m *memoryWatch) resident() int64 {
	if m.statm == nil {
		return 0
	}
	var text [128]byte
	n, _ := m.statm.ReadAt(text[:], 0)
	fields := bytes.Fields(text[:n])
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(fields[2]), 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}

// add watches a request until release is called.
func (m *memoryWatch) add(cancel context.CancelCauseFunc) (release func()) {
	w := &watched{cancel: cancel, started: time.Now(), before: m.resident()}
	m.mu.Lock()
	m.running[w] = true
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		delete(m.running, w)
		m.mu.Unlock()
		m.trimAfter(w)
	}
}

// trimAfter returns free memory to the system after a request during which the process has
// grown. The C library would otherwise keep hundreds of megabytes of freed aggregate values,
// in an arena per thread.
func (m *memoryWatch) trimAfter(w *watched) {
	if m.resident()-w.before < trimFrom || !m.trimming.TryLock() {
		return
	}
	go func() {
		defer m.trimming.Unlock()
		document.TrimAllocator()
	}()
}

func (m *memoryWatch) run() {
	for {
		time.Sleep(memoryInterval)
		begun := time.Now()
		if m.evictOldest() {
			time.Sleep(evictedTime)
		} else {
			time.Sleep(3 * time.Since(begun)) // trimming takes a quarter of the time at most
		}
	}
}

// evictOldest ends one request if the process exceeds its limit. It reports whether it did.
func (m *memoryWatch) evictOldest() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.oldestGrown() == nil {
		return false
	}
	// Most of the memory may be free: after a merge, the allocators keep half of it.
	duckdb.TrimAllocator()
	document.TrimAllocator()
	oldest := m.oldestGrown()
	if oldest == nil {
		return false
	}
	oldest.ended = true
	oldest.cancel(protocol.ErrQueryMemory)
	return true
}

// oldestGrown returns the request to end if the process exceeds its limit, or nil.
func (m *memoryWatch) oldestGrown() (oldest *watched) {
	if len(m.running) == 0 {
		return nil
	}
	now := m.resident()
	if now <= m.limit {
		return nil
	}
	for w := range m.running {
		if !w.ended && now-w.before > m.limit/4 && (oldest == nil || w.started.Before(oldest.started)) {
			oldest = w
		}
	}
	return oldest
}
