package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

// firstBytes is how much of the first line makes a file known. The line and not
// just any bytes, so that a short file keeps its name when it grows.
const firstBytes = 4 << 10

// identity names what the file is, wherever it is moved.
func identity(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	first := make([]byte, firstBytes)
	n, err := f.ReadAt(first, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	line, _, _ := bytes.Cut(first[:n], []byte("\n"))
	sum := sha256.Sum256(line)
	return fmt.Sprintf("file-%s-%s", device(info), hex.EncodeToString(sum[:8])), nil
}
