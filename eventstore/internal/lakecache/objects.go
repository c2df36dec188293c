package lakecache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/s3client"
)

// stallTime is the time without a byte after which reading an object fails.
const stallTime = 10 * time.Second

// errStalled ends a read that stalls.
var errStalled = fmt.Errorf("no data for %v", stallTime)

// objects reads the objects of lakes: files of a folder, and of S3.
type objects struct {
	mu     sync.Mutex
	client *s3client.Client
}

// An objectInfo describes an object.
type objectInfo struct {
	size int64
	etag string // of S3; usually the MD5 of the content
}

func (o *objects) s3() (*s3client.Client, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.client != nil {
		return o.client, nil
	}
	c, err := s3client.FromEnvironment(stallTime)
	if err == nil {
		o.client = c
	}
	return c, err
}

// keyOf splits the address of an object in S3.
func keyOf(address string) (bucket, key string, isS3 bool) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme != "s3" && scheme != "s3a" {
		return "", "", false
	}
	bucket, key, _ = strings.Cut(rest, "/")
	return bucket, key, true
}

func (o *objects) stat(ctx context.Context, address string) (objectInfo, error) {
	bucket, key, isS3 := keyOf(address)
	if !isS3 {
		info, err := os.Stat(address)
		if err != nil {
			return objectInfo{}, explain(ctx, address, err)
		}
		return objectInfo{size: info.Size()}, nil
	}
	client, err := o.s3()
	if err != nil {
		return objectInfo{}, err
	}
	info, err := client.Core.StatObject(ctx, bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return objectInfo{}, explain(ctx, address, err)
	}
	return objectInfo{size: info.Size, etag: strings.Trim(info.ETag, `"`)}, nil
}

// open reads an object from one byte to before another, and no more, whatever S3 answers.
func (o *objects) open(ctx context.Context, address string, from, to int64) (io.ReadCloser, error) {
	bucket, key, isS3 := keyOf(address)
	if !isS3 {
		f, err := durable.Open(filepath.FromSlash(address))
		if err != nil {
			return nil, explain(ctx, address, err)
		}
		return &reader{ctx: ctx, address: address, from: io.NewSectionReader(f, from, to-from), close: f.Close}, nil
	}
	client, err := o.s3()
	if err != nil {
		return nil, err
	}
	options := minio.GetObjectOptions{}
	if err := options.SetRange(from, to-1); err != nil {
		return nil, err
	}
	stalled, cancel := context.WithCancelCause(ctx)
	body, _, _, err := client.Core.GetObject(stalled, bucket, key, options)
	if err != nil {
		cancel(nil)
		return nil, explain(ctx, address, err)
	}
	timer := time.AfterFunc(stallTime, func() { cancel(errStalled) })
	return &reader{ctx: stalled, address: address, from: io.LimitReader(body, to-from), timer: timer, close: func() error {
		timer.Stop()
		cancel(nil)
		return body.Close()
	}}, nil
}

// A reader reads an object. It explains errors.
type reader struct {
	ctx     context.Context
	address string
	from    io.Reader
	timer   *time.Timer // ends a read that stalls; nil for files
	close   func() error
}

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, explain(r.ctx, r.address, r.ctx.Err())
	}
	n, err := r.from.Read(b)
	if r.timer != nil {
		r.timer.Reset(stallTime)
	}
	if err != nil && err != io.EOF {
		err = explain(r.ctx, r.address, err)
	}
	return n, err
}

// Close implements io.Closer.
func (r *reader) Close() error { return r.close() }

// ErrMissing reports an object that does not exist.
var ErrMissing = errors.New("it does not exist")

// explain returns an error about an object.
func explain(ctx context.Context, address string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	switch code := minio.ToErrorResponse(err).Code; {
	case errors.Is(err, os.ErrNotExist), code == "NoSuchKey", code == "NoSuchBucket":
		return objectError(address, ErrMissing, "put the object back from a backup or an older version in the bucket; rows of other files can still be read")
	case ctx.Err() != nil && !errors.Is(err, errStalled):
		return err
	}
	return objectError(address, err, "rows on this disk can still be read: narrow the query by time, or try again when the lake answers")
}

// objectError returns an error that names an object.
func objectError(address string, err error, hint string) error {
	return &event.PermanentError{Err: fmt.Errorf("read %s: %w", address, err), Hint: hint}
}
