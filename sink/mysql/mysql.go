// Package mysql is a sink that inserts rows into a table of MySQL or MariaDB,
// each exactly once.
//
// Two tables beside the target make that so. perigee_owners has a row for each
// pipeline, table and partition with the epoch of its present owner;
// perigee_ranges has the positions that are committed, with the fingerprints
// that the source gave them. A batch is one transaction: its rows, its range and,
// last, a shared lock on the owner's row, which fails unless the epoch is the
// writer's own. The end of it, from that lock to COMMIT, is one packet: while a
// worker holds the lock, the server never waits for it, so a worker that is
// frozen cannot hold up the one that takes over; its locks on rows go when the
// server ends the silent session. Taking over raises the epoch, commits, and
// only then reads the ranges.
//
// Sinks and writers are safe for concurrent use. Every write in progress uses a
// connection of its own.
package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/table"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// A Sink writes the rows of one pipeline to one table.
type Sink struct {
	config   Config
	pipeline string
	columns  []event.Column
	log      *slog.Logger
	db       *sql.DB
	owner    string // names this process in perigee_owners, for people

	mu       sync.Mutex
	prepared bool   // the ledger is there
	said     choice // how rows get into the table, as the log has it
}

// New makes a sink. It does not connect.
func New(env sink.Env, config Config) (*Sink, error) {
	if config.Address == "" && config.Socket == "" {
		config.Address = "127.0.0.1:3306"
	}
	if config.Mode == "" {
		config.Mode = table.Insert
	}
	if config.Method == "" {
		config.Method = Auto
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	connection, err := config.connection()
	if err != nil {
		return nil, err
	}
	connector, err := wire.NewConnector(connection)
	if err != nil {
		return nil, fmt.Errorf("setting up the connection: %w", err)
	}
	s := &Sink{config: config, pipeline: env.Pipeline, log: env.Log, columns: table.Spec(config.Columns), db: sql.OpenDB(connector)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.db.SetConnMaxIdleTime(idleTimeout)
	s.db.SetMaxIdleConns(maxIdle)
	host, _ := os.Hostname()
	s.owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	return s, nil
}

// maxIdle is above any sensible number of lanes: a lane finds its connection again.
const maxIdle = 64

// Traits implements sink.Sink. Of two rows with one key that are upserted, the later
// must win.
func (s *Sink) Traits() sink.Traits {
	t := sink.Traits{
		Columns: s.columns, ColumnsOnly: true, Order: sink.AnyOrder,
		Leases: s, Positions: s, Check: s.checkServer,
	}
	if s.config.Mode == table.Upsert {
		t.Order = sink.StrictOrder
	}
	return t
}

// Close implements sink.Sink.
func (s *Sink) Close() error { return s.db.Close() }

// Open implements sink.Sink. It looks at the table first, makes what is absent
// and may be made, and takes the partition over.
func (s *Sink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	plan, err := s.prepare(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := &book{sink: s, partition: partition, plan: plan, token: s.owner + ":" + rand.Text()[:12]}
	entries, err := b.takeOver(ctx)
	if judge(err) == refused {
		err = &event.PermanentError{Err: err, Hint: "perigee_owners can't hold the names of the pipeline and the partition; shorten them"}
	}
	if err != nil {
		return nil, nil, s.explain("taking over the partition", err)
	}
	w, done := positions.NewWriter(b, entries, s.log)
	return writer{w, b}, done, nil
}

// prepare checks the target and makes the tables that are absent.
func (s *Sink) prepare(ctx context.Context) (plan, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return plan{}, s.explain("connecting", err)
	}
	defer conn.Close()
	if err := s.prepareTarget(ctx, conn); err != nil {
		return plan{}, s.explain("checking table "+s.config.Table, err)
	}
	if err := prepareLedger(ctx, conn, s.config.Database); err != nil {
		return plan{}, s.explain("making the tables of the ledger", err)
	}
	p, err := s.plan(ctx, conn)
	return p, s.explain("checking table "+s.config.Table, err)
}

// quote quotes the name of a table or a column.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
