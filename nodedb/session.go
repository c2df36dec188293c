package nodedb

import (
	"context"
	"sync"
)

// A Session is one user of a store: it holds locks, and trees in memory. Outside a transaction
// each of its changes is one of its own, which this process sees at once; see [Options.FlushInterval]
// for others, and for a crash.
type Session struct {
	nodes
	store  *Store // nil: trees in memory only
	closed sync.Once
}

// Session opens a session. Close it before the store.
func (s *Store) Session() (*Session, error) {
	core, err := s.acquire()
	if err != nil {
		return nil, named(err, "open session", Path{})
	}
	return &Session{nodes: nodes{session: &sharedSession{core: core, readOnly: s.readOnly}, readOnly: s.readOnly}, store: s}, nil
}

// NewMemory opens a session without a store, for trees in memory: names without ^.
func NewMemory() (*Session, error) {
	core, err := openMemory()
	if err != nil {
		return nil, named(err, "open session", Path{})
	}
	return &Session{nodes: nodes{session: &sharedSession{core: core}}}, nil
}

// Close rolls back an open transaction, releases the locks and frees the trees in memory.
func (s *Session) Close() {
	s.closed.Do(func() {
		s.session.close()
		if s.store != nil {
			s.store.forget()
		}
	})
}

// Update is Store.Update in this session. Of a store that was opened read-only, it may change trees
// in memory.
func (s *Session) Update(ctx context.Context, f func(tx *Tx) error) error {
	commit, err := update(ctx, s.session, f)
	if err != nil || s.store == nil || s.store.noWait {
		return err
	}
	return s.session.durable(commit)
}

// View is Store.View in this session.
func (s *Session) View(ctx context.Context, f func(tx *Tx) error) error {
	return view(ctx, s.session, f)
}
