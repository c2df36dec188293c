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

// AcquireLease implements sink.LeaseStore. Each statement locks one row by its primary key
// and is a transaction of its own, so that none deadlocks: of several workers that
// insert at once, one inserts and the others ignore the row that is there then.
func (s *Sink) AcquireLease(ctx context.Context, partition, worker string, d time.Duration) (holder string, err error) {
	if err := s.prepareOnce(ctx); err != nil {
		return "", err
	}
	_, err = s.db.ExecContext(ctx, `UPDATE perigee_leases SET worker = ?, until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
		WHERE pipeline = ? AND target = ? AND `+"`partition`"+` = ? AND (worker = ? OR until <= UTC_TIMESTAMP(6))`,
		worker, d.Microseconds(), s.pipeline, s.config.Table, partition, worker)
	if err == nil {
		_, err = s.db.ExecContext(ctx, `INSERT IGNORE INTO perigee_leases (pipeline, target, `+"`partition`"+`, worker, until)
			VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)`,
			s.pipeline, s.config.Table, partition, worker, d.Microseconds())
	}
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT worker FROM perigee_leases WHERE pipeline = ? AND target = ? AND `partition` = ?",
			s.pipeline, s.config.Table, partition).Scan(&holder)
	}
	return holder, s.explain("asking for the lease of partition "+partition, err)
}

// ReleaseLease implements sink.LeaseStore. The row stays, run out: a worker that asks at
// the same time finds it.
func (s *Sink) ReleaseLease(ctx context.Context, partition, worker string) error {
	if err := s.prepareOnce(ctx); err != nil {
		return err
	}
	_, err := s.db.ExecContext(ctx, "UPDATE perigee_leases SET until = UTC_TIMESTAMP(6) WHERE pipeline = ? AND target = ? AND `partition` = ? AND worker = ?",
		s.pipeline, s.config.Table, partition, worker)
	return s.explain("giving up the lease of partition "+partition, err)
}

// Heartbeat implements sink.LeaseStore. Who says goodbye takes along those that have not
// been heard of for an hour.
func (s *Sink) Heartbeat(ctx context.Context, worker string, d time.Duration) (workers int, err error) {
	if err := s.prepareOnce(ctx); err != nil {
		return 0, err
	}
	if d > 0 {
		_, err = s.db.ExecContext(ctx, `INSERT INTO perigee_workers (pipeline, target, worker, until)
			VALUES (?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE until = VALUES(until)`,
			s.pipeline, s.config.Table, worker, d.Microseconds())
	} else {
		_, err = s.db.ExecContext(ctx, `DELETE FROM perigee_workers
			WHERE pipeline = ? AND target = ? AND (worker = ? OR until < UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)`,
			s.pipeline, s.config.Table, worker)
	}
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM perigee_workers WHERE pipeline = ? AND target = ? AND until > UTC_TIMESTAMP(6)",
			s.pipeline, s.config.Table).Scan(&workers)
	}
	return workers, s.explain("counting the workers", err)
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
