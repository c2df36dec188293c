package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os"

	"github.com/perigeedb/perigee/source/format"
)

// firstLineMax is how much of the first lines identifies a file. It is the line rather
// than a number of bytes, so that a short file keeps its name when it grows.
const firstLineMax = 4 << 10

// partitionName names a file by what survives a rename: its inode and its first line.
func partitionName(f *os.File, as format.Format) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	line, _, err := readFirstLine(f, as)
	if err != nil {
		return "", err
	}
	return "file-" + inode(info) + "-" + hashLine(line), nil
}

// readFirstLine returns the first line, decompressed and cut at firstLineMax, and
// whether the line may still grow. Files of CSV often have the same header, so the line
// after it counts too.
func readFirstLine(f *os.File, as format.Format) (line []byte, grows bool, err error) {
	in, err := openContent(io.NewSectionReader(f, 0, math.MaxInt64))
	if err != nil {
		return nil, false, err
	}
	defer in.Close()
	first := make([]byte, firstLineMax)
	n, err := io.ReadFull(in, first)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false, err
	}
	line, rest, found := bytes.Cut(first[:n], []byte("\n"))
	if as.HasHeader() && found {
		second, _, whole := bytes.Cut(rest, []byte("\n"))
		line, found = first[:len(line)+1+len(second)], whole
	}
	return line, !found && n < firstLineMax, nil
}

func hashLine(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:8])
}
