package script

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// fileMax bounds a file that a script requires.
const fileMax = 1 << 20

// Folder returns Code.Files for a folder and its subfolders. No path, and no symbolic
// link, leads out of it.
func Folder(folder string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		text, err := readFile(folder, path)
		if err != nil {
			return nil, fmt.Errorf("read %s in %s: %w", path, folder, withoutPath(err))
		}
		return text, nil
	}
}

func readFile(folder, path string) ([]byte, error) {
	file, err := os.OpenInRoot(folder, filepath.FromSlash(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, fileMax+1))
	if len(text) > fileMax {
		err = fmt.Errorf("larger than %d bytes", fileMax)
	}
	return text, err
}

// withoutPath strips operation and path from err; the caller adds better ones.
func withoutPath(err error) error {
	var inPath *os.PathError
	if errors.As(err, &inPath) {
		return inPath.Err
	}
	return err
}
