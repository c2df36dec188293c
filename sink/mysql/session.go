package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// A session is a connection of one writer, with what is prepared on it. Its lock
// on the server has a name that follows from the writer's token, so that whoever
// takes over can find the connection and end it.
type session struct {
	conn     *sql.Conn
	wire     *wire.Conn // what conn is made of
	slot     int        // -1: without a lock
	used     time.Time
	rows     bytes.Reader // what the server reads when it loads
	loading  string       // name of rows at the driver
	prepared map[int]driver.Stmt
	arrays   *wire.Statement // that inserts any number of rows, once it is prepared
	args     []driver.NamedValue
}

const (
	endTimeout  = 5 * time.Second  // a server that takes longer to roll back is given up, which rolls back too
	idleTimeout = 10 * time.Second // after which an idle connection is closed by us
)

// slots is how many connections of a writer can be found by who takes over.
const slots = 64

// session returns a connection that is alive as far as one can tell.
func (b *book) session(ctx context.Context) (*session, error) {
	for s := b.spareSession(); s != nil; s = b.spareSession() {
		if time.Since(s.used) < idleTimeout && s.alive(ctx) {
			return s, nil
		}
		b.forget(s)
	}
	return b.newSession(ctx)
}

func (b *book) spareSession() *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.sessions)
	if n == 0 {
		return nil
	}
	s := b.sessions[n-1]
	b.sessions = b.sessions[:n-1]
	return s
}

// alive asks the driver, which looks whether the server has hung up.
func (s *session) alive(ctx context.Context) bool {
	return s.conn.Raw(func(c any) error { return c.(driver.SessionResetter).ResetSession(ctx) }) == nil
}

func (b *book) newSession(ctx context.Context) (*session, error) {
	conn, err := b.sink.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, wire: wireOf(conn), slot: b.takeSlot(), prepared: map[int]driver.Stmt{}}
	if s.slot >= 0 {
		// Whoever had the slot before may still be on its way out. Where a server
		// has no such locks, its timeouts must do.
		_, err = conn.ExecContext(ctx, "DO GET_LOCK(?, 1)", lockName(b.token, s.slot))
		if _, refused := errors.AsType[*mysql.MySQLError](err); err != nil && !refused {
			b.forget(s)
			return nil, err
		}
		s.loading = lockName(b.token, s.slot)
		mysql.RegisterReaderHandler(s.loading, func() io.Reader { return &s.rows })
	}
	return s, nil
}

// wireOf is what a connection of the sink is made of.
func wireOf(conn *sql.Conn) (w *wire.Conn) {
	_ = conn.Raw(func(c any) error {
		w, _ = c.(*wire.Conn)
		return nil
	})
	return w
}

// keep puts a session back for the next write.
func (b *book) keep(s *session) {
	s.used = time.Now()
	b.mu.Lock()
	ended := b.closed
	if !ended {
		b.sessions = append(b.sessions, s)
	}
	b.mu.Unlock()
	if ended {
		b.forget(s)
	}
}

// forget closes a session, and with it whatever it has under way.
func (b *book) forget(s *session) {
	if s.loading != "" {
		mysql.DeregisterReaderHandler(s.loading)
	}
	discard(s.conn)
	if s.slot < 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[s.slot] = false
}

func (b *book) forgetAll() {
	for s := b.spareSession(); s != nil; s = b.spareSession() {
		b.forget(s)
	}
}

// takeSlot returns the lowest slot that no session has, or -1.
func (b *book) takeSlot() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.taken[:], false)
	if i >= 0 {
		b.taken[i] = true
	}
	return i
}

// lockName is of at most 64 characters, whatever the token: its end is random.
func lockName(token string, slot int) string {
	return fmt.Sprintf("perigee:%s:%d", token[strings.LastIndexByte(token, ':')+1:], slot)
}

// evict ends the connections of the writer that had token: frozen inside a
// transaction, it would hold the locks on its rows until the server's timeouts.
// It is about time only, and right whatever comes of it.
func (s *Sink) evict(ctx context.Context, conn *sql.Conn, token string) {
	if err := s.tryEvict(ctx, conn, token); err != nil && ctx.Err() == nil {
		s.log.Debug("ending the connections of the owner before", "owner", token, "error", err)
	}
}

func (s *Sink) tryEvict(ctx context.Context, conn *sql.Conn, token string) error {
	asked := make([]string, slots)
	for slot := range asked {
		asked[slot] = "SELECT IS_USED_LOCK(" + quoteText(lockName(token, slot)) + ")"
	}
	rows, err := conn.QueryContext(ctx, strings.Join(asked, " UNION ALL "))
	if err != nil {
		return err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id sql.NullInt64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		if id.Valid {
			ids = append(ids, id.Int64)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var faults []error
	for _, id := range ids {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err != nil && !isNumber(err, 1094) { // it is gone
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// rollBack ends a transaction that failed, also when ctx is cancelled.
func rollBack(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		discard(conn)
	}
}

// discard makes sure that a connection is closed and not used again.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
