package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/sink"
)

// A Note is the content of a sink.Note.
type Note struct {
	Number    uint64
	Previous  uint64    // checksum of the note before; 0 for the first
	Sum       uint64    // checksum of this one
	Clock     time.Time // of the delivery, in whole milliseconds
	Delivered uint64    // number of a note up to which every sink had its outputs by then
	Script    string    // name and version of the script that ran
	Partition string    // whose events ran
	Range     event.Range
	Changes   []byte // of nodes, as nodedb.Delta.AppendTo encodes them
	Outputs   []byte // an outbox.Entry for the sinks that are not the home; empty for none
}

// A stored note begins with a byte for its version and the checksum of the note before. The
// rest is compressed. Its checksum is that of all its bytes, which therefore stands for all
// notes up to it.
const (
	noteVersion = 1
	noteHeader  = 1 + 8
)

// Formats describes the format versions in which state is kept beside the node database.
func Formats() string { return fmt.Sprintf("notes %d, archive %d", noteVersion, archive.Version) }

// contentMax is the size of the largest content, before it is compressed.
const contentMax = 4 * sink.NoteMax

// NoteGoal is the size of the largest note that a delivery should have: one that would exceed it,
// or four times as much before it is compressed, is split. Dead letters of rejected rows may make
// a note larger, and versions before made notes of up to sink.NoteMax.
const NoteGoal = 8 << 20

// ShareOfNote returns the share of a note that a frozen delivery takes: above 1 it does not fit.
func (u *Unit) ShareOfNote(d *Delivery, content Note) (share float64, err error) {
	if content.Changes, err = d.AppendTo(nil); err != nil {
		return 0, fmt.Errorf("encode the changes of unit %s: %w", u.name, err)
	}
	share = float64(len(content.Changes)+len(content.Outputs)) / (4 * NoteGoal)
	if share > 1 {
		return share, nil
	}
	data, err := content.encode()
	return max(share, float64(len(data))/NoteGoal), err
}

var errDamagedNote = errors.New("the note is damaged")

var (
	noteEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithEncoderCRC(false))
		return e
	})
	noteDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(contentMax))
		return d
	})
)

// keptBuffer is the size of the largest buffer that is kept for other notes.
const keptBuffer = 8 << 20

// noteBuffers has memory for the content of notes.
var noteBuffers = sync.Pool{New: func() any { return new([]byte) }}

// encode returns the stored form of a note without its number and the note before, which link
// sets.
func (n *Note) encode() (data []byte, err error) {
	buffer := noteBuffers.Get().(*[]byte)
	defer noteBuffers.Put(buffer)
	b := (*buffer)[:0]
	b = binary.AppendUvarint(b, uint64(n.Clock.UnixMilli()))
	b = binary.AppendUvarint(b, n.Delivered)
	b = appendText(b, n.Script)
	b = appendText(b, n.Partition)
	b = binary.AppendUvarint(b, n.Range.First)
	b = binary.AppendUvarint(b, n.Range.Count)
	b = appendText(b, n.Outputs)
	b = append(b, n.Changes...)
	if cap(b) <= keptBuffer {
		*buffer = b
	}
	if len(b) > contentMax {
		return nil, tooLarge(len(b), contentMax)
	}
	data = make([]byte, noteHeader, noteHeader+len(b)/3+64)
	data[0] = noteVersion
	if data = noteEncoder().EncodeAll(b, data); len(data) > sink.NoteMax {
		return nil, tooLarge(len(data), sink.NoteMax)
	}
	return data, nil
}

func tooLarge(size, limit int) error {
	return &event.PermanentError{
		Err:  fmt.Errorf("the changes of one batch and its rows for other sinks take %d MB, and a note at most %d", size>>20, limit>>20),
		Hint: "make batches smaller: batch: {events: 100}",
	}
}

// link makes encoded data the note that follows another.
func link(data []byte, number, previous uint64) *sink.Note {
	binary.LittleEndian.PutUint64(data[1:], previous)
	return &sink.Note{Number: number, Sum: xxhash.Sum64(data), Data: data}
}

// previousOf returns the checksum of the note before; 0 if the note is damaged.
func previousOf(stored *sink.Note) uint64 {
	if len(stored.Data) < noteHeader {
		return 0
	}
	return binary.LittleEndian.Uint64(stored.Data[1:])
}

// checkNote returns an error unless a stored note has its checksum and follows another.
func checkNote(stored *sink.Note, before archive.Point) error {
	switch {
	case len(stored.Data) < noteHeader || xxhash.Sum64(stored.Data) != stored.Sum:
		return errDamagedNote
	case stored.Number != before.Number+1 || previousOf(stored) != before.Sum:
		return fmt.Errorf("it does not continue note %d", before.Number)
	}
	return nil
}

// decodeNote reads a stored note. The result shares no memory with it.
func decodeNote(stored *sink.Note) (*Note, error) {
	if len(stored.Data) < noteHeader || xxhash.Sum64(stored.Data) != stored.Sum {
		return nil, errDamagedNote
	}
	if stored.Data[0] != noteVersion {
		return nil, fmt.Errorf("the note has version %d, and this program reads %d: use the version of perigee that wrote it", stored.Data[0], noteVersion)
	}
	n := &Note{Number: stored.Number, Sum: stored.Sum, Previous: previousOf(stored)}
	content, err := noteDecoder().DecodeAll(stored.Data[noteHeader:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamagedNote, err)
	}
	r := reader{content}
	n.Clock = time.UnixMilli(int64(r.uvarint()))
	n.Delivered = r.uvarint()
	n.Script, n.Partition = string(r.text()), string(r.text())
	n.Range = event.Range{First: r.uvarint(), Count: r.uvarint()}
	n.Outputs = r.text()
	n.Changes = r.rest
	if r.rest == nil {
		return nil, errDamagedNote
	}
	return n, nil
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// A reader reads the parts of a note. rest is nil once one of them was damaged.
type reader struct{ rest []byte }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest = nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) text() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.rest = nil
		return nil
	}
	text := r.rest[:n:n]
	r.rest = r.rest[n:]
	return text
}
