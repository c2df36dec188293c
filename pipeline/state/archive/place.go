// Package archive keeps what units of states need to be restored on another machine: their notes,
// in segments, and snapshots of their nodes. They are objects in a Place, a folder or a bucket.
//
// An object never changes. The name of a segment has the numbers and checksums of the notes
// before and at its end, so that a unit whose home was set back, and that goes on with other notes
// of the same numbers, has other objects: History finds those that lead to a note. A snapshot is
// complete once its manifest, which is written last, exists.
package archive

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/s3client"
)

// A Place keeps objects. Names are relative paths with slashes. It is safe for concurrent use, also
// by several processes.
type Place interface {
	// Put makes an object durable. If one of the name exists, it must have the same contents.
	Put(ctx context.Context, name string, data []byte) error
	// Get returns an object of up to maxBytes. A missing one is fs.ErrNotExist.
	Get(ctx context.Context, name string, maxBytes int64) ([]byte, error)
	// List passes the objects of a folder to visit, in the order of their names, from the first whose
	// name in the folder is greater than after. It ends with the first error of visit.
	List(ctx context.Context, folder, after string, visit func(Object) error) error
	// Remove removes an object, which may be missing.
	Remove(ctx context.Context, name string) error
	// String names the place for people.
	String() string
}

// An Object describes one object of a place.
type Object struct {
	Name     string // in the folder
	Size     int64
	Modified time.Time
}

// errOtherContents says that Put met an object of the same name.
var errOtherContents = errors.New("an object of this name has other contents: remove it if it is damaged")

// Locate returns the place that a configuration names: s3://BUCKET/PREFIX, or a folder, which
// begins in base unless it is absolute. It connects to nothing.
func Locate(text, base string, settings s3client.Settings, lookup func(string) (string, bool)) (Place, error) {
	scheme, _, found := strings.Cut(text, "://")
	switch {
	case !found && text == "":
		return nil, errors.New("the place of the archive is empty")
	case !found:
		if !filepath.IsAbs(text) {
			text = filepath.Join(base, text)
		}
		return folder(filepath.Clean(text)), nil
	case scheme != "s3":
		return nil, errors.New("an archive is a folder or s3://BUCKET/PREFIX") // the address may have keys
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("invalid place of an archive: use s3://BUCKET/PREFIX")
	}
	return newBucket(u.Host, strings.Trim(u.Path, "/"), settings, lookup)
}
