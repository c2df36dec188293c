package audit

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/source/generate"
)

// A letterKey identifies a dead letter across data folders.
type letterKey struct {
	pipeline, partition string
	position            uint64
}

// AddDeadLetters counts the dead letters in data folders that no engine has open. A letter
// counts once if two engines stored it because one took the partition over from the other.
func (l *Audit) AddDeadLetters(folders ...string) error {
	known := make(map[letterKey]int)
	for _, folder := range folders {
		if err := l.addFolder(folder, known); err != nil {
			return err
		}
	}
	return nil
}

func (l *Audit) addFolder(folder string, known map[letterKey]int) error {
	letters, err := deadletter.Open(folder)
	if err != nil {
		return err
	}
	defer letters.Close()
	here := make(map[letterKey]int)
	for letter, err := range letters.List(deadletter.Filter{}) {
		if err != nil {
			return err
		}
		at := letterKey{letter.Pipeline, letter.Partition, letter.Position}
		if here[at]++; here[at] <= known[at] {
			continue
		}
		known[at] = here[at]
		var event struct{ ID uint64 }
		if err := json.Unmarshal(letter.Original, &event); err != nil {
			return fmt.Errorf("dead letter at position %d: %w", letter.Position, err)
		}
		l.AddDead(event.ID)
	}
	return nil
}

// DroppedByEmail returns a function that reports whether the email example's script drops
// the generated event with an id.
func DroppedByEmail(seed uint64) func(id uint64) bool {
	var event []byte
	return func(id uint64) bool {
		event = generate.Append(event[:0], seed, id-1)
		return bytes.Contains(event, []byte(`"event_name":"spam"`))
	}
}
