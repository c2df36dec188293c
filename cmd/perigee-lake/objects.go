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

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/s3client"
)

// An objectStore holds the data files of a lake table. Nothing in it is ever changed.
type objectStore interface {
	// put stores a file durably under a name that no other file has. It succeeds if the
	// same file is there already, and fails if another one is.
	put(ctx context.Context, name string, p *published) error
}

// openObjects opens the store at the location of a table.
func openObjects(location string) (objectStore, error) {
	if path, local := localPath(location); local {
		return &folder{path}, nil
	}
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "s3" && u.Scheme != "s3a" {
		return nil, fmt.Errorf("location %q is neither a folder nor in S3", location)
	}
	c, err := s3client.New(s3client.Settings{}, os.LookupEnv, func(*s3client.Client) http.RoundTripper { return http.DefaultTransport })
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

func (s *folder) put(_ context.Context, name string, p *published) error {
	path := filepath.Join(s.path, filepath.FromSlash(name))
	parent := filepath.Dir(path)
	if err := durable.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(parent, ".publishing-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if err := errors.Join(copyTo(temp, p), temp.Chmod(0o644), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), path); errors.Is(err, fs.ErrExist) {
		return s.compare(path, p)
	} else if err != nil {
		return err
	}
	return durable.SyncDir(parent)
}

func copyTo(w io.Writer, p *published) error {
	content, err := p.open()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(w, content)
	return err
}

func (s *folder) compare(path string, p *published) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return compareEnd(io.NewSectionReader(f, max(0, info.Size()-int64(len(p.footer))), int64(len(p.footer))), info.Size(), p)
}

const otherHint = "remove it, if no snapshot of the table names it"

// compareEnd compares the size and the footer of a file that was stored before.
func compareEnd(end io.Reader, size int64, p *published) error {
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

func (s *bucket) put(ctx context.Context, name string, p *published) error {
	content, err := p.open()
	if err != nil {
		return err
	}
	defer content.Close()
	options := minio.PutObjectOptions{ContentType: "application/vnd.apache.parquet", DisableMultipart: true}
	options.SetMatchETagExcept("*") // only if there is none
	_, err = s.client.Client.PutObject(ctx, s.name, s.prefix+name, content, p.total(), options)
	if minio.ToErrorResponse(err).StatusCode == http.StatusPreconditionFailed {
		return s.compare(ctx, s.prefix+name, p)
	}
	return err
}

func (s *bucket) compare(ctx context.Context, key string, p *published) error {
	object, err := s.client.Client.GetObject(ctx, s.name, key, minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer object.Close()
	info, err := object.Stat()
	if err != nil {
		return err
	}
	return compareEnd(io.NewSectionReader(object, max(0, info.Size-int64(len(p.footer))), int64(len(p.footer))), info.Size, p)
}
