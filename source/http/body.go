package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"

	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/source/format"
)

// A postedBody is a body, split into the events that are accepted and the reasons
// why others are not.
type postedBody struct {
	data     []byte // the accepted events, back to back
	ends     []uint32
	rejected []rejection // the first of those that are rejected
	count    int         // of events, accepted or rejected

	rejectedCount int
}

var errTooMany = fmt.Errorf("the body has more than %d events: post it in parts", eventsMax)

// A rejection is one event that is not accepted.
type rejection struct {
	Event int    `json:"event"` // counted from 1: in NDJSON the line, without empty ones
	Error string `json:"error"`
}

// parseBody splits a body into events. Without a content type that says what it is, a
// body that is one JSON value is an array of events or one event, and any other body
// is lines. An error means that no event of the body is accepted.
func parseBody(body []byte, contentType string) (*postedBody, error) {
	b := &postedBody{}
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
		return b, b.addLines(text)
	case text[0] == '[':
		return b, b.addArray(text)
	default:
		b.addEvent(text)
	}
	return b, nil
}

func (b *postedBody) addLines(text []byte) error {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if b.count == eventsMax {
			return errTooMany
		}
		b.addEvent(line)
	}
	return nil
}

// addArray adds the elements of a JSON array. A truncated array is an error: its last
// element may be anything.
func (b *postedBody) addArray(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("the array is not JSON: %w", err)
	}
	for dec.More() {
		if b.count == eventsMax {
			return errTooMany
		}
		var item json.RawMessage
		if err := dec.Decode(&item); err != nil {
			return fmt.Errorf("the array is not JSON after element %d: %w", b.count, err)
		}
		b.addEvent(item)
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("the array is not closed: %w", err)
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("unexpected data after the array, at byte %d", dec.InputOffset())
	}
	return nil
}

// parseRecords splits a body of another format than JSON into events. In CSV the first record
// may name the fields.
func parseRecords(body []byte, as format.Format, grow func(bytes int) error) (*postedBody, error) {
	b, decoder := &postedBody{}, as.NewDecoder()
	var doc []byte
	granted := len(body)
	for record := range as.Records(body) {
		switch {
		case as.IsBlank(record):
			continue
		case decoder.HasHeader():
			if err := decoder.ReadHeader(record); err != nil {
				return nil, err
			}
			continue
		case b.count == eventsMax:
			return nil, errTooMany
		}
		doc = decoder.Append(doc[:0], record)
		if more := len(b.data) + len(doc) - granted; more > 0 {
			more = max(more, partBytesMax)
			if err := grow(more); err != nil {
				return nil, err
			}
			granted += more
		}
		if _, reason, refused := as.Refused(doc); refused {
			b.count++
			b.reject(reason)
			continue
		}
		b.addEvent(doc)
	}
	return b, nil
}

func (b *postedBody) reject(reason string) {
	b.rejectedCount++
	if len(b.rejected) < rejectedMax {
		b.rejected = append(b.rejected, rejection{b.count, reason})
	}
}

func (b *postedBody) addEvent(doc []byte) {
	b.count++
	if err := pure.Check(doc); err != nil {
		reason := err.Error()
		if hint := format.Hint(doc); hint != "" {
			reason += "; " + hint
		}
		b.reject(reason)
		return
	}
	b.data = append(b.data, doc...)
	b.ends = append(b.ends, uint32(len(b.data)))
}
