//go:build linux && cgo

package eventstore

import (
	"slices"
	"sync"
)

// appends knows the appends that are between the moment when a frame goes to the log and that
// when its range is in the state of its partition. The zero value is ready.
//
// With a sync.RWMutex, appends that begin while somebody waits for those before would wait too:
// for the commit of others, and then for their own.
type appends struct {
	mu sync.Mutex
	// running counts appends: the last element those that begin now, the ones before those
	// that somebody waits for.
	running []*sync.WaitGroup
}

// begin notes that an append begins. Call the function that it returns when it has ended.
func (a *appends) begin() (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.running) == 0 {
		a.running = append(a.running, new(sync.WaitGroup))
	}
	group := a.running[len(a.running)-1]
	group.Add(1)
	return group.Done
}

// wait returns once the appends that run now have ended. Others may begin meanwhile.
func (a *appends) wait() {
	a.mu.Lock()
	before := slices.Clone(a.running)
	a.running = append(a.running, new(sync.WaitGroup))
	a.mu.Unlock()
	for _, group := range before {
		group.Wait()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = slices.DeleteFunc(a.running, func(group *sync.WaitGroup) bool { return slices.Contains(before, group) })
}
