package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math"
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
	line, _, err := firstLine(f)
	if err != nil {
		return "", err
	}
	return "file-" + device(info) + "-" + digest(line), nil
}

// firstLine returns the first line, unpacked, or as much of it as counts, and
// whether it can still grow.
func firstLine(f *os.File) (line []byte, grows bool, err error) {
	in, err := unpack(io.NewSectionReader(f, 0, math.MaxInt64))
	if err != nil {
		return nil, false, err
	}
	defer in.Close()
	first := make([]byte, firstBytes)
	n, err := io.ReadFull(in, first)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false, err
	}
	line, _, found := bytes.Cut(first[:n], []byte("\n"))
	return line, !found && n < firstBytes, nil
}

func digest(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:8])
}
