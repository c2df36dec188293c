//go:build linux && cgo

package eventservice

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/internal/datafolder"
)

// Backup writes the event store in a data folder, as it is now, to out. A running engine
// continues meanwhile.
func Backup(ctx context.Context, data string, out io.Writer) error {
	err := admin.Post(ctx, data, "/backup", nil, nil, out)
	if !errors.Is(err, admin.ErrNoEngine) {
		return err
	}
	return withStore(data, func(s *Store) error {
		store, err := s.openExisting()
		if err != nil {
			return err
		}
		return store.Backup(ctx, out)
	})
}

// Restore restores an event store from a backup, into a data folder that has no event store
// and no running engine.
func Restore(data string, backup io.Reader) error {
	lock, err := datafolder.Lock(data)
	if err != nil {
		return err
	}
	return errors.Join(eventstore.Restore(filepath.Join(data, folderName), backup), lock.Close())
}
