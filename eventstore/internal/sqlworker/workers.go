//go:build linux && cgo

package sqlworker

import (
	"cmp"
	"slices"
	"time"
)

// A WorkerInfo describes a worker that runs.
type WorkerInfo struct {
	PID      int
	Role     string // query, seal or merge
	Retired  bool   // it gets no more requests, and ends with those it has
	Started  time.Time
	Memory   int64 // resident bytes that it shares with nobody
	Limit    int64 // of Memory
	Requests int   // under way
	Taken    int   // requests since its start
}

// Workers describes the workers that run, the oldest first.
func (c *Client) Workers() (all []WorkerInfo) {
	c.mu.Lock()
	for _, p := range c.processes() {
		all = append(all, WorkerInfo{
			PID: p.process.Pid, Role: string(p.settings.Role), Retired: p.retired, Started: p.started,
			Limit: p.settings.Memory, Requests: p.requests, Taken: p.taken,
		})
	}
	c.mu.Unlock()
	for i := range all {
		all[i].Memory = memoryOf(all[i].PID, "RssAnon")
	}
	slices.SortFunc(all, func(a, b WorkerInfo) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.PID, b.PID)) })
	return all
}
