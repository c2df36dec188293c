package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// An intake is what a body holds: the events that are taken, and why others
// are not.
type intake struct {
	data    []byte
	ends    []uint32
	refused []refusal
	seen    int // events, taken or refused
}

// A refusal is one event that is not taken.
type refusal struct {
	Event int    `json:"event"` // counted from 1: in NDJSON the line, empty ones not counted
	Error string `json:"error"`
}

// split takes a body apart. Without a type that says what it is, a body that is
// one JSON value is an array of events or one event, and any other is lines.
func split(body []byte, contentType string) (*intake, error) {
	in := &intake{}
	media, _, _ := mime.ParseMediaType(contentType)
	text := bytes.TrimSpace(body)
	lines := false
	switch media {
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines":
		lines = true
	case "application/json":
	default:
		lines = !json.Valid(text)
	}
	switch {
	case len(text) == 0:
	case lines:
		in.lines(text)
	case text[0] == '[':
		return in, in.array(text)
	default:
		in.take(text)
	}
	return in, nil
}

func (in *intake) lines(text []byte) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			in.take(line)
		}
	}
}

// array takes the elements of a JSON array. One that is cut short is refused as
// a whole: nobody can say what it was.
func (in *intake) array(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("the array is not JSON: %w", err)
	}
	for dec.More() {
		var item json.RawMessage
		if err := dec.Decode(&item); err != nil {
			return fmt.Errorf("the array is not JSON after element %d: %w", in.seen, err)
		}
		in.take(item)
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("the array does not end: %w", err)
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("there is more after the array, at byte %d", dec.InputOffset())
	}
	return nil
}

func (in *intake) take(doc []byte) {
	in.seen++
	if err := pure.Check(doc); err != nil {
		in.refused = append(in.refused, refusal{in.seen, err.Error()})
		return
	}
	in.data = append(in.data, doc...)
	in.ends = append(in.ends, uint32(len(in.data)))
}
