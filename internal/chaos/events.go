package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Events generates numbered events: the sample's in turn, each with its own number.
type Events struct {
	prefix   []byte   // the text before the number
	suffixes [][]byte // the text after it, of each event of the sample
}

// NewEvents returns events made from a sample of JSON objects, with the number in field.
func NewEvents(sample [][]byte, field string) (*Events, error) {
	name, err := json.Marshal(field)
	if err != nil {
		return nil, err
	}
	e := &Events{prefix: append(append([]byte("{"), name...), ':')}
	for i, text := range sample {
		rest, err := withoutField(text, field)
		if err != nil {
			return nil, fmt.Errorf("event %d of the sample: %w", i+1, err)
		}
		e.suffixes = append(e.suffixes, rest)
	}
	if len(sample) == 0 {
		return nil, fmt.Errorf("the sample has no events")
	}
	return e, nil
}

// withoutField returns the text of an object after its opening brace, without a field,
// each remaining field preceded by a comma.
func withoutField(object []byte, field string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object: %.40s", object)
	}
	var rest []byte
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if key == field {
			continue
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		rest = append(append(append(append(rest, ','), name...), ':'), value...)
	}
	return append(rest, '}'), nil
}

// Append appends event n to a buffer; the first event is 1.
func (e *Events) Append(to []byte, n uint64) []byte {
	to = strconv.AppendUint(append(to, e.prefix...), n, 10)
	return append(to, e.suffixes[e.sampleIndex(n)]...)
}

// sampleIndex returns which event of the sample event n is made from.
func (e *Events) sampleIndex(n uint64) int { return int((n - 1) % uint64(len(e.suffixes))) }

// onePerSample returns one event for each event of the sample.
func (e *Events) onePerSample() (all [][]byte) {
	for i := range e.suffixes {
		all = append(all, e.Append(nil, uint64(i+1)))
	}
	return all
}
