package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Events makes as many events as are wanted of a few: each is one of a sample, in
// turn, with a number of its own.
type Events struct {
	prefix   []byte   // up to the number
	suffixes [][]byte // of each of the sample, from behind the number on
}

// NewEvents makes events of a sample of objects, whose number is to be in a field.
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

// withoutField returns an object from its second field on, without the one that is named.
func withoutField(object []byte, field string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("it is no JSON object: %.40s", object)
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

// Append appends event number n, from 1 on.
func (e *Events) Append(to []byte, n uint64) []byte {
	to = strconv.AppendUint(append(to, e.prefix...), n, 10)
	return append(to, e.suffixes[e.sampleIndex(n)]...)
}

// sampleIndex tells which of the sample an event is.
func (e *Events) sampleIndex(n uint64) int { return int((n - 1) % uint64(len(e.suffixes))) }

// onePerSample returns one event of each kind.
func (e *Events) onePerSample() (all [][]byte) {
	for i := range e.suffixes {
		all = append(all, e.Append(nil, uint64(i+1)))
	}
	return all
}
