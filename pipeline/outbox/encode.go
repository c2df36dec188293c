package outbox

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// storedEntry is the stored form of an entry. The encoding names its fields, so
// that an older or newer version reads the fields that it knows.
type storedEntry struct {
	Entry
	// Same holds for each output 1 + the index of an earlier output with the same
	// documents, which are stored once; 0 if there is none.
	Same []int
}

func encodeEntry(e *Entry) ([]byte, error) {
	s := storedEntry{Entry: *e, Same: make([]int, len(e.Result.Outputs))}
	s.Result.Outputs = slices.Clone(e.Result.Outputs)
	for i := range s.Result.Outputs {
		for j := range i {
			a, b := &e.Result.Outputs[j], &s.Result.Outputs[i]
			if bytes.Equal(a.Data, b.Data) && slices.Equal(a.Ends, b.Ends) {
				b.Data, b.Ends, s.Same[i] = nil, nil, j+1
				break
			}
		}
	}
	var buf bytes.Buffer
	encoder := gob.NewEncoder(&buf)
	err := encoder.Encode(&s)
	if err == nil { // an older version does not read the checksum
		err = encoder.Encode(crc32.Checksum(buf.Bytes(), castagnoli))
	}
	if err != nil {
		return nil, fmt.Errorf("encode entry %s of the outbox: %w", e.Batch.Range, err)
	}
	return buf.Bytes(), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is for an entry that is not as it was stored, as after a power cut on a disk that
// says it has synced what it has not.
var errDamaged = errors.New("an entry is damaged; restore " + FileName + " from a copy, or move it away and lose what it holds")

// decodeEntry does not keep value. Each output gets memory of its own, because
// rejected rows are removed in place.
func decodeEntry(key, value []byte) (*Entry, error) {
	var s storedEntry
	var sum uint32
	in := bytes.NewReader(value)
	decoder := gob.NewDecoder(in)
	if err := decoder.Decode(&s); err != nil {
		return nil, fmt.Errorf("%w (%w)", errDamaged, err)
	}
	content := value[:len(value)-in.Len()]
	switch err := decoder.Decode(&sum); {
	case err == io.EOF: // an older version stored it
	case err != nil || sum != crc32.Checksum(content, castagnoli):
		return nil, errDamaged
	}
	if !bytes.Equal(key, entryKey(s.Pipeline, s.Batch.Partition, s.Batch.Range.First)) {
		return nil, errDamaged
	}
	for i, same := range s.Same {
		if same > 0 {
			from, to := &s.Result.Outputs[same-1], &s.Result.Outputs[i]
			to.Data, to.Ends = slices.Clone(from.Data), slices.Clone(from.Ends)
		}
	}
	return &s.Entry, nil
}
