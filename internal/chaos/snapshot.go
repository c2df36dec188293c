package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// saveRedis copies what Redis has written so far, while it runs: the file of
// commands is whole up to some command.
func (s *stage) saveRedis() error {
	to := filepath.Join(s.folder, fmt.Sprintf("snapshot-%d", len(s.happened)))
	if err := copyFiles(files(s.redis), to); err != nil {
		return err
	}
	if s.snapshot != "" {
		if err := os.RemoveAll(s.snapshot); err != nil {
			return err
		}
	}
	s.snapshot = to
	s.note("snapshot of Redis")
	return nil
}

// restoreRedis sets Redis back to the snapshot under running workers and producers.
func (s *stage) restoreRedis(ctx context.Context, f Fault) error {
	s.done(f, "Redis")
	if err := s.redis.Kill(); err != nil {
		return err
	}
	return s.producer.setBack(ctx, func() error {
		if err := os.RemoveAll(files(s.redis)); err != nil {
			return err
		}
		if err := copyFiles(s.snapshot, files(s.redis)); err != nil {
			return err
		}
		return s.redis.Start(ctx)
	})
}
