package deadletter

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// entry is what the file holds of a letter; pipeline, partition and position
// are where it holds it, and of one that was tried again in Origin. An event that
// is UTF-8 stays legible, the bytes of any other are kept as base64.
type entry struct {
	Sink      string     `json:"sink,omitempty"`
	Number    uint32     `json:"number"`
	Time      time.Time  `json:"time"`
	First     *time.Time `json:"first,omitempty"` // where it is not Time
	Retried   int        `json:"retried,omitempty"`
	Origin    *origin    `json:"origin,omitempty"`
	Stage     string     `json:"stage"`
	Error     string     `json:"error"`
	Traceback string     `json:"traceback,omitempty"`
	Script    string     `json:"script,omitempty"`
	Original  *string    `json:"original,omitempty"`
	Base64    []byte     `json:"original_base64,omitempty"`
}

// origin is where the event of a letter was first read.
type origin struct {
	Partition string `json:"partition"`
	Position  uint64 `json:"position"`
}

// encode makes the entry of a letter that is to be held at a position of a
// partition.
func (l *Letter) encode(partition string, position uint64) ([]byte, error) {
	e := entry{
		Sink: l.Sink, Number: l.Number, Time: l.Time.UTC(), Retried: l.Retried, Stage: l.Stage,
		Error: l.Error, Traceback: l.Traceback, Script: l.Script,
	}
	if !l.First.Equal(l.Time) {
		first := l.First.UTC()
		e.First = &first
	}
	if l.Partition != partition || l.Position != position {
		e.Origin = &origin{l.Partition, l.Position}
	}
	if utf8.Valid(l.Original) {
		text := string(l.Original)
		e.Original = &text
	} else {
		e.Base64 = l.Original
	}
	value, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode dead letter: %w", err)
	}
	return value, nil
}

// decode reads the entry that is held at a place.
func decode(at place, value []byte) (l Letter, err error) {
	var e entry
	if err := json.Unmarshal(value, &e); err != nil {
		return l, fmt.Errorf("decode dead letter: %w", err)
	}
	l.Pipeline, l.Partition, l.Position = string(at.pipeline), string(at.partition), position(at.key)
	if e.Origin != nil {
		l.Partition, l.Position = e.Origin.Partition, e.Origin.Position
	}
	l.Time, l.First, l.Retried = e.Time, e.Time, e.Retried
	if e.First != nil {
		l.First = *e.First
	}
	l.Sink, l.Number, l.Stage = e.Sink, e.Number, e.Stage
	l.Error, l.Traceback, l.Script = e.Error, e.Traceback, e.Script
	l.Original = e.Base64
	if e.Original != nil {
		l.Original = []byte(*e.Original)
	}
	return l, nil
}
