package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
)

// A KeysFile is a file with the keys of a segment's rows, in the table's folder.
type KeysFile struct {
	Number uint64    `json:"number"` // of the segment
	Newest time.Time `json:"newest"` // arrival time of the last row
}

// KeysName returns the name of a key file in the table's folder.
func KeysName(number uint64) string { return fmt.Sprintf("keys-%010d", number) }

// A Key is the stored form of a row's key.
type Key struct {
	Hash    KeyHash
	Arrived uint32 // seconds since 1970
}

// A KeyHash identifies a key by 96 bits of its SHA-256.
type KeyHash [3]uint32

var keysMagic = []byte("perigee-keys 1\n\n") // 16 bytes, the size of a key

const keySize = 16

// WriteKeys writes the keys of one segment to a file and returns its entry. When it returns,
// the file and its name are durable.
func WriteKeys(folder string, t *Table, number uint64, keys []Key) (*KeysFile, error) {
	data := slices.Grow(slices.Clone(keysMagic), len(keys)*keySize+4)
	newest := uint32(0)
	for _, k := range keys {
		for _, part := range k.Hash {
			data = binary.LittleEndian.AppendUint32(data, part)
		}
		data = binary.LittleEndian.AppendUint32(data, k.Arrived)
		newest = max(newest, k.Arrived)
	}
	data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
	path := t.Path(folder, KeysName(number))
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return &KeysFile{Number: number, Newest: time.Unix(int64(newest), 0).UTC()}, durable.WriteFile(path, data, 0o600)
}

// ReadKeys calls each for every key in a file. It returns a *DamageError if the file is
// missing or damaged.
func ReadKeys(folder string, t *Table, number uint64, each func(Key)) error {
	path := t.Path(folder, KeysName(number))
	data, err := durable.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return &DamageError{File: path, Reason: "it is missing"}
	}
	if err != nil {
		return err
	}
	n := len(data) - 4
	if n < len(keysMagic) || n%keySize != 0 || !bytes.HasPrefix(data, keysMagic) || crc32.Checksum(data[:n], castagnoli) != binary.LittleEndian.Uint32(data[n:]) {
		return &DamageError{File: path, Reason: "its checksum is wrong"}
	}
	for at := len(keysMagic); at < n; at += keySize {
		each(Key{
			Hash:    KeyHash{binary.LittleEndian.Uint32(data[at:]), binary.LittleEndian.Uint32(data[at+4:]), binary.LittleEndian.Uint32(data[at+8:])},
			Arrived: binary.LittleEndian.Uint32(data[at+12:]),
		})
	}
	return nil
}
