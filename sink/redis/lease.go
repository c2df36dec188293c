package redis

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"strconv"
	"time"
)

//go:embed lease.lua
var leaseScript string

//go:embed release.lua
var releaseScript string

//go:embed heartbeat.lua
var heartbeatScript string

// AcquireLease implements sink.LeaseStore.
func (s *Sink) AcquireLease(ctx context.Context, partition, worker string, d time.Duration) (holder string, err error) {
	v, err := s.eval(ctx, leaseScript, []string{s.partitionKey("lease", partition)}, worker, milliseconds(d))
	if err != nil {
		return "", s.wrapError("acquire the lease of partition "+partition, err)
	}
	return fmt.Sprint(v), nil
}

// ReleaseLease implements sink.LeaseStore.
func (s *Sink) ReleaseLease(ctx context.Context, partition, worker string) error {
	_, err := s.eval(ctx, releaseScript, []string{s.partitionKey("lease", partition)}, worker)
	return s.wrapError("release the lease of partition "+partition, err)
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
