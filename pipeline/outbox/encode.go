package outbox

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/internal/boltfile"
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
	content, err := e.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode entry %s of the outbox: %w", e.Batch.Range, err)
	}
	return boltfile.AppendChecksum(content, entryKey(e.Pipeline, e.Batch.Partition, e.Batch.Range.First)), nil
}

// Encode returns the entry in a form that Decode reads. It has no checksum.
func (e *Entry) Encode() ([]byte, error) {
	s := storedEntry{Entry: *e, Same: make([]int, len(e.Result.Outputs))}
	s.Batch.State, s.Batch.Origins = nil, nil // belong to the run of the script
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
	err := gob.NewEncoder(&buf).Encode(&s)
	return buf.Bytes(), err
}

// decodeEntry is Decode for a value of the file. An entry that is not as it was stored is
// boltfile.ErrDamagedValue.
func decodeEntry(key, value []byte) (*Entry, error) {
	content, err := boltfile.VerifyChecksum(value, key)
	if err != nil {
		return nil, err
	}
	e, err := Decode(content)
	if err != nil || !bytes.Equal(key, entryKey(e.Pipeline, e.Batch.Partition, e.Batch.Range.First)) {
		return nil, errors.Join(boltfile.ErrDamagedValue, err)
	}
	return e, nil
}

// Decode reads what Encode returned, and does not keep it. Each output gets memory of its own,
// because rejected rows are removed in place.
func Decode(content []byte) (*Entry, error) {
	var s storedEntry
	rest := bytes.NewReader(content)
	if err := gob.NewDecoder(rest).Decode(&s); err != nil {
		return nil, err
	}
	if rest.Len() > 0 {
		return nil, errors.New("bytes follow the entry")
	}
	for i, same := range s.Same {
		if same > 0 {
			from, to := &s.Result.Outputs[same-1], &s.Result.Outputs[i]
			to.Data, to.Ends = slices.Clone(from.Data), slices.Clone(from.Ends)
		}
	}
	return &s.Entry, nil
}
