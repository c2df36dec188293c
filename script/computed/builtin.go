package computed

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/event"
)

// An identifier has 128 bits: 56 for the pipeline and the partition, 48 for the position
// of the event and 24 for the number of the row among those of the event. So identifiers
// sort as the events of a partition do, are unique, and stay the same when a batch runs
// again.
const (
	positionMax = 1<<48 - 1
	numberMax   = 1<<24 - 1
)

// fillIdentifiers fills a column with identifiers.
func (w *computation) fillIdentifiers(c *Column) {
	owner := sha256.Sum256(fmt.Appendf(nil, "%q %q", w.script.pipeline, w.in.Partition))
	var id [16]byte
	var cell [34]byte
	cell[0], cell[33] = '"', '"'
	for row, from := range w.rows.From {
		position, number := w.in.Range.First+uint64(from), w.numbers[row]
		if position > positionMax || number > numberMax {
			w.rejectRow(row, event.DeadLetter{Stage: "column", Script: w.script.String(), Error: fmt.Sprintf(
				"column %s: %s supports positions up to %d and %d rows per event", c.Name, Identifier, uint64(positionMax), numberMax+1)})
			continue
		}
		copy(id[:7], owner[:])
		binary.BigEndian.PutUint64(id[5:13], position|uint64(id[5])<<56|uint64(id[6])<<48)
		id[13], id[14], id[15] = byte(number>>16), byte(number>>8), byte(number)
		hex.Encode(cell[1:33], id[:])
		w.cells.set(row, cell[:])
	}
}

// fillTimestamps fills a column with the time at which the batch is processed.
func (w *computation) fillTimestamps(c *Column) {
	now := w.in.Time
	if now.IsZero() {
		now = w.script.now()
	}
	cell := appendTime(nil, now)
	if c.Type == event.Int64 {
		cell = strconv.AppendInt(nil, now.Unix(), 10)
	}
	for row := range w.rows.Len() {
		w.cells.set(row, cell)
	}
}

// appendTime appends a time as JSON, to the microsecond.
func appendTime(out []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(out, '"'), "2006-01-02T15:04:05.000000Z"), '"')
}
