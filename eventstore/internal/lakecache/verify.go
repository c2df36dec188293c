package lakecache

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/durable"
)

// tailSize is the size of the end of a Parquet file: the length of the footer and the magic
// number.
const (
	tailSize = 8
	magic    = "PAR1"
)

// footerMax bounds the footer of an object, which is read into memory.
const footerMax = 256 << 20

// footerSize returns the size of a file's footer, read from its last bytes.
func footerSize(tail []byte, size int64) (int64, error) {
	length := tailSize + int64(binary.LittleEndian.Uint32(tail))
	if string(tail[4:]) != magic || length > min(size-int64(len(magic)), footerMax) {
		return 0, errors.New("it has no Parquet footer")
	}
	return length, nil
}

// Verify checks that an object has the data of a store's file: that the file can be made again
// from it and from the file's own footer, which Verify returns. The object has the same data
// before a footer of its own.
func (c *Cache) Verify(ctx context.Context, path, address string) (r manifest.Remote, footer []byte, err error) {
	info, err := c.objects.stat(ctx, address)
	if err != nil {
		return r, nil, err
	}
	differs := func(format string, args ...any) error {
		return objectError(address, fmt.Errorf(format, args...), "the file stays on this disk; remove lake.local, or publish the table under another name")
	}
	file, err := durable.Open(path)
	if err != nil {
		return r, nil, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return r, nil, err
	}
	var tail [tailSize]byte
	if _, err := file.ReadAt(tail[:], max(stat.Size()-tailSize, 0)); err != nil {
		return r, nil, fmt.Errorf("read %s: %w", path, err)
	}
	length, err := footerSize(tail[:], stat.Size())
	if err != nil {
		return r, nil, fmt.Errorf("read %s: %w", path, err)
	}
	r = manifest.Remote{Address: address, Size: info.size, Data: stat.Size() - length}
	footer = make([]byte, length)
	if _, err := file.ReadAt(footer, r.Data); err != nil {
		return r, nil, err
	}
	if info.size < r.Data+tailSize || info.size-r.Data > footerMax {
		return r, nil, differs("it has %d bytes, and the file has %d before its footer", info.size, r.Data)
	}
	other, err := c.readAll(ctx, address, r.Data, info.size)
	if err != nil {
		return r, nil, err
	}
	if length, err := footerSize(other[len(other)-tailSize:], info.size); err != nil || length != int64(len(other)) {
		return r, nil, differs("its footer does not begin where the data of the file end")
	}
	sum, whole := sha256.New(), md5.New()
	if _, err := io.Copy(io.MultiWriter(sum, whole), contextReader{ctx, io.NewSectionReader(file, 0, r.Data)}); err != nil {
		return r, nil, err
	}
	whole.Write(other)
	r.Sum = hex.EncodeToString(sum.Sum(nil))
	if info.etag == hex.EncodeToString(whole.Sum(nil)) {
		return r, footer, nil
	}
	// S3 does not say what the object has: it was encrypted or put in parts.
	content, err := c.objects.open(ctx, address, 0, r.Data)
	if err != nil {
		return r, nil, err
	}
	defer content.Close()
	sum.Reset()
	if _, err := io.Copy(sum, content); err != nil {
		return r, nil, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != r.Sum {
		return r, nil, differs("its data are not those of the file")
	}
	return r, footer, nil
}

// readAll reads a part of an object.
func (c *Cache) readAll(ctx context.Context, address string, from, to int64) ([]byte, error) {
	content, err := c.objects.open(ctx, address, from, to)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	var all bytes.Buffer
	if _, err := all.ReadFrom(content); err != nil {
		return nil, err
	}
	if int64(all.Len()) != to-from {
		return nil, objectError(address, io.ErrUnexpectedEOF, "try again")
	}
	return all.Bytes(), nil
}

// A contextReader fails reads once its context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (r contextReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}
