package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"gocloud.dev/gcerrors"

	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/s3client"
)

// An objectStore holds the files of a lake table. None of them is ever changed.
type objectStore interface {
	// find looks for a file that was put before. It fails if another file has the name.
	find(ctx context.Context, name string, p *publishedFile) (modified time.Time, found bool, err error)
	// put stores a file durably under a name that no other file has. It succeeds if the
	// same file is there already, whose modification time it renews if that is old, and
	// fails if another one is.
	put(ctx context.Context, name string, p *publishedFile) error
	// renew gives a file that was found a new modification time.
	renew(ctx context.Context, name string) error
	// list returns all objects in a folder, with all their versions.
	list(ctx context.Context, folder string) ([]lake.Object, error)
	// remove removes objects, or versions, except those that are younger now than they
	// were when they were listed. It returns how many it has removed, their size, and why
	// it could not remove others.
	remove(ctx context.Context, objects []lake.Object) (n int, size int64, refused []string, err error)
	// check looks for reasons why files cannot be put. It changes nothing.
	check(ctx context.Context) error
}

// openObjects opens the store at the location of a table.
func openObjects(location string) (objectStore, error) {
	u, err := url.Parse(location)
	if err != nil { // which repeats the location
		return nil, errors.New("the location of the table cannot be parsed")
	}
	if !lake.IsPlain(strings.TrimPrefix(location, u.Scheme+":")) {
		return nil, permanent("let the table have another location", "the location of the table has other characters than %s", lake.PlainCharacters)
	}
	if path, local := localPath(location); local {
		return &folder{path}, nil
	}
	if u.Scheme != "s3" && u.Scheme != "s3a" {
		return nil, fmt.Errorf("location %q is neither a folder nor in S3", u.Redacted())
	}
	c, err := s3client.New(s3client.Settings{}, os.LookupEnv, func(*s3client.Client) http.RoundTripper { return watchedTransport{http.DefaultTransport} })
	if err != nil {
		return nil, err
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &bucket{c, u.Host, prefix}, nil
}

// A folder stores files in a local folder.
type folder struct{ path string }

func (s *folder) put(ctx context.Context, name string, p *publishedFile) error {
	path := filepath.Join(s.path, filepath.FromSlash(name))
	parent := filepath.Dir(path)
	if err := durable.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(parent, lake.TemporaryPrefix+"*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if err := errors.Join(copyTo(ctx, temp, p), temp.Chmod(0o644), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), path); errors.Is(err, fs.ErrExist) {
		if _, _, err := s.find(ctx, name, p); err != nil {
			return err
		}
		return s.renew(ctx, name)
	} else if err != nil {
		return err
	}
	return durable.SyncDir(parent)
}

// find makes the name of the file durable, too: the process that put it may have been killed
// before it did.
func (s *folder) find(_ context.Context, name string, p *publishedFile) (modified time.Time, found bool, err error) {
	path := filepath.Join(s.path, filepath.FromSlash(name))
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return modified, false, nil
	}
	if err != nil {
		return modified, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return modified, false, err
	}
	if err := compareEnd(io.NewSectionReader(f, max(0, info.Size()-int64(len(p.footer))), int64(len(p.footer))), info.Size(), p); err != nil {
		return modified, false, err
	}
	return info.ModTime(), true, durable.SyncDir(filepath.Dir(path))
}

func (s *folder) renew(_ context.Context, name string) error {
	now := time.Now()
	return os.Chtimes(filepath.Join(s.path, filepath.FromSlash(name)), now, now)
}

func (s *folder) list(_ context.Context, folder string) (all []lake.Object, err error) {
	root := filepath.Join(s.path, folder)
	if _, err := os.Lstat(root); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if root, err = filepath.EvalSymlinks(root); err != nil { // it may be on another disk, which is missing
		return nil, err
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a folder", root))
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // somebody else has removed it
			return nil
		}
		if err == nil && d.Type()&fs.ModeSymlink != 0 {
			return permanent("put the files there instead of the link; only the folders data and metadata themselves may be links", "%s is a symbolic link", path)
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		all = append(all, lake.Object{Name: folder + filepath.ToSlash(name), Modified: info.ModTime(), Size: info.Size()})
		return err
	})
	return all, err
}

func (s *folder) remove(ctx context.Context, objects []lake.Object) (n int, size int64, refused []string, err error) {
	parents := map[string]bool{}
	for _, object := range objects {
		if ctx.Err() != nil {
			return n, size, refused, context.Cause(ctx)
		}
		progress(ctx)
		path := filepath.Join(s.path, filepath.FromSlash(object.Name))
		info, err := os.Stat(path)
		if err == nil && info.ModTime().After(object.Modified) {
			continue
		}
		if err == nil {
			err = os.Remove(path)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			refused = append(refused, err.Error())
		default:
			n, size, parents[filepath.Dir(path)] = n+1, size+object.Size, true
		}
	}
	for parent := range parents { // succeeds if it is empty and no link; put makes it again
		_ = syscall.Rmdir(parent)
	}
	return n, size, refused, nil
}

// check looks at the folder, or at the one in which it would be made.
func (s *folder) check(context.Context) error {
	for path := s.path; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
			continue
		}
		if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "write", Path: path, Err: syscall.ENOTDIR}
		}
		if err != nil {
			return err
		}
		const write, search = 2, 1
		if err := syscall.Access(path, write|search); err != nil {
			return &fs.PathError{Op: "write", Path: path, Err: err}
		}
		return nil
	}
}

func copyTo(ctx context.Context, w io.Writer, p *publishedFile) error {
	content, err := p.open()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(w, watchedReader{ctx, content})
	return err
}

const otherHint = "remove it, if no snapshot of the table names it"

// compareEnd compares the size and the footer of a file that was stored before.
func compareEnd(end io.Reader, size int64, p *publishedFile) error {
	if size != p.total() {
		return permanent(otherHint, "another file has this name: it has %d bytes instead of %d", size, p.total())
	}
	got, err := io.ReadAll(end)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, p.footer) {
		return permanent(otherHint, "another file has this name: its footer differs")
	}
	return nil
}

// A bucket stores files in S3, below a prefix.
type bucket struct {
	client       *s3client.Client
	name, prefix string
}

const contentType = "application/vnd.apache.parquet"

func (s *bucket) put(ctx context.Context, name string, p *publishedFile) error {
	content, err := p.open()
	if err != nil {
		return err
	}
	defer content.Close()
	options := minio.PutObjectOptions{ContentType: contentType, DisableMultipart: true}
	options.SetMatchETagExcept("*") // only if there is none
	_, err = s.client.Client.PutObject(ctx, s.name, s.prefix+name, watchedReader{ctx, content}, p.total(), options)
	if minio.ToErrorResponse(err).StatusCode != http.StatusPreconditionFailed {
		return err
	}
	modified, found, err := s.find(ctx, name, p)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("object %s exists but cannot be read", s.prefix+name)
	case time.Since(modified) < time.Minute:
		return nil
	}
	return s.renew(ctx, name)
}

// find asks for the object first: S3 refuses a put only after it has got the whole file.
func (s *bucket) find(ctx context.Context, name string, p *publishedFile) (modified time.Time, found bool, err error) {
	info, err := s.client.Client.StatObject(ctx, s.name, s.prefix+name, minio.StatObjectOptions{})
	switch code := minio.ToErrorResponse(err).StatusCode; {
	case code == http.StatusNotFound, code == http.StatusForbidden: // S3 says so of a missing object without the right to list
		return modified, false, nil
	case err != nil:
		return modified, false, err
	case info.Size != p.total():
		return modified, false, compareEnd(nil, info.Size, p)
	}
	options := minio.GetObjectOptions{}
	if err := options.SetRange(p.size, p.total()-1); err != nil {
		return modified, false, err
	}
	object, err := s.client.Client.GetObject(ctx, s.name, s.prefix+name, options)
	if err != nil {
		return modified, false, err
	}
	defer object.Close()
	if err := compareEnd(object, info.Size, p); err != nil {
		return modified, false, err
	}
	return info.LastModified, true, nil
}

// renew gives an object a new modification time by a copy of itself.
func (s *bucket) renew(ctx context.Context, name string) error {
	key := s.prefix + name
	from := minio.CopySrcOptions{Bucket: s.name, Object: key}
	to := minio.CopyDestOptions{Bucket: s.name, Object: key, ReplaceMetadata: true, UserMetadata: map[string]string{"Content-Type": contentType}}
	_, err := s.client.Client.CopyObject(ctx, to, from)
	return err
}

func (s *bucket) list(ctx context.Context, folder string) (all []lake.Object, err error) {
	versioning, err := s.client.GetBucketVersioning(ctx, s.name)
	if code := minio.ToErrorResponse(err).StatusCode; err != nil && code != http.StatusNotImplemented && code != http.StatusMethodNotAllowed {
		return nil, fmt.Errorf("read whether bucket %s keeps versions: %w", s.name, err)
	}
	// The status of a bucket that never had versions is empty.
	options := minio.ListObjectsOptions{Prefix: s.prefix + folder, Recursive: true, WithVersions: versioning.Status != ""}
	for object := range s.client.Client.ListObjects(ctx, s.name, options) {
		if object.Err != nil {
			return nil, object.Err
		}
		name := strings.TrimPrefix(object.Key, s.prefix)
		if strings.HasSuffix(name, "/") { // stands for a folder
			continue
		}
		all = append(all, lake.Object{Name: name, Version: object.VersionID, Modified: object.LastModified, Size: object.Size, Deleted: object.IsDeleteMarker && object.IsLatest})
	}
	return all, ctx.Err()
}

func (s *bucket) remove(ctx context.Context, objects []lake.Object) (n int, size int64, refused []string, err error) {
	for _, object := range objects {
		key := s.prefix + object.Name
		if object.Version == "" {
			info, err := s.client.Client.StatObject(ctx, s.name, key, minio.StatObjectOptions{})
			switch code := minio.ToErrorResponse(err).StatusCode; {
			case code == http.StatusNotFound:
				continue
			case err != nil:
				return n, size, refused, err
			case info.LastModified.After(object.Modified.Add(time.Second)): // a header has no fractions
				continue
			}
		}
		err := s.client.Client.RemoveObject(ctx, s.name, key, minio.RemoveObjectOptions{VersionID: object.Version})
		switch code := minio.ToErrorResponse(err).StatusCode; {
		case err == nil:
			n, size = n+1, size+object.Size
		case code == http.StatusNotFound:
		case code == http.StatusForbidden || code == http.StatusConflict || code == http.StatusBadRequest || code == http.StatusMethodNotAllowed:
			what := key
			if object.Version != "" {
				what += " version " + object.Version
			}
			refused = append(refused, fmt.Sprintf("s3://%s/%s: %v", s.name, what, err))
		default:
			return n, size, refused, err
		}
	}
	return n, size, refused, nil
}

// check lists an object: that needs the service, the keys and the bucket.
func (s *bucket) check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx) // ends the listing
	defer cancel()
	for object := range s.client.Client.ListObjects(ctx, s.name, minio.ListObjectsOptions{Prefix: s.prefix, MaxKeys: 1}) {
		return object.Err
	}
	return ctx.Err()
}

// isMissing reports whether an error of the library says that there is no such object.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || gcerrors.Code(err) == gcerrors.NotFound
}
