package mysql

import (
	"context"
	"database/sql"

	"github.com/perigeedb/perigee/sink/mysql/internal/wire"
)

// A plan is how rows get into the table, by what the server and the table are.
type plan struct {
	packet int    // bytes of the largest packet that the server takes
	scales []int  // of our columns: digits after the point that a decimal keeps, or -1
	head   string // of an INSERT, up to its rows
	tail   string // of an INSERT, from its rows on
	way    way
	load   string      // of LOAD DATA, from the end of its file's name on
	kinds  []wire.Kind // of our columns: what they are in arrays
}

// settled is what the server's administrator has settled.
type settled struct {
	packet, flush, lockMode int
	localInfile             bool
	noArrays                string // why it is given no arrays of parameters; empty: it takes them
}

// plan looks at the table and the server, and refuses what cannot work.
func (s *Sink) plan(ctx context.Context, conn *sql.Conn) (plan, error) {
	p := plan{head: s.config.insertHead()}
	engine, err := s.engine(ctx, conn)
	if err != nil {
		return p, err
	}
	if err := s.config.checkEngine(engine.String); err != nil {
		return p, err
	}
	columns, err := s.readColumns(ctx, conn)
	if err != nil {
		return p, err
	}
	if err := s.config.checkColumns(columns); err != nil {
		return p, err
	}
	for _, c := range s.columns {
		p.scales = append(p.scales, find(columns, c.Name).scale)
	}
	keys, err := s.readKeys(ctx, conn)
	if err != nil {
		return p, err
	}
	if p.tail, err = s.config.onDuplicate(keys); err != nil {
		return p, err
	}
	server, err := s.readServer(ctx, conn)
	if err != nil {
		return p, err
	}
	p.packet = server.packet
	chosen, err := s.config.choose(server, columns)
	p.way, p.load, p.kinds = chosen.way, s.config.loadStatement(), kindsOf(s.columns, columns)
	s.say(chosen, server)
	return p, err
}

func (s *Sink) readServer(ctx context.Context, conn *sql.Conn) (v settled, err error) {
	err = conn.QueryRowContext(ctx, "SELECT @@max_allowed_packet, @@innodb_flush_log_at_trx_commit, @@innodb_autoinc_lock_mode, @@local_infile").
		Scan(&v.packet, &v.flush, &v.lockMode, &v.localInfile)
	if err == nil {
		v.noArrays, err = hindersArrays(ctx, conn)
	}
	return v, err
}

// hindersArrays asks why a server is given no arrays of parameters; empty when it
// is. A server that logs statements has none for an array.
func hindersArrays(ctx context.Context, conn *sql.Conn) (why string, err error) {
	if !wireOf(conn).TakesArrays() {
		return "only MariaDB takes arrays of parameters, and not through tls or compress", nil
	}
	var statements bool
	if err := conn.QueryRowContext(ctx, "SELECT @@log_bin AND @@binlog_format = 'STATEMENT'").Scan(&statements); err != nil {
		return "", err
	}
	if statements {
		return "binlog_format is STATEMENT, and arrays of parameters take MIXED or ROW", nil
	}
	return "", nil
}

// say tells a person what was found, once.
func (s *Sink) say(chosen choice, server settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said == chosen {
		return
	}
	s.said = chosen
	s.log.Info("rows go into the table by "+chosen.way.String(),
		"sink", s.config.server(), "table", s.config.Table, "because", chosen.why)
	if server.flush != 1 {
		s.log.Warn("the server may lose committed rows, and the events in them, when its machine fails",
			"sink", s.config.server(), "innodb_flush_log_at_trx_commit", server.flush, "hint", "set it to 1")
	}
}
