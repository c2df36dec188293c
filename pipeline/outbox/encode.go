package outbox

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"slices"
)

// stored is an entry as the file holds it. Its fields have names there, so that
// an older or newer version reads what it knows.
type stored struct {
	Entry
	// Same has an entry for each output: 1 + the index of an earlier output with
	// the same documents, which are held once; 0 when there is none.
	Same []int
}

func encode(e *Entry) ([]byte, error) {
	s := stored{Entry: *e, Same: make([]int, len(e.Result.Outputs))}
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
	if err := gob.NewEncoder(&buf).Encode(&s); err != nil {
		return nil, fmt.Errorf("encode entry %s of the outbox: %w", e.Batch.Range, err)
	}
	return buf.Bytes(), nil
}

// decode keeps nothing of value. Outputs with the same documents get memory of
// their own each, because what a sink refuses is taken out in place.
func decode(value []byte) (*Entry, error) {
	var s stored
	if err := gob.NewDecoder(bytes.NewReader(value)).Decode(&s); err != nil {
		return nil, fmt.Errorf("decode entry: %w", err)
	}
	for i, same := range s.Same {
		if same > 0 {
			from, to := &s.Result.Outputs[same-1], &s.Result.Outputs[i]
			to.Data, to.Ends = slices.Clone(from.Data), slices.Clone(from.Ends)
		}
	}
	return &s.Entry, nil
}
