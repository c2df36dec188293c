//go:build linux && cgo

package sqlworker

import "sync"

const (
	// statementsMax is how many statements are remembered, and rememberedMax how long one may
	// be: its syntax tree is a hundred times as large.
	statementsMax = 64
	rememberedMax = 2 << 10
)

// statements remembers the statements that were parsed and checked last: what shows tables
// and curves sends the same ones again and again, and parsing takes longer than a small query.
type statements struct {
	mu     sync.Mutex
	parsed map[string]*statement
	order  []string // oldest first
}

// parse returns what conn.parse does. The statement is shared, and must not be changed.
func (s *statements) parse(c *conn, sql string) (*statement, error) {
	s.mu.Lock()
	known := s.parsed[sql]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	parsed, err := c.parse(sql)
	if parsed != nil && err == nil && len(sql) <= rememberedMax {
		s.remember(sql, parsed)
	}
	return parsed, err
}

func (s *statements) remember(sql string, parsed *statement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parsed == nil {
		s.parsed = map[string]*statement{}
	}
	if s.parsed[sql] == nil {
		s.order = append(s.order, sql)
	}
	s.parsed[sql] = parsed
	if len(s.order) > statementsMax {
		delete(s.parsed, s.order[0])
		s.order = s.order[1:]
	}
}
