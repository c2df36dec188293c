package nodedb

import (
	"context"
	"sync"
)

// A Session is one user of a store. It holds locks, and trees in memory. Outside a transaction each
// of its changes is a transaction of its own, which this process sees at once. Other processes see
// it, and it survives a crash, after [Options.FlushInterval].
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

// NewMemory opens a session without a store. It has only trees in memory: names without ^.
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

// Update is Store.Update in this session. If the store was opened read-only, f may still change
// trees in memory.
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
