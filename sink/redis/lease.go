package redis

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"slices"
	"strconv"
	"time"
)

//go:embed lease.lua
var leaseScript string

//go:embed release.lua
var releaseScript string

//go:embed heartbeat.lua
var heartbeatScript string

// leasesMax is how many leases one script acquires: the server does nothing else meanwhile.
const leasesMax = 1000

// AcquireLeases implements sink.LeaseStore.
func (s *Sink) AcquireLeases(ctx context.Context, partitions []string, worker string, d time.Duration) (holders []string, err error) {
	holders = make([]string, 0, len(partitions))
	for some := range slices.Chunk(partitions, leasesMax) {
		v, err := s.eval(ctx, leaseScript, s.leaseKeys(some), worker, milliseconds(d))
		answer, _ := v.([]any)
		if err == nil && len(answer) != len(some) {
			err = fmt.Errorf("the server answered %d holders, want %d", len(answer), len(some))
		}
		if err != nil {
			what := fmt.Sprintf("acquire %d leases, first that of partition %s", len(some), some[0])
			return append(holders, make([]string, len(partitions)-len(holders))...), s.wrapError(what, err)
		}
		for _, holder := range answer {
			holders = append(holders, fmt.Sprint(holder))
		}
	}
	return holders, nil
}

// ReleaseLeases implements sink.LeaseStore.
func (s *Sink) ReleaseLeases(ctx context.Context, partitions []string, worker string) error {
	for some := range slices.Chunk(partitions, leasesMax) {
		if _, err := s.eval(ctx, releaseScript, s.leaseKeys(some), worker); err != nil {
			return s.wrapError(fmt.Sprintf("release %d leases, first that of partition %s", len(some), some[0]), err)
		}
	}
	return nil
}

func (s *Sink) leaseKeys(partitions []string) []string {
	keys := make([]string, len(partitions))
	for i, partition := range partitions {
		keys[i] = s.partitionKey("lease", partition)
	}
	return keys
}

// Heartbeat implements sink.LeaseStore.
func (s *Sink) Heartbeat(ctx context.Context, worker string, d time.Duration) (workers int, err error) {
	ttl := "0"
	if d > 0 {
		ttl = milliseconds(d)
	}
	v, err := s.eval(ctx, heartbeatScript, []string{s.sharedKey("workers")}, worker, ttl)
	if err != nil {
		return 0, s.wrapError("count the workers", err)
	}
	n, _ := v.(int64)
	return int(n), nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
