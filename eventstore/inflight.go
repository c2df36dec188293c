//go:build linux && cgo

package eventstore

import (
	"slices"
	"sync"
)

// An inFlight tracks running operations so that others can wait for them. The zero value is
// ready.
//
// Unlike a sync.RWMutex, it does not block new operations while a caller waits for earlier
// ones. With an RWMutex, appends would wait for the commit of others and then for their own.
type inFlight struct {
	mu sync.Mutex
	// running counts operations. The last element counts new ones; each earlier element
	// is one that a caller waits for.
	running []*sync.WaitGroup
}

// begin registers an operation. The caller calls end when the operation is done.
func (f *inFlight) begin() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.running) == 0 {
		f.running = append(f.running, new(sync.WaitGroup))
	}
	group := f.running[len(f.running)-1]
	group.Add(1)
	return group.Done
}

// wait waits for the operations that are running now. New ones may begin meanwhile.
func (f *inFlight) wait() {
	f.mu.Lock()
	before := slices.Clone(f.running)
	f.running = append(f.running, new(sync.WaitGroup))
	f.mu.Unlock()
	for _, group := range before {
		group.Wait()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = slices.DeleteFunc(f.running, func(group *sync.WaitGroup) bool { return slices.Contains(before, group) })
}
