package deadletter

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
)

// entry is what the file holds of a letter; pipeline, partition and position
// are where it holds it. An event that is UTF-8 stays legible, the bytes of any
// other are kept as base64.
type entry struct {
	Number    uint32    `json:"number"`
	Time      time.Time `json:"time"`
	Stage     string    `json:"stage"`
	Error     string    `json:"error"`
	Traceback string    `json:"traceback,omitempty"`
	Script    string    `json:"script,omitempty"`
	Original  *string   `json:"original,omitempty"`
	Base64    []byte    `json:"original_base64,omitempty"`
}

func encode(d *event.Dead, at time.Time) ([]byte, error) {
	e := entry{
		Number: d.Number, Time: at.UTC(), Stage: d.Stage,
		Error: d.Error, Traceback: d.Traceback, Script: d.Script,
	}
	if utf8.Valid(d.Original) {
		text := string(d.Original)
		e.Original = &text
	} else {
		e.Base64 = d.Original
	}
	value, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode dead letter: %w", err)
	}
	return value, nil
}

func decode(value []byte) (l Letter, err error) {
	var e entry
	if err := json.Unmarshal(value, &e); err != nil {
		return l, fmt.Errorf("decode dead letter: %w", err)
	}
	l.Time, l.Number, l.Stage = e.Time, e.Number, e.Stage
	l.Error, l.Traceback, l.Script = e.Error, e.Traceback, e.Script
	l.Original = e.Base64
	if e.Original != nil {
		l.Original = []byte(*e.Original)
	}
	return l, nil
}
