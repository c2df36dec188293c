//go:build linux

package sqlclient

import (
	"cmp"
	"slices"
	"time"
)

// A WorkerInfo describes a running worker.
type WorkerInfo struct {
	PID           int
	Role          string // query, seal or merge
	Retired       bool   // it gets no more requests and ends after its current ones
	Started       time.Time
	Memory        int64 // private resident memory, in bytes
	Limit         int64 // maximum of Memory
	Requests      int   // running requests
	RequestsTotal int   // requests since its start
}

// Workers describes the running workers, oldest first.
func (c *Client) Workers() (all []WorkerInfo) {
	c.mu.Lock()
	processes := c.processes()
	for _, p := range processes {
		all = append(all, WorkerInfo{
			PID: p.process.Pid, Role: string(p.settings.Role), Retired: p.retired, Started: p.started,
			Limit: p.settings.Memory, Requests: p.requests, RequestsTotal: p.requestsTotal,
		})
	}
	c.mu.Unlock()
	for i, p := range processes {
		all[i].Memory, _ = p.process.Memory()
	}
	slices.SortFunc(all, func(a, b WorkerInfo) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.PID, b.PID)) })
	return all
}
