package mysql

import (
	"context"
	"time"
)

const (
	leasesTable = `CREATE TABLE IF NOT EXISTS perigee_leases (
  pipeline    VARBINARY(255)  NOT NULL,
  target      VARBINARY(255)  NOT NULL COMMENT 'table that the rows go to',
  ` + "`partition`" + ` VARBINARY(1024) NOT NULL,
  worker      VARBINARY(512)  NOT NULL,
  until       DATETIME(6)     NOT NULL COMMENT 'UTC, by the clock of this server',
  PRIMARY KEY (pipeline, target, ` + "`partition`" + `)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='who should work on what; see perigee_owners for who may write'`

	workersTable = `CREATE TABLE IF NOT EXISTS perigee_workers (
  pipeline VARBINARY(255) NOT NULL,
  target   VARBINARY(255) NOT NULL COMMENT 'table that the rows go to',
  worker   VARBINARY(512) NOT NULL,
  until    DATETIME(6)    NOT NULL COMMENT 'UTC, by the clock of this server',
  PRIMARY KEY (pipeline, target, worker)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='workers that are alive'`
)

// Lease implements sink.Leaser. The server assigns from left to right: until is
// renewed when the worker has got, or already had, the lease.
func (s *Sink) Lease(ctx context.Context, partition, worker string, d time.Duration) (holder string, err error) {
	if err := s.prepareOnce(ctx); err != nil {
		return "", err
	}
	err = s.lease(ctx, `INSERT INTO perigee_leases (pipeline, target, `+"`partition`"+`, worker, until)
		VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
		ON DUPLICATE KEY UPDATE worker = IF(until <= UTC_TIMESTAMP(6), VALUES(worker), worker),
			until = IF(worker = VALUES(worker), VALUES(until), until)`,
		s.pipeline, s.config.Table, partition, worker, d.Microseconds())
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT worker FROM perigee_leases WHERE pipeline = ? AND target = ? AND `partition` = ?",
			s.pipeline, s.config.Table, partition).Scan(&holder)
	}
	return holder, s.explain("asking for the lease of partition "+partition, err)
}

// Release implements sink.Leaser. The row stays, run out: a worker that asks at
// the same time finds it.
func (s *Sink) Release(ctx context.Context, partition, worker string) error {
	if err := s.prepareOnce(ctx); err != nil {
		return err
	}
	err := s.lease(ctx, "UPDATE perigee_leases SET until = UTC_TIMESTAMP(6) WHERE pipeline = ? AND target = ? AND `partition` = ? AND worker = ?",
		s.pipeline, s.config.Table, partition, worker)
	return s.explain("giving up the lease of partition "+partition, err)
}

// Alive implements sink.Leaser. Who says goodbye takes along those that have not
// been heard of for an hour.
func (s *Sink) Alive(ctx context.Context, worker string, d time.Duration) (workers int, err error) {
	if err := s.prepareOnce(ctx); err != nil {
		return 0, err
	}
	if d > 0 {
		err = s.lease(ctx, `INSERT INTO perigee_workers (pipeline, target, worker, until)
			VALUES (?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE until = VALUES(until)`,
			s.pipeline, s.config.Table, worker, d.Microseconds())
	} else {
		err = s.lease(ctx, `DELETE FROM perigee_workers
			WHERE pipeline = ? AND target = ? AND (worker = ? OR until < UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)`,
			s.pipeline, s.config.Table, worker)
	}
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM perigee_workers WHERE pipeline = ? AND target = ? AND until > UTC_TIMESTAMP(6)",
			s.pipeline, s.config.Table).Scan(&workers)
	}
	return workers, s.explain("counting the workers", err)
}

// deadlocks is how often a statement about leases is tried: workers that begin
// at the same time get into each other's way.
const deadlocks = 10

func (s *Sink) lease(ctx context.Context, statement string, args ...any) (err error) {
	for range deadlocks {
		if _, err = s.db.ExecContext(ctx, statement, args...); judge(err) != rolledBack {
			return err
		}
	}
	return err
}

// prepareOnce makes the tables of the ledger that are absent, the first time.
func (s *Sink) prepareOnce(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prepared {
		return nil
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return s.explain("connecting", err)
	}
	defer conn.Close()
	if err := prepareLedger(ctx, conn, s.config.Database); err != nil {
		return s.explain("making the tables of the ledger", err)
	}
	s.prepared = true
	return nil
}
