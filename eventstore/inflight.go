//go:build linux && cgo

package eventstore

import (
	"slices"
	"sync"
)

// An inFlight knows operations that have begun and not ended, for who must wait for them. The
// zero value is ready.
//
// With a sync.RWMutex, operations that begin while somebody waits for those before would wait
// too: appends for the commit of others, and then for their own.
type inFlight struct {
	mu sync.Mutex
	// running counts operations: the last element those that begin now, the ones before those
	// that somebody waits for.
	running []*sync.WaitGroup
}

// begin notes that an operation begins. Call the function that it returns when it has ended.
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

// wait returns once the operations that run now have ended. Others may begin meanwhile.
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
