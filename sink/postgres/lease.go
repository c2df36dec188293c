package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// AcquireLease implements sink.LeaseStore.
func (s *Sink) AcquireLease(ctx context.Context, partition, worker string, d time.Duration) (holder string, err error) {
	leases := s.config.in(leasesTable)
	statements := fmt.Sprintf(`INSERT INTO %s AS l (pipeline, target, partition, worker, until) VALUES (%s, %s, %s)
		ON CONFLICT (pipeline, target, partition) DO UPDATE SET worker = EXCLUDED.worker, until = EXCLUDED.until
		WHERE l.worker = EXCLUDED.worker OR l.until <= clock_timestamp();
		SELECT worker FROM %s WHERE %s AND partition = %s`,
		leases, s.literals(partition), quoteText(worker), until(d), leases, s.where(), quoteText(nameText(partition)))
	rows, err := s.ask(ctx, "asking for the lease of partition "+partition, statements)
	if err != nil {
		return "", err
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("the lease of partition %s was given up meanwhile", partition)
	}
	return string(rows[0][0]), nil
}

// until is an expression for d from now, by the server's clock.
func until(d time.Duration) string {
	return fmt.Sprintf("clock_timestamp() + %d * interval '1 microsecond'", d.Microseconds())
}

// ReleaseLease implements sink.LeaseStore.
func (s *Sink) ReleaseLease(ctx context.Context, partition, worker string) error {
	_, err := s.ask(ctx, "giving up the lease of partition "+partition, fmt.Sprintf(
		"UPDATE %s SET until = clock_timestamp() WHERE %s AND partition = %s AND worker = %s",
		s.config.in(leasesTable), s.where(), quoteText(nameText(partition)), quoteText(worker)))
	return err
}

// forgetAfter is how long leases and workers that have run out are kept: for
// people to see, and no longer than that, because partitions come and go.
const forgetAfter = "interval '1 hour'"

// Heartbeat implements sink.LeaseStore.
func (s *Sink) Heartbeat(ctx context.Context, worker string, d time.Duration) (workers int, err error) {
	table := s.config.in(workersTable)
	statements := fmt.Sprintf(`INSERT INTO %s (pipeline, target, worker, until) VALUES (%s, %s, %s)
		ON CONFLICT (pipeline, target, worker) DO UPDATE SET until = EXCLUDED.until;`, table, s.scope(), quoteText(worker), until(d))
	if d <= 0 {
		statements = fmt.Sprintf(`DELETE FROM %s WHERE %s AND worker = %s;
			DELETE FROM %[1]s WHERE until < clock_timestamp() - %[4]s; DELETE FROM %[5]s WHERE until < clock_timestamp() - %[4]s;`,
			table, s.where(), quoteText(worker), forgetAfter, s.config.in(leasesTable))
	}
	rows, err := s.ask(ctx, "counting the workers", statements+
		fmt.Sprintf("SELECT count(*) FROM %s WHERE %s AND until > clock_timestamp()", table, s.where()))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(rows[0][0]))
}

// ask runs statements about leases and positions, and makes their tables first
// when they are absent.
func (s *Sink) ask(ctx context.Context, doing, statements string) ([][][]byte, error) {
	c, err := s.pool.take(ctx)
	if err != nil {
		return nil, s.explain("connecting", err)
	}
	defer s.pool.give(ctx, c)
	if err := s.prepareOnce(ctx, c); err != nil {
		return nil, s.explain("making the tables of the ledger", err)
	}
	rows, err := c.do(ctx, statements)
	return rows, s.explain(doing, err)
}

// prepareOnce makes the tables of the ledger that are absent, the first time.
func (s *Sink) prepareOnce(ctx context.Context, c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prepared {
		return nil
	}
	err := s.prepareLedger(ctx, c)
	s.prepared = err == nil
	return err
}
