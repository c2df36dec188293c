package decompress

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestNewReader(t *testing.T) {
	text := strings.Repeat("{\"id\":1}\n", 100_000)
	for _, c := range []struct {
		name       string
		packed     []byte
		compressed bool
		want       string
	}{
		{"plain", []byte(text), false, text},
		{"empty", nil, false, ""},
		{"shorter than the magic bytes", []byte("{}"), false, "{}"},
		{"gzip", pack(t, text), true, text},
		{"two members of gzip", append(pack(t, text), pack(t, "more")...), true, text + "more"},
		{"zstd", packZstd(t, text), true, text},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Detect(c.packed); got != c.compressed {
				t.Errorf("Detect says %v", got)
			}
			in, err := NewReader(bytes.NewReader(c.packed))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(in)
			if err != nil || string(got) != c.want {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(c.want))
			}
			if err := in.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCutShort reads content that ends too early: an error, and no hang.
func TestCutShort(t *testing.T) {
	for name, packed := range map[string][]byte{"gzip": pack(t, "text"), "zstd": packZstd(t, strings.Repeat("text", 1000))} {
		for n := MagicBytes; n < len(packed); n++ {
			in, err := NewReader(bytes.NewReader(packed[:n]))
			if err != nil {
				continue
			}
			if got, err := io.ReadAll(in); err == nil {
				t.Errorf("%s, %d bytes of %d: %q and no error", name, n, len(packed), got)
			}
			_ = in.Close()
		}
	}
}

func pack(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func packZstd(t *testing.T, text string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll([]byte(text), nil)
}
