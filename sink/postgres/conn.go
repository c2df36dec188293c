package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// maxIdle exceeds any sensible number of lanes, so that each finds its connection
// again.
const maxIdle = 64

// A conn is a connection, for one goroutine at a time. It implements sqlsink.Conn.
type conn struct {
	*pgconn.PgConn
	staged    bool // its session has the staging table
	idleSince time.Time
}

// Query implements sqlsink.Conn. Of several statements it returns the rows of the
// last.
func (c *conn) Query(ctx context.Context, statements string) ([][][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	results, err := c.PgConn.Exec(ctx, statements).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return results[len(results)-1].Rows, nil
}

// Exec implements sqlsink.Conn.
func (c *conn) Exec(ctx context.Context, statements string) error {
	_, err := c.Query(ctx, statements)
	return err
}

// isTrue runs a query of one truth value.
func (c *conn) isTrue(ctx context.Context, query string) (bool, error) {
	rows, err := c.Query(ctx, query)
	return err == nil && string(rows[0][0]) == "t", err
}

// hangUp says goodbye and does not wait for an answer.
func (c *conn) hangUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// rollBackTimeout is how long a server may take to roll back before its connection is
// closed, which rolls back too.
const rollBackTimeout = 5 * time.Second

// rollBack ends a transaction that failed, also when ctx is cancelled.
func rollBack(ctx context.Context, c *conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackTimeout)
	defer cancel()
	_ = c.PgConn.Exec(ctx, "ROLLBACK").Close()
}

// A pool keeps idle connections.
type pool struct {
	config *pgconn.Config

	mu     sync.Mutex
	idle   []*conn // the one used last is the last
	closed bool
}

var errSinkClosed = errors.New("the sink is closed")

// get returns a connection that is in no transaction.
func (p *pool) get(ctx context.Context) (*conn, error) {
	c, err := p.lastIdle()
	if c != nil || err != nil {
		return c, err
	}
	connected, err := pgconn.ConnectConfig(ctx, p.config)
	if err != nil {
		return nil, err
	}
	return &conn{PgConn: connected}, nil
}

// lastIdle returns the connection used last, unless it has been idle for long: the
// server, or a device between the two, may have dropped it.
func (p *pool) lastIdle() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errSinkClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	if time.Since(p.idle[n-1].idleSince) > idleTimeout {
		p.closeIdle()
		return nil, nil
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c, nil
}

// put takes a connection back, whatever state it is in.
func (p *pool) put(ctx context.Context, c *conn) {
	if !c.IsClosed() && c.TxStatus() != 'I' {
		rollBack(ctx, c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.IsClosed():
		p.closeIdle() // what has ended this one has probably ended the others
	case c.TxStatus() != 'I' || p.closed || len(p.idle) >= maxIdle:
		c.hangUp()
	default:
		c.idleSince = time.Now()
		p.idle = append(p.idle, c)
	}
}

// closeIdle closes the idle connections. The pool is locked.
func (p *pool) closeIdle() {
	for _, c := range p.idle {
		c.hangUp()
	}
	p.idle = p.idle[:0]
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.closeIdle()
}

// Connect implements sqlsink.Database. It calls f again if the connection was ended:
// a worker that evicts another may hit a connection that has just become idle.
func (s *Sink) Connect(ctx context.Context, f func(sqlsink.Conn) error) error {
	ended, err := s.withConn(ctx, f)
	if err != nil && ended && ctx.Err() == nil {
		_, err = s.withConn(ctx, f)
	}
	return err
}

// ConnectOnce implements sqlsink.Database.
func (s *Sink) ConnectOnce(ctx context.Context, f func(sqlsink.Conn) error) error {
	_, err := s.withConn(ctx, f)
	return err
}

// withConn calls f with a connection, and reports whether the connection was ended by then.
func (s *Sink) withConn(ctx context.Context, f func(sqlsink.Conn) error) (ended bool, err error) {
	c, err := s.pool.get(ctx)
	if err != nil {
		return false, err
	}
	err = f(c)
	ended = c.IsClosed()
	s.pool.put(ctx, c)
	return ended, err
}

// Evict implements sqlsink.Database. A worker that is frozen in the middle of its
// rows would keep their keys locked. Its connections are found by an advisory lock on
// the oid of perigee_ranges and the owner's id.
func (s *Sink) Evict(ctx context.Context, c sqlsink.Conn, ownerID uint64, _ string) error {
	err := c.Exec(ctx, fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 2 AND classid = %s AND objid = %d AND pid <> pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, s.lockClass(false), ownerID))
	if classify(err) == sqlsink.Permanent {
		s.log.Warn("cannot end a worker that lost the partition inside a transaction; its locks last as long as it does",
			"error", err, "hint", "let all workers use the same role")
		return nil
	}
	return err
}
