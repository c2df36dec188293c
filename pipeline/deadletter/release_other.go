//go:build !linux

package deadletter

func (s *Store) releasePages() error { return nil }
