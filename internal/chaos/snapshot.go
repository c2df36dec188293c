package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// snapshotRedis copies the append-only file while Redis runs: the copy is complete up to
// some command.
func (s *testbed) snapshotRedis() error {
	to := filepath.Join(s.folder, fmt.Sprintf("snapshot-%d", len(s.events)))
	if err := copyFiles(dataFiles(s.redis), to); err != nil {
		return err
	}
	if s.snapshot != "" {
		if err := os.RemoveAll(s.snapshot); err != nil {
			return err
		}
	}
	s.snapshot = to
	s.logf("snapshot of Redis")
	return nil
}

// restoreRedis restores Redis from the snapshot while workers and the producer run.
func (s *testbed) restoreRedis(ctx context.Context, f Fault) error {
	s.recordFault(f, "Redis")
	if err := s.redis.Kill(); err != nil {
		return err
	}
	return s.producer.restoreRedis(ctx, func() error {
		if err := os.RemoveAll(dataFiles(s.redis)); err != nil {
			return err
		}
		if err := copyFiles(s.snapshot, dataFiles(s.redis)); err != nil {
			return err
		}
		return s.redis.Start(ctx)
	})
}
