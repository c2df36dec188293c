package statement

import (
	"sync"
)

const (
	statementsMax = 64      // in a Cache
	rememberedMax = 2 << 10 // maximum bytes of a cached statement: its syntax tree is a hundred times as large
)

// A Cache caches recently parsed and checked statements. Dashboards send the same statements
// repeatedly, and parsing takes longer than a small query.
type Cache struct {
	mu     sync.Mutex
	parsed map[string]*Statement
	order  []string // oldest first
}

// Parse is like the function Parse, but returns a cached statement if there is one.
func (s *Cache) Parse(c Runner, sql string) (*Statement, error) {
	s.mu.Lock()
	known := s.parsed[sql]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	parsed, err := Parse(c, sql)
	if parsed != nil && err == nil && len(sql) <= rememberedMax {
		s.remember(sql, parsed)
	}
	return parsed, err
}

func (s *Cache) remember(sql string, parsed *Statement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parsed == nil {
		s.parsed = map[string]*Statement{}
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
