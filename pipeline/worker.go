package pipeline

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// workerFile is in the data folder and holds what tells its owner from others.
const workerFile = "worker"

// WorkerName returns the name under which the owner of a data folder shares
// partitions with others: its host, and 64 random bits that stay in the folder.
// A worker that starts again has its leases at once; two that share a host, or
// the name of one, do not mix.
func WorkerName(folder string) (string, error) {
	name := filepath.Join(folder, workerFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(strings.TrimSpace(string(text))) == 0 {
		text = []byte(randomName() + "\n")
		err = os.WriteFile(name, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("name this worker: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + strings.TrimSpace(string(text)), nil
}

func randomName() string {
	var bits [8]byte
	rand.Read(bits[:]) // never fails
	return hex.EncodeToString(bits[:])
}
