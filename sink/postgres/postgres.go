// Package postgres is a sink that copies rows into a table of PostgreSQL, each
// exactly once.
//
// Two tables beside the target make that so. perigee_owners has a row for each
// pipeline, table and partition with the epoch of its present owner;
// perigee_ranges has the positions that are committed, with the fingerprints
// that the source gave them. A batch is one transaction and one round trip: COPY
// of its rows, its range and, last, a shared lock on the owner's row, which fails
// unless the epoch is the writer's own. The server has all of it, COMMIT
// included, before the first row, so from that lock on it waits for nobody. A
// worker that is frozen before has not got the lock: whoever takes over raises
// the epoch, commits, ends the connections that still have a transaction of the
// partition, and only then reads the ranges.
//
// Sinks and writers are safe for concurrent use. Every write in progress uses a
// connection of its own.
package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// A Sink writes the rows of one pipeline to one table.
type Sink struct {
	config   Config
	pipeline string
	columns  []event.Column
	log      *slog.Logger
	pool     pool
	batches  batches
	owner    string // names this process in perigee_owners, for people

	mu       sync.Mutex
	prepared bool // the tables of the ledger are there
}

// New makes a sink. It does not connect.
func New(env sink.Env, config Config) (*Sink, error) {
	if config.Address == "" {
		config.Address = "127.0.0.1:5432"
	}
	if config.Schema == "" {
		config.Schema = "public"
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	connection, err := config.connection()
	if err != nil {
		return nil, err
	}
	s := &Sink{config: config, pipeline: env.Pipeline, log: env.Log, columns: table.Spec(config.Columns)}
	s.pool.config = connection
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	host, _ := os.Hostname()
	s.owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	return s, nil
}

// Traits implements sink.Sink. Of two rows with one key that are upserted, the later
// must win.
func (s *Sink) Traits() sink.Traits {
	t := sink.Traits{
		Columns: s.columns, ColumnsOnly: true, Order: sink.AnyOrder,
		Leases: s, Positions: s, Check: s.check,
	}
	if s.config.Mode == table.Upsert {
		t.Order = sink.StrictOrder
	}
	return t
}

// Close implements sink.Sink.
func (s *Sink) Close() error {
	s.pool.close()
	return nil
}

// Open implements sink.Sink. It looks at the table first, makes what is absent
// and may be made, and takes the partition over.
func (s *Sink) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	b := &book{sink: s, partition: partition, token: s.owner + ":" + rand.Text()[:12]}
	if err := b.prepare(ctx); err != nil {
		return nil, nil, err
	}
	entries, err := b.takeOver(ctx)
	if judge(err) == refused {
		err = &event.PermanentError{Err: err, Hint: "perigee_owners can't hold the names of the pipeline and the partition; shorten them"}
	}
	if err != nil {
		return nil, nil, s.explain("taking over the partition", err)
	}
	w, done := positions.NewWriter(b, entries, s.log)
	return w, done, nil
}

// prepare checks the target and makes the tables that are absent.
func (b *book) prepare(ctx context.Context) error {
	s := b.sink
	c, err := s.pool.take(ctx)
	if err != nil {
		return s.explain("connecting", err)
	}
	defer s.pool.give(ctx, c)
	target, err := s.prepareTarget(ctx, c)
	if err == nil {
		b.plan, err = s.config.plan(target)
	}
	if err != nil {
		return s.explain("checking table "+s.config.Table, err)
	}
	if err := s.prepareLedger(ctx, c); err != nil {
		return s.explain("making the tables of the ledger", err)
	}
	return s.explain("reading the settings of the server", b.readSettings(ctx, c))
}

func (b *book) readSettings(ctx context.Context, c *conn) error {
	s := b.sink
	rows, err := c.do(ctx, fmt.Sprintf(`SELECT %s::regclass::oid, current_setting('fsync'), current_setting('synchronous_commit')`,
		quoteText(s.config.in(rangesTable))))
	if err != nil {
		return err
	}
	oid, err := strconv.ParseUint(string(rows[0][0]), 10, 32)
	if err != nil {
		return err
	}
	// Locks are asked for by a signed number, and listed by an unsigned one.
	b.locks, b.lockClass = strconv.FormatUint(oid, 10), strconv.Itoa(int(int32(uint32(oid))))
	for i, setting := range []string{"fsync", "synchronous_commit"} {
		if string(rows[0][i+1]) == "off" {
			s.log.Warn("the server may lose committed rows, and the events in them, when its machine fails",
				"sink", s.config.Address, setting, "off", "hint", "set it to on")
		}
	}
	return nil
}
