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
)

// A session is a connection of one writer, with what is prepared on it. Its lock
// on the server has a name that follows from the writer's token, so that whoever
// takes over can find the connection and end it.
type session struct {
	conn     *sql.Conn
	slot     int // -1: without a lock
	used     time.Time
	rows     bytes.Reader // what the server reads when it loads
	loading  string       // name of rows at the driver
	prepared map[int]driver.Stmt
	args     []driver.NamedValue
}

// slots is how many connections of a writer can be found by who takes over.
const slots = 64

// session returns a connection that is alive as far as one can tell.
func (w *writer) session(ctx context.Context) (*session, error) {
	for s := w.spareSession(); s != nil; s = w.spareSession() {
		if time.Since(s.used) < idleTimeout && s.alive(ctx) {
			return s, nil
		}
		w.forget(s)
	}
	return w.newSession(ctx)
}

func (w *writer) spareSession() *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.sessions)
	if n == 0 {
		return nil
	}
	s := w.sessions[n-1]
	w.sessions = w.sessions[:n-1]
	return s
}

// alive asks the driver, which looks whether the server has hung up.
func (s *session) alive(ctx context.Context) bool {
	return s.conn.Raw(func(c any) error { return c.(driver.SessionResetter).ResetSession(ctx) }) == nil
}

func (w *writer) newSession(ctx context.Context) (*session, error) {
	conn, err := w.sink.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, slot: w.takeSlot(), prepared: map[int]driver.Stmt{}}
	if s.slot >= 0 {
		// Where the server knows no such locks, its timeouts must do.
		_, err = conn.ExecContext(ctx, "DO GET_LOCK(?, 0)", lockName(w.token, s.slot))
		if judge(err) == unknown && err != nil {
			w.forget(s)
			return nil, err
		}
		s.loading = lockName(w.token, s.slot)
		mysql.RegisterReaderHandler(s.loading, func() io.Reader { return &s.rows })
	}
	return s, nil
}

// keep puts a session back for the next write.
func (w *writer) keep(s *session) {
	s.used = time.Now()
	w.mu.Lock()
	ended := w.ended != nil
	if !ended {
		w.sessions = append(w.sessions, s)
	}
	w.mu.Unlock()
	if ended {
		w.forget(s)
	}
}

// forget closes a session, and with it whatever it has under way.
func (w *writer) forget(s *session) {
	if s.loading != "" {
		mysql.DeregisterReaderHandler(s.loading)
	}
	discard(s.conn)
	if s.slot < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken[s.slot] = false
}

func (w *writer) forgetAll() {
	for s := w.spareSession(); s != nil; s = w.spareSession() {
		w.forget(s)
	}
}

// takeSlot returns the lowest slot that no session has, or -1.
func (w *writer) takeSlot() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.taken[:], false)
	if i >= 0 {
		w.taken[i] = true
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
	var b strings.Builder
	for slot := range slots {
		if slot > 0 {
			b.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&b, "SELECT IS_USED_LOCK(%s)", quoteText(lockName(token, slot)))
	}
	rows, err := conn.QueryContext(ctx, b.String())
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
