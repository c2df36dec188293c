package verify

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/source/generate"
)

// Letters notes every dead letter in a data folder that no engine has open.
func (l *Ledger) Letters(folder string) error {
	letters, err := deadletter.Open(folder)
	if err != nil {
		return err
	}
	defer letters.Close()
	for letter, err := range letters.List(deadletter.Filter{}) {
		if err != nil {
			return err
		}
		var event struct{ ID uint64 }
		if err := json.Unmarshal(letter.Original, &event); err != nil {
			return fmt.Errorf("dead letter at position %d: %w", letter.Position, err)
		}
		l.Dead(event.ID)
	}
	return nil
}

// DroppedByEmail makes generated events anew and tells whether the script of the
// email example drops them.
func DroppedByEmail(seed uint64) func(id uint64) bool {
	var event []byte
	return func(id uint64) bool {
		event = generate.Append(event[:0], seed, id-1)
		return bytes.Contains(event, []byte(`"event_name":"spam"`))
	}
}
