// Package mysql is a sink that inserts rows into a table of MySQL or MariaDB,
// each exactly once.
//
// A batch is one transaction: its rows, its range and, last, a shared lock on the
// owner's row, as package sqlsink describes. Everything from that lock to COMMIT is
// one packet: while a worker holds the lock, the server never waits for it, so a
// frozen worker cannot hold up the one that takes over. The note of a unit, and the lock on
// the unit's row, are in that packet too; only the first parts of a large note precede it. Its locks on rows go when
// the server ends the silent session, or when the next owner does.
//
// Sinks and writers are safe for concurrent use. Every write in progress uses its
// own connection.
package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// A Sink writes the rows of one pipeline to one table.
type Sink struct {
	config  Config
	target  *sqlsink.Target
	columns []event.Column
	log     *slog.Logger
	db      *sql.DB
	store   *sqlsink.Store

	mu       sync.Mutex
	reported choice // of the method, as the log has it
}

// New makes a sink. It does not connect.
func New(env sink.Env, config Config) (*Sink, error) {
	config.setDefaults()
	target := config.target()
	if err := config.check(target); err != nil {
		return nil, err
	}
	connection, compress, err := config.connection()
	if err != nil {
		return nil, err
	}
	connector, err := wire.NewConnector(connection, compress)
	if err != nil {
		return nil, fmt.Errorf("setting up the connection: %w", err)
	}
	s := &Sink{config: config, target: target, log: env.Log, columns: sqlsink.Spec(config.Columns), db: sql.OpenDB(connector)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if host, _, err := net.SplitHostPort(config.Address); err == nil && config.mayBePlain() {
		sqlsink.WarnUnencrypted(s.log, env.Pipeline, host)
	}
	s.store = &sqlsink.Store{Dialect: dialect, Database: s, Pipeline: env.Pipeline, Target: config.Table, Server: config.server(), State: env.State}
	s.db.SetConnMaxIdleTime(idleTimeout)
	s.db.SetMaxIdleConns(maxIdle)
	return s, nil
}

// maxIdle exceeds any sensible number of lanes, so that each finds its connection
// again.
const maxIdle = 64

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
func (s *Sink) Close() error { return s.db.Close() }

// Open implements sink.Sink. It checks the target first, creates what is missing and
// may be created, and takes the partition over.
func (s *Sink) Open(ctx context.Context, name string) (sink.Writer, event.Ranges, error) {
	p := &partition{Claim: s.store.NewClaim(name), sink: s}
	err := s.Connect(ctx, func(c sqlsink.Conn) (err error) {
		p.plan, err = s.prepare(ctx, c.(conn))
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
	return writer{w, p}, committed, nil
}

// prepare creates the tables that are missing and makes the plan.
func (s *Sink) prepare(ctx context.Context, c conn) (plan, error) {
	exists, err := s.tableExists(ctx, c)
	if err != nil {
		return plan{}, err
	}
	if !exists {
		if err := s.createTable(ctx, c); err != nil {
			return plan{}, err
		}
	}
	if err := s.store.CreateState(ctx, c); err != nil {
		return plan{}, err
	}
	return s.plan(ctx, c)
}

// A writer owns one partition.
type writer struct {
	positions.NoteWriter
	*partition
}

// Close implements sink.Writer.
func (w writer) Close() error {
	err := w.NoteWriter.Close()
	w.partition.close()
	return err
}
