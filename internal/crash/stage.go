package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/perigeedb/perigee/internal/rig"
	"github.com/perigeedb/perigee/internal/verify"
)

// stage is the servers, the producer and what is known of the engine.
type stage struct {
	*rig.Servers
	plan   plan
	folder string
	config string
	pusher *rig.Pusher
	lives  int // of the engine
}

// noKeys is the example's table without its keys: a unique key would turn an
// event that is written twice into a refused row.
const noKeys = `CREATE TABLE ` + rig.Table + ` (
  id BIGINT NOT NULL, event_name VARCHAR(16), email VARCHAR(120), domain VARCHAR(80), class VARCHAR(16), topic VARCHAR(40),
  campaign_number INT, time DATETIME(6), ip VARCHAR(45), device VARCHAR(16), retried BOOLEAN, url VARCHAR(200)
) ENGINE=InnoDB`

func startStage(ctx context.Context, p plan, folder string) (*stage, error) {
	servers, err := rig.StartServers(ctx, folder, []string{"--appendonly", "yes"}, nil)
	if err != nil {
		return nil, err
	}
	s := &stage{Servers: servers, plan: p, folder: folder, config: filepath.Join(p.examples, "redis-mysql.yaml")}
	if _, err := s.DB.ExecContext(ctx, noKeys); err != nil {
		s.close()
		return nil, fmt.Errorf("create the table: %w", err)
	}
	if s.pusher, err = rig.NewPusher(s.Redis.Address(), rig.List, p.seed); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) close() {
	if s.pusher != nil {
		s.pusher.Close()
	}
	s.Servers.Close()
}

func (s *stage) verify(ctx context.Context) (verify.Report, error) {
	folders := []string{s.Data}
	if s.plan.freezes > 0 {
		folders = append(folders, s.rivalFolder())
	}
	return rig.Verify(ctx, s.DB, rig.Table, folders, s.plan.seed, s.plan.events)
}
