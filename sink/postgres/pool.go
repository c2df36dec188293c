package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxIdle is above any sensible number of lanes: a lane finds its connection again.
const maxIdle = 64

// A conn is a connection, used by one at a time.
type conn struct {
	*pgconn.PgConn
	staged bool      // its session has the staging table
	since  time.Time // when it became idle
}

// A pool keeps connections for the next who needs one.
type pool struct {
	config *pgconn.Config

	mu     sync.Mutex
	idle   []*conn // the one used last is the last
	closed bool
}

var errSinkClosed = errors.New("the sink is closed")

// take returns a connection that is in no transaction.
func (p *pool) take(ctx context.Context) (*conn, error) {
	c, err := p.last()
	if c != nil || err != nil {
		return c, err
	}
	connected, err := pgconn.ConnectConfig(ctx, p.config)
	if err != nil {
		return nil, err
	}
	return &conn{PgConn: connected}, nil
}

// last returns the connection used last, unless it has been idle for long: the
// server, or something on the way to it, may have given it up.
func (p *pool) last() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errSinkClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	if time.Since(p.idle[n-1].since) > idleTimeout {
		p.forget()
		return nil, nil
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c, nil
}

// give takes a connection back, whatever state it is in.
func (p *pool) give(ctx context.Context, c *conn) {
	if !c.IsClosed() && c.TxStatus() != 'I' {
		rollBack(ctx, c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.IsClosed():
		p.forget() // what has ended this one has ended the others
	case c.TxStatus() != 'I' || p.closed || len(p.idle) >= maxIdle:
		hangUp(c)
	default:
		c.since = time.Now()
		p.idle = append(p.idle, c)
	}
}

// forget closes the idle connections. The pool is locked.
func (p *pool) forget() {
	for _, c := range p.idle {
		hangUp(c)
	}
	p.idle = p.idle[:0]
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.forget()
}

// endTimeout is how long a server may take to roll back before its connection
// is given up, which rolls back too.
const endTimeout = 5 * time.Second

// rollBack ends a transaction that failed, also when ctx is cancelled.
func rollBack(ctx context.Context, c *conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = c.Exec(ctx, "ROLLBACK").Close()
}

// hangUp says goodbye and does not wait for an answer.
func hangUp(c *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// do runs statements and returns the rows of the last of them, as text. A null
// is nil.
func (c *conn) do(ctx context.Context, statements string) ([][][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	results, err := c.Exec(ctx, statements).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return results[len(results)-1].Rows, nil
}
