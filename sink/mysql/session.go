package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// A conn is a connection. It implements sqlsink.Conn.
type conn struct{ *sql.Conn }

// Query implements sqlsink.Conn.
func (c conn) Query(ctx context.Context, statement string) ([][][]byte, error) {
	rows, err := c.QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var all [][][]byte
	for rows.Next() {
		row, into := make([][]byte, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// Exec implements sqlsink.Conn.
func (c conn) Exec(ctx context.Context, statements string) error {
	_, err := c.ExecContext(ctx, statements)
	return err
}

// send runs statements. The driver copies their text into its packet and keeps
// nothing of it.
func (c conn) send(ctx context.Context, statements []byte) error {
	return c.Exec(ctx, unsafe.String(unsafe.SliceData(statements), len(statements)))
}

// wire is the connection below the one of package sql.
func (c conn) wire() (w *wire.Conn) {
	_ = c.Raw(func(raw any) error {
		w, _ = raw.(*wire.Conn)
		return nil
	})
	return w
}

// close makes sure that a connection is closed and not used again.
func (c conn) close() {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
}

const (
	rollBackTimeout = 5 * time.Second  // after which the connection is closed, which rolls back too
	idleTimeout     = 10 * time.Second // after which the sink closes an idle connection
)

// rollBack ends a transaction that failed, also when ctx is cancelled.
func rollBack(ctx context.Context, c conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollBackTimeout)
	defer cancel()
	if err := c.Exec(ctx, "ROLLBACK"); err != nil {
		c.close()
	}
}

// Connect implements sqlsink.Database.
func (s *Sink) Connect(ctx context.Context, f func(sqlsink.Conn) error) error {
	return s.ConnectOnce(ctx, f)
}

// ConnectOnce implements sqlsink.Database.
func (s *Sink) ConnectOnce(ctx context.Context, f func(sqlsink.Conn) error) error {
	raw, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	c := conn{raw}
	defer c.Close()
	if err = f(c); err != nil {
		rollBack(ctx, c)
	}
	return err
}

// A session is a connection of one partition, with what is prepared on it. It holds
// a named lock of the server, whose name follows from the token of the claim, so that
// the next owner can find the connection and end it.
type session struct {
	conn     conn
	wire     *wire.Conn // below conn
	slot     int        // of the partition; -1: without a lock
	lastUsed time.Time
	prepared map[int]*wire.Statement // by their rows
	bulk     *wire.Statement
}

// slots is how many sessions of a partition the next owner can find.
const slots = 64

// session returns a connection that is alive as far as one can tell.
func (p *partition) session(ctx context.Context) (*session, error) {
	for s := p.idleSession(); s != nil; s = p.idleSession() {
		if time.Since(s.lastUsed) < idleTimeout && s.isAlive(ctx) {
			return s, nil
		}
		p.discard(s)
	}
	return p.newSession(ctx)
}

func (p *partition) idleSession() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.sessions)
	if n == 0 {
		return nil
	}
	s := p.sessions[n-1]
	p.sessions = p.sessions[:n-1]
	return s
}

// isAlive asks the driver, which checks whether the server has closed the connection.
func (s *session) isAlive(ctx context.Context) bool {
	return s.conn.Raw(func(c any) error { return c.(driver.SessionResetter).ResetSession(ctx) }) == nil
}

func (p *partition) newSession(ctx context.Context) (*session, error) {
	raw, err := p.sink.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn{raw}, wire: conn{raw}.wire(), slot: p.reserveSlot(), prepared: map[int]*wire.Statement{}}
	if s.slot >= 0 {
		// The session that had the slot before may still be closing. On a server
		// without such locks, its timeouts must do.
		err = s.conn.Exec(ctx, "DO GET_LOCK("+quoteText(lockName(p.Token, s.slot))+", 1)")
		if _, server := errors.AsType[*mysql.MySQLError](err); err != nil && !server {
			p.discard(s)
			return nil, err
		}
	}
	return s, nil
}

// prepare returns a statement for rows, or nil if the server has no room for it.
func (s *session) prepare(ctx context.Context, text string, kinds []wire.Kind, rows int) (*wire.Statement, error) {
	statement, err := s.wire.PrepareRaw(ctx, text, kinds, rows)
	if isNumber(err, errTooManyStatements) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &statement, nil
}

// release makes a session available to the next write.
func (p *partition) release(s *session) {
	s.lastUsed = time.Now()
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.sessions = append(p.sessions, s)
	}
	p.mu.Unlock()
	if closed {
		p.discard(s)
	}
}

// discard closes a session, and with it whatever it has in flight.
func (p *partition) discard(s *session) {
	s.conn.close()
	if s.slot < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots[s.slot] = false
}

func (p *partition) closeSessions() {
	for s := p.idleSession(); s != nil; s = p.idleSession() {
		p.discard(s)
	}
}

func (p *partition) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closeSessions()
}

// reserveSlot returns the lowest slot that no session has, or -1.
func (p *partition) reserveSlot() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.slots[:], false)
	if i >= 0 {
		p.slots[i] = true
	}
	return i
}

// lockName has at most 64 characters, whatever the token: its end is random.
func lockName(token string, slot int) string {
	return fmt.Sprintf("perigee:%s:%d", token[strings.LastIndexByte(token, ':')+1:], slot)
}

// Evict implements sqlsink.Database. A worker that is frozen inside a transaction
// would keep its rows locked until the server's timeouts.
func (s *Sink) Evict(ctx context.Context, c sqlsink.Conn, _ uint64, previous string) error {
	if err := s.endSessions(ctx, c, previous); err != nil && ctx.Err() == nil {
		s.log.Debug("ending the connections of the previous owner", "owner", previous, "error", err)
	}
	return nil
}

func (s *Sink) endSessions(ctx context.Context, c sqlsink.Conn, token string) error {
	queries := make([]string, slots)
	for slot := range queries {
		queries[slot] = "SELECT IS_USED_LOCK(" + quoteText(lockName(token, slot)) + ")"
	}
	rows, err := c.Query(ctx, strings.Join(queries, " UNION ALL "))
	if err != nil {
		return err
	}
	var errs []error
	for _, row := range rows {
		if row[0] == nil {
			continue
		}
		if err := c.Exec(ctx, "KILL "+string(row[0])); err != nil && !isNumber(err, errNoSuchThread) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
