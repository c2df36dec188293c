package lakecache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

// errFull reports a full disk.
var errFull = errors.New("the disk is full")

// fetchFile makes a file from its object and its footer. The file is durable before it has its
// name, so that a name on disk always means a whole file.
func (c *Cache) fetchFile(ctx context.Context, f *File) error {
	slots := c.slotsOf(f.Remote.Address)
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := os.MkdirAll(c.temp, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(c.temp, "fetch-*")
	if err != nil {
		return explainDisk(err, f)
	}
	defer os.Remove(temp.Name())
	err = c.write(ctx, temp, f)
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return explainDisk(err, f)
	}
	if err := ctx.Err(); err != nil { // nobody needs it any more
		return err
	}
	if err := os.Rename(temp.Name(), f.Path); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(f.Path))
}

// write writes the contents of a file, and compares the checksum of its data.
func (c *Cache) write(ctx context.Context, w io.Writer, f *File) error {
	content, err := c.objects.open(ctx, f.Remote.Address, 0, f.Remote.Data)
	if err != nil {
		return err
	}
	defer content.Close()
	sum := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(w, sum)}, content, make([]byte, 1<<20))
	if err != nil {
		return err
	}
	if n != f.Remote.Data || hex.EncodeToString(sum.Sum(nil)) != f.Remote.Sum {
		return objectError(f.Remote.Address, errors.New("checksum mismatch: the object is not the one that the store published"),
			"put the object back from a backup or an older version in the bucket; rows of other files can still be read")
	}
	footer, err := durable.ReadFile(f.Footer)
	if err == nil && int64(len(footer)) != f.Bytes-f.Remote.Data {
		err = fmt.Errorf("%s has %d bytes, not %d", f.Footer, len(footer), f.Bytes-f.Remote.Data)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(footer)
	return err
}

// explainDisk returns an error that says what to do about a full disk.
func explainDisk(err error, f *File) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return &event.PermanentError{Err: fmt.Errorf("%w: it has no room for %s of %s", errFull, size(f.Bytes), f.Remote.Address),
		Hint: "free disk space, or lower lake_cache below query in the engine's configuration; rows on this disk can still be read"}
}
