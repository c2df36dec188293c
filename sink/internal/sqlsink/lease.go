package sqlsink

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// AcquireLease implements sink.LeaseStore. Each statement locks one row by its
// primary key and is a transaction of its own, so that workers that start at the same
// time do not deadlock.
func (s *Store) AcquireLease(ctx context.Context, partition, worker string, d time.Duration) (holder string, err error) {
	table, where, me := s.Table(LeasesTable), s.wherePartition(partition), s.QuoteText(worker)
	err = s.connect(ctx, "acquiring the lease of partition "+partition, func(c Conn) error {
		err := c.Exec(ctx, fmt.Sprintf("UPDATE %s SET worker = %s, until = %s WHERE %s AND (worker = %[2]s OR until <= %[5]s)",
			table, me, s.Later(d), where, s.Now))
		if err == nil {
			err = s.insertMissing(ctx, c, LeasesTable, "pipeline, target, "+s.Quote("partition")+", worker, until", strings.Join([]string{
				s.QuoteText(s.Key(s.Pipeline)), s.QuoteText(s.Target), s.QuoteText(s.Key(partition)), me, s.Later(d)}, ", "))
		}
		if err != nil {
			return err
		}
		rows, err := c.Query(ctx, fmt.Sprintf("SELECT worker FROM %s WHERE %s", table, where))
		if err == nil && len(rows) == 0 {
			err = fmt.Errorf("the lease of partition %s was deleted meanwhile", partition)
		}
		if err == nil {
			holder = string(rows[0][0])
		}
		return err
	})
	return holder, err
}

// ReleaseLease implements sink.LeaseStore. The row stays, expired: a worker that asks
// at the same time finds it.
func (s *Store) ReleaseLease(ctx context.Context, partition, worker string) error {
	return s.connect(ctx, "releasing the lease of partition "+partition, func(c Conn) error {
		return c.Exec(ctx, fmt.Sprintf("UPDATE %s SET until = %s WHERE %s AND worker = %s",
			s.Table(LeasesTable), s.Now, s.wherePartition(partition), s.QuoteText(worker)))
	})
}

// keepExpired is how long expired leases and workers are kept: for people to see,
// and no longer, because partitions come and go.
const keepExpired = time.Hour

// Heartbeat implements sink.LeaseStore. A worker that withdraws deletes what has long
// expired.
func (s *Store) Heartbeat(ctx context.Context, worker string, d time.Duration) (workers int, err error) {
	table, me := s.Table(WorkersTable), s.QuoteText(worker)
	err = s.connect(ctx, "counting the workers", func(c Conn) error {
		if err := s.heartbeat(ctx, c, me, d); err != nil {
			return err
		}
		rows, err := c.Query(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE %s AND until > %s", table, s.where(), s.Now))
		if err == nil {
			workers, err = strconv.Atoi(string(rows[0][0]))
		}
		return err
	})
	return workers, err
}

func (s *Store) heartbeat(ctx context.Context, c Conn, me string, d time.Duration) error {
	table := s.Table(WorkersTable)
	if d > 0 {
		err := c.Exec(ctx, fmt.Sprintf("UPDATE %s SET until = %s WHERE %s AND worker = %s", table, s.Later(d), s.where(), me))
		if err != nil {
			return err
		}
		return s.insertMissing(ctx, c, WorkersTable, "pipeline, target, worker, until", strings.Join([]string{
			s.QuoteText(s.Key(s.Pipeline)), s.QuoteText(s.Target), me, s.Later(d)}, ", "))
	}
	if err := c.Exec(ctx, fmt.Sprintf("DELETE FROM %s WHERE %s AND worker = %s", table, s.where(), me)); err != nil {
		return err
	}
	for _, table := range []string{WorkersTable, LeasesTable} {
		if err := c.Exec(ctx, fmt.Sprintf("DELETE FROM %s WHERE %s AND until < %s", s.Table(table), s.where(), s.Later(-keepExpired))); err != nil {
			return err
		}
	}
	return nil
}
