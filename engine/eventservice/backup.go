//go:build linux && cgo

package eventservice

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/internal/datafolder"
)

// Restore restores an event store from a backup, into a data folder that has no event store
// and no running engine.
func Restore(data string, backup io.Reader) error {
	lock, err := datafolder.Lock(data)
	if err != nil {
		return err
	}
	return errors.Join(eventstore.Restore(filepath.Join(data, folderName), backup), lock.Close())
}
