package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
)

// RestoreResult describes a copy that was restored.
type RestoreResult struct {
	Note  uint64 `json:"note"`            // number of the last note, which is that of the home
	Aside string `json:"aside,omitempty"` // the folder of the copy of before; empty without one
}

// Restore makes the copy of a unit that no process has open, at exactly the last note that the home
// has, from the archive and the notes that the home keeps. It takes the unit over. A copy that
// exists, which may have later notes, gets another name. progress may be nil.
func (c *Config) Restore(ctx context.Context, name string, progress func(Progress)) (result RestoreResult, err error) {
	u := makeUnit(replica{config: c, name: name})
	if u.home, err = c.Home.OpenUnit(ctx, c.homeName(name)); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, u.home.Close()) }()
	status, err := u.home.Status(ctx)
	if err != nil {
		return result, err
	}
	if status.First > 1 && status.Last > 0 && c.Archive == nil {
		return result, c.NoArchive()
	}
	if err := durable.MkdirAll(c.Folder, 0o700); err != nil {
		return result, fmt.Errorf("create the folder of state %s: %w", c.Name, err)
	}
	folder := c.folderOf(name)
	r := u.newRestore(folder)
	r.progress = progress
	if status.First > 1 && status.Last > 0 {
		err = r.run(ctx, status)
	} else { // the home has all notes
		err = os.RemoveAll(r.building)
	}
	if err != nil {
		return result, err
	}
	if err := u.useCopy(r.building); err != nil {
		return result, err
	}
	err = u.catchUp(ctx, status)
	if err == nil {
		err = u.copy.Sync(ctx)
	}
	if err = errors.Join(err, u.closeCopy()); err != nil {
		return result, err
	}
	result.Note = status.Last
	if c.HasCopy(name) {
		result.Aside = freeName(folder + time.Now().UTC().Format(asideLayout))
	}
	return result, r.replace(result.Aside)
}

// freeName returns a name that no file has.
func freeName(name string) string {
	for free, i := name, 2; ; i++ {
		if _, err := os.Lstat(free); errors.Is(err, fs.ErrNotExist) {
			return free
		}
		free = fmt.Sprintf("%s-%d", name, i)
	}
}
