package file

import (
	"bytes"
	"compress/gzip"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// A compression compresses one batch of lines. Its results can follow each other in
// a file.
type compression struct {
	suffix string
	append func(to, lines []byte) ([]byte, error)
}

// The suffixes of sealed files, each for one pack.
const (
	plainSuffix = ".ndjson"
	gzipSuffix  = ".ndjson.gz"
	zstdSuffix  = ".ndjson.zst"
)

var suffixes = []string{plainSuffix, gzipSuffix, zstdSuffix}

func newCompression(name string) (compression, error) {
	switch name {
	case "", "none":
		return compression{plainSuffix, func(to, lines []byte) ([]byte, error) { return append(to, lines...), nil }}, nil
	case "gzip":
		return compression{gzipSuffix, appendGzip}, nil
	case "zstd":
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return compression{}, err
		}
		return compression{zstdSuffix, func(to, lines []byte) ([]byte, error) { return encoder.EncodeAll(lines, to), nil }}, nil
	}
	return compression{}, fmt.Errorf("unknown pack %q: use none, gzip or zstd", name)
}

func appendGzip(to, lines []byte) ([]byte, error) {
	b := bytes.NewBuffer(to)
	z := gzip.NewWriter(b)
	if _, err := z.Write(lines); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}
