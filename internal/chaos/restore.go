package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/resp"
)

// trimmedEvents is how many events of each key must be trimmed from Redis after a copy of
// the database is taken: more than can be committed but not yet acknowledged. Otherwise
// the old copy may lack nothing, and a worker would rightly continue.
const trimmedEvents = 800

// gapMessage must be in the log of a worker whose database lacks events that Redis has trimmed.
const gapMessage = "but the sink does not have them"

// restoreDatabase replaces a database by an older copy. Events that were trimmed from
// Redis since then are in neither: workers must stop and name the gap. With the newer
// files in place again, they must continue.
func (s *testbed) restoreDatabase(ctx context.Context, f Fault) error {
	if len(s.databases) == 0 {
		return nil // the event store is in the worker's data folder, with its dead letters
	}
	d := s.databases[s.random.IntN(len(s.databases))]
	s.restores++
	older, newer := filepath.Join(d.Dir(), fmt.Sprintf("older-%d", s.restores)), filepath.Join(d.Dir(), fmt.Sprintf("newer-%d", s.restores))
	if err := s.restartServer(ctx, d, func() error { return copyFiles(dataFiles(d), older) }); err != nil {
		return err
	}
	s.logf("copy of %s", d.kind)
	if err := s.waitTrimmed(ctx, trimmedEvents); err != nil {
		return err
	}
	s.recordFault(f, "%s", d.kind)
	for _, w := range s.workers {
		w.engine.Kill()
	}
	if err := s.swapFiles(ctx, d, older, newer); err != nil {
		return err
	}
	for _, w := range s.workers {
		if err := s.expectStop(ctx, w); err != nil {
			return err
		}
	}
	if err := s.swapFiles(ctx, d, newer, older); err != nil {
		return err
	}
	s.logf("%s has its newer files again", d.kind)
	if err := os.RemoveAll(older); err != nil {
		return err
	}
	for _, w := range s.workers {
		if err := w.start(nil, 0); err != nil {
			return err
		}
	}
	return nil
}

// swapFiles replaces the data of a database by the files in instead, and moves its own to keep.
func (s *testbed) swapFiles(ctx context.Context, d *database, instead, keep string) error {
	return s.restartServer(ctx, d, func() error {
		if err := os.Rename(dataFiles(d), keep); err != nil {
			return err
		}
		return os.Rename(instead, dataFiles(d))
	})
}

// expectStop starts a worker and waits until it exits and its log names the gap.
func (s *testbed) expectStop(ctx context.Context, w *worker) error {
	from := w.logSize()
	if err := w.start(nil, 0); err != nil {
		return err
	}
	select {
	case <-w.engine.Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(waitLimit):
		return fmt.Errorf("worker %d runs although its database lacks events that were trimmed from Redis:\n%s", w.number, w.logTail())
	}
	if log := w.logSince(from); !strings.Contains(log, gapMessage) {
		return fmt.Errorf("worker %d exited, but its log does not say that the database lacks events:\n%s", w.number, w.logTail())
	}
	s.logf("worker %d stopped and named the gap", w.number)
	return nil
}

// waitTrimmed waits until this many more events of each key are trimmed from Redis.
func (s *testbed) waitTrimmed(ctx context.Context, events int) error {
	before, err := s.listHeads(ctx)
	if err != nil {
		return err
	}
	return waitFor(ctx, "events of every key are acknowledged", func() (bool, error) {
		now, err := s.listHeads(ctx)
		for key, head := range now {
			if head < before[key]+events {
				return false, err
			}
		}
		return err == nil, err
	})
}

// listHeads returns the position up to which each key has been trimmed.
func (s *testbed) listHeads(ctx context.Context) (map[string]int, error) {
	server := resp.Server{Address: s.redis.Address()}
	conn, err := server.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	heads := make(map[string]int)
	for _, key := range s.producer.keys {
		head, err := conn.Do(ctx, "HGET", "{"+key+"}:perigee", "head")
		if err != nil {
			return nil, err
		}
		heads[key], _ = strconv.Atoi(fmt.Sprint(head))
	}
	return heads, nil
}

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
