package sqlsink

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// The bounds of one statement about leases: a server must parse it, and holds the locks
	// of its rows until it ends.
	leasesMax     = 1000
	leaseBytesMax = 256 << 10 // of the partitions' names
	// leaseTries is how often a worker asks again because others changed the same leases.
	leaseTries = 10
)

// chunkLeases cuts partitions into those of one statement each.
func chunkLeases(partitions []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for len(partitions) > 0 {
			n, bytes := 0, 0
			for n < min(len(partitions), leasesMax) && (n == 0 || bytes+len(partitions[n]) <= leaseBytesMax) {
				bytes += len(partitions[n])
				n++
			}
			if !yield(partitions[:n]) {
				return
			}
			partitions = partitions[n:]
		}
	}
}

// AcquireLeases implements sink.LeaseStore. Each statement is a transaction of its own and
// names its rows in the order of the primary key, so that workers that start at the same
// time hardly ever deadlock; one that does asks again.
func (s *Store) AcquireLeases(ctx context.Context, partitions []string, worker string, d time.Duration) (holders []string, err error) {
	sorted := slices.Clone(partitions)
	for i, partition := range sorted {
		sorted[i] = s.Key(partition)
	}
	slices.Sort(sorted)
	holderOf := map[string]string{} // by key
	err = s.connect(ctx, "acquiring "+leasesOf(partitions), func(c Conn) error {
		for keys := range chunkLeases(slices.Compact(sorted)) {
			if err := s.acquireLeases(ctx, c, keys, worker, d, holderOf); err != nil {
				return err
			}
		}
		return nil
	})
	holders = make([]string, len(partitions))
	for i, partition := range partitions {
		holders[i] = holderOf[s.Key(partition)]
	}
	return holders, err
}

// leasesOf names leases in an error.
func leasesOf(partitions []string) string {
	switch len(partitions) {
	case 0:
		return "no leases"
	case 1:
		return "the lease of partition " + partitions[0]
	}
	return fmt.Sprintf("the lease of partition %s and of %d others", partitions[0], len(partitions)-1)
}

// acquireLeases acquires the leases that no other worker holds, and notes the holder of each.
func (s *Store) acquireLeases(ctx context.Context, c Conn, keys []string, worker string, d time.Duration, holderOf map[string]string) error {
	missing := keys
	for range leaseTries {
		if err := s.renewLeases(ctx, c, missing, worker, d); err != nil {
			return err
		}
		if err := s.readHolders(ctx, c, missing, holderOf); err != nil {
			return err
		}
		missing = slices.DeleteFunc(slices.Clone(missing), func(key string) bool { return holderOf[key] != "" })
		if len(missing) == 0 {
			return nil
		}
		if err := s.insertLeases(ctx, c, missing, worker, d); err != nil {
			if len(keys) > 1 && s.Database.Classify(err) == Rejected {
				return s.acquireEach(ctx, c, missing, worker, d, holderOf)
			}
			return err
		}
	}
	return fmt.Errorf("the lease of partition %s was deleted meanwhile", missing[0])
}

// acquireEach acquires leases one by one, so that a name that the server does not take costs no
// other partition its lease.
func (s *Store) acquireEach(ctx context.Context, c Conn, keys []string, worker string, d time.Duration, holderOf map[string]string) error {
	var errs []error
	for _, key := range keys {
		errs = append(errs, s.acquireLeases(ctx, c, []string{key}, worker, d, holderOf))
	}
	return errors.Join(errs...)
}

// renewLeases prolongs the leases of worker, and gives it those that have expired.
func (s *Store) renewLeases(ctx context.Context, c Conn, keys []string, worker string, d time.Duration) error {
	me := s.QuoteText(worker)
	return s.repeatConflict(ctx, c, fmt.Sprintf("UPDATE %s SET worker = %s, until = %s WHERE %s AND (worker = %[2]s OR until <= %[5]s)",
		s.Table(LeasesTable), me, s.Later(d), s.whereKeys(keys), s.Now))
}

// readHolders notes the holders of the leases that have a row.
func (s *Store) readHolders(ctx context.Context, c Conn, keys []string, holderOf map[string]string) error {
	rows, err := c.Query(ctx, fmt.Sprintf("SELECT %s, worker FROM %s WHERE %s", s.Quote("partition"), s.Table(LeasesTable), s.whereKeys(keys)))
	for _, row := range rows {
		holderOf[string(row[0])] = string(row[1])
	}
	return err
}

// insertLeases inserts leases that have no row. Where another worker inserts one of them at the
// same time, some or all may stay missing.
func (s *Store) insertLeases(ctx context.Context, c Conn, keys []string, worker string, d time.Duration) error {
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = strings.Join([]string{s.QuoteText(s.Key(s.Pipeline)), s.QuoteText(s.Target), s.QuoteText(key), s.QuoteText(worker), s.Later(d)}, ", ")
	}
	err := s.insertMissing(ctx, c, LeasesTable, "pipeline, target, "+s.Quote("partition")+", worker, until", strings.Join(values, "), ("))
	if s.Database.Classify(err) == Conflict {
		return nil
	}
	return err
}

// repeatConflict runs a statement again while it loses against other transactions.
func (s *Store) repeatConflict(ctx context.Context, c Conn, statement string) (err error) {
	for range leaseTries {
		if err = c.Exec(ctx, statement); err == nil || s.Database.Classify(err) != Conflict {
			return err
		}
	}
	return err
}

// whereKeys is the condition that finds the rows of partitions.
func (s *Store) whereKeys(keys []string) string {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = s.QuoteText(key)
	}
	return s.where() + " AND " + s.Quote("partition") + " IN (" + strings.Join(quoted, ", ") + ")"
}

// ReleaseLeases implements sink.LeaseStore. The rows stay, expired: a worker that asks
// at the same time finds them.
func (s *Store) ReleaseLeases(ctx context.Context, partitions []string, worker string) error {
	return s.connect(ctx, "releasing "+leasesOf(partitions), func(c Conn) error {
		keys := make([]string, len(partitions))
		for i, partition := range partitions {
			keys[i] = s.Key(partition)
		}
		slices.Sort(keys)
		for some := range chunkLeases(keys) {
			err := s.repeatConflict(ctx, c, fmt.Sprintf("UPDATE %s SET until = %s WHERE %s AND worker = %s",
				s.Table(LeasesTable), s.Now, s.whereKeys(some), s.QuoteText(worker)))
			if err != nil {
				return err
			}
		}
		return nil
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
