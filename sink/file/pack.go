package file

import (
	"bytes"
	"compress/gzip"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// A packer packs one batch of lines. What it makes can follow another.
type packer struct {
	ending string
	append func(to, lines []byte) ([]byte, error)
}

func packing(name string) (packer, error) {
	switch name {
	case "", "none":
		return packer{".ndjson", func(to, lines []byte) ([]byte, error) { return append(to, lines...), nil }}, nil
	case "gzip":
		return packer{".ndjson.gz", appendGzip}, nil
	case "zstd":
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return packer{}, err
		}
		return packer{".ndjson.zst", func(to, lines []byte) ([]byte, error) { return encoder.EncodeAll(lines, to), nil }}, nil
	}
	return packer{}, fmt.Errorf("unknown way to pack %q; known: none, gzip, zstd", name)
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
