package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/internal/s3client"
)

// A bucket is a Place at an S3 service.
type bucket struct {
	client *s3client.Client
	name   string
	prefix string // of all objects, with a slash at its end; may be empty
}

// callTime bounds a call to the service, for objects of some MiB.
const callTime = 2 * time.Minute

func newBucket(name, prefix string, settings s3client.Settings, lookup func(string) (string, bool)) (Place, error) {
	client, err := s3client.New(settings, lookup, func(*s3client.Client) http.RoundTripper {
		return &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 8,
		}
	})
	if err != nil {
		return nil, err
	}
	if prefix != "" {
		prefix += "/"
	}
	return &bucket{client: client, name: name, prefix: prefix}, nil
}

func (b *bucket) String() string { return strings.TrimSuffix("s3://"+b.name+"/"+b.prefix, "/") }

// wrap names the place in an error, and a missing object fs.ErrNotExist.
func (b *bucket) wrap(err error) error {
	if err == nil {
		return nil
	}
	said := minio.ToErrorResponse(err)
	switch inURL, isURL := errors.AsType[*url.Error](err); {
	case said.Code == minio.NoSuchKey:
		err = fmt.Errorf("%s: %w", strings.TrimPrefix(said.Key, b.prefix), fs.ErrNotExist)
	case said.StatusCode != 0:
		err = fmt.Errorf("the service returned %d %s: %s", said.StatusCode, said.Code, said.Message)
	case isURL: // its URL may have a signature
		err = inURL.Err
	}
	return fmt.Errorf("archive %s: %w", b, err)
}

// Put implements Place.
func (b *bucket) Put(ctx context.Context, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	sum := sha256.Sum256(data)
	put := func(options minio.PutObjectOptions) error {
		_, err := b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), options)
		return err
	}
	options := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true}
	onlyNew := options
	onlyNew.SetMatchETagExcept("*")
	err := put(onlyNew)
	switch minio.ToErrorResponse(err).StatusCode {
	case http.StatusPreconditionFailed, http.StatusConflict:
		old, err := b.Get(ctx, name, int64(len(data)))
		if err == nil && !bytes.Equal(old, data) {
			err = b.wrap(fmt.Errorf("write %s: %w", name, errOtherContents))
		}
		return err
	case http.StatusNotImplemented: // names say what is in an object, so this writes the same again
		err = put(options)
	}
	return b.wrap(err)
}

// Get implements Place.
func (b *bucket) Get(ctx context.Context, name string, maxBytes int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	object, _, _, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.wrap(err)
	}
	defer object.Close()
	data, err := readAll(object, name, maxBytes)
	return data, b.wrap(err)
}

// List implements Place.
func (b *bucket) List(ctx context.Context, folder, after string, visit func(Object) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the listing if visit fails
	defer cancel()
	prefix := b.prefix + folder + "/"
	options := minio.ListObjectsOptions{Prefix: prefix, Recursive: true}
	if after != "" {
		options.StartAfter = prefix + after
	}
	for o := range b.client.Client.ListObjectsIter(ctx, b.name, options) {
		if o.Err != nil {
			return b.wrap(o.Err)
		}
		name, ok := strings.CutPrefix(o.Key, prefix)
		if !ok || name <= after { // a service may not know start-after
			continue
		}
		if err := visit(Object{Name: name, Size: o.Size, Modified: o.LastModified}); err != nil {
			return err
		}
	}
	return nil
}

// Remove implements Place.
func (b *bucket) Remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return b.wrap(b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}))
}
