// Package postgres is a sink that copies rows into a table of PostgreSQL, each
// exactly once.
//
// A batch is one transaction and one round trip: COPY of its rows, the note of a unit if
// there is one, its range and, last, a shared lock on the owner's row, as package sqlsink describes. The server
// has all of it, COMMIT included, before the first row, so that from that lock on it
// waits for nobody. A worker that is frozen before has not got the lock: the next
// owner raises the epoch, commits, ends the connections that still have a
// transaction of the partition, and only then reads the ranges.
//
// Sinks and writers are safe for concurrent use. Every write in progress uses its
// own connection.
package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// A Sink writes the rows of one pipeline to one table.
type Sink struct {
	config  Config
	target  *sqlsink.Target
	columns []event.Column
	log     *slog.Logger
	pool    pool
	batches batches
	store   *sqlsink.Store
	ranges  atomic.Uint32 // the oid of perigee_ranges
}

// New makes a sink. It does not connect.
func New(env sink.Env, config Config) (*Sink, error) {
	config.setDefaults()
	target := config.target()
	if err := config.check(target); err != nil {
		return nil, err
	}
	connection, err := config.connection()
	if err != nil {
		return nil, err
	}
	s := &Sink{config: config, target: target, log: env.Log, columns: sqlsink.Spec(config.Columns)}
	s.pool.config = connection
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if host, _, err := config.server(); err == nil && config.mayBePlain() {
		sqlsink.WarnUnencrypted(s.log, env.Pipeline, host)
	}
	s.store = &sqlsink.Store{
		Dialect: target.Dialect, Database: s, Pipeline: env.Pipeline, Target: config.Table, Server: config.Address, State: env.State,
	}
	return s, nil
}

// Traits implements sink.Sink. Of two upserted rows with the same key, the later must
// win.
func (s *Sink) Traits() sink.Traits {
	t := sink.Traits{
		Columns: s.columns, ColumnsOnly: true, Order: sink.AnyOrder,
		Leases: s.store, Positions: s.store, Units: s.store, Check: s.check, Tables: s.tables,
	}
	if s.config.Mode == sqlsink.Upsert {
		t.Order = sink.StrictOrder
	}
	return t
}

// Close implements sink.Sink.
func (s *Sink) Close() error {
	s.pool.close()
	return nil
}

// Open implements sink.Sink. It checks the target first, creates what is missing and
// may be created, and takes the partition over.
func (s *Sink) Open(ctx context.Context, name string) (sink.Writer, event.Ranges, error) {
	p := &partition{Claim: s.store.NewClaim(name), sink: s}
	err := s.Connect(ctx, func(c sqlsink.Conn) (err error) {
		p.plan, err = s.prepare(ctx, c.(*conn))
		return err
	})
	if err != nil {
		return nil, nil, s.store.Explain("checking table "+s.config.Table, err)
	}
	entries, err := p.TakeOver(ctx)
	if err != nil {
		return nil, nil, err
	}
	w, committed := positions.NewNoteWriter(p, entries, s.log)
	return w, committed, nil
}

// prepare creates the tables that are missing and makes the plan.
func (s *Sink) prepare(ctx context.Context, c *conn) (*plan, error) {
	exists, err := s.tableExists(ctx, c)
	if err != nil {
		return nil, err
	}
	if !exists {
		if err := s.createTable(ctx, c); err != nil {
			return nil, err
		}
	}
	plan, err := s.plan(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.store.CreateState(ctx, c); err != nil {
		return nil, err
	}
	return plan, s.readSettings(ctx, c)
}

func (s *Sink) readSettings(ctx context.Context, c *conn) error {
	rows, err := c.Query(ctx, fmt.Sprintf(`SELECT %s::regclass::oid, current_setting('fsync'), current_setting('synchronous_commit')`,
		quoteText(s.target.Dialect.Table(sqlsink.RangesTable))))
	if err != nil {
		return err
	}
	oid, err := strconv.ParseUint(string(rows[0][0]), 10, 32)
	if err != nil {
		return err
	}
	s.ranges.Store(uint32(oid))
	for i, setting := range []string{"fsync", "synchronous_commit"} {
		if string(rows[0][i+1]) == "off" {
			s.log.Warn("the server may lose committed rows, and the events in them, when its machine fails",
				"sink", s.config.Address, setting, "off", "hint", "set it to on")
		}
	}
	return nil
}

// lockClass is the class of the advisory locks of writers. The server takes it as a
// signed number, and lists it as an unsigned one.
func (s *Sink) lockClass(signed bool) string {
	if signed {
		return strconv.Itoa(int(int32(s.ranges.Load())))
	}
	return strconv.FormatUint(uint64(s.ranges.Load()), 10)
}
