package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/durable"
)

// A Partition holds the positions that a table has committed of one pipeline partition.
type Partition struct {
	Pipeline  string      `json:"pipeline"`
	Partition string      `json:"partition"`
	Ranges    [][2]uint64 `json:"ranges"` // first position and count
}

// NewPartition returns the entry of a set of positions.
func NewPartition(pipeline, partition string, committed event.Ranges) *Partition {
	p := &Partition{Pipeline: pipeline, Partition: partition}
	for _, r := range committed {
		p.Ranges = append(p.Ranges, [2]uint64{r.First, r.Count})
	}
	return p
}

// Committed returns the positions, without fingerprints.
func (p *Partition) Committed() event.Ranges {
	var committed event.Ranges
	for _, r := range p.Ranges {
		committed.Add(event.Range{First: r[0], Count: r[1]})
	}
	return committed
}

// A FingerprintsFile is a file with the fingerprints of committed ranges, in the table's folder.
type FingerprintsFile struct {
	Number  uint64    `json:"number"` // of the segment
	Events  uint64    `json:"events"` // events with a fingerprint
	Written time.Time `json:"written"`
}

// FingerprintsName returns the name of a fingerprint file in the table's folder.
func FingerprintsName(number uint64) string { return fmt.Sprintf("ranges-%010d", number) }

// A RangeChange is one change of a partition's committed positions. It adds a range. If Reset
// is set, it instead marks all positions before Range.Count as committed and all others as
// not committed.
type RangeChange struct {
	Pipeline, Partition string
	Reset               bool
	Range               event.Range
}

// Apply applies the change to the committed positions of its partition.
func (c *RangeChange) Apply(committed event.Ranges) event.Ranges {
	if !c.Reset {
		committed.Add(c.Range)
		return committed
	}
	var kept event.Ranges
	for _, r := range committed {
		if r.First < c.Range.Count {
			kept.Add(r.Head(min(r.Count, c.Range.Count-r.First)))
		}
	}
	kept.Add(event.Range{Count: c.Range.Count})
	return kept
}

var fingerprintsMagic = []byte("perigee-ranges 1\n")

// WriteFingerprints writes the changes of one segment to a fingerprint file and returns its entry.
// When it returns, the file and its name are durable.
func WriteFingerprints(folder string, t *Table, number uint64, changes []RangeChange) (*FingerprintsFile, error) {
	data := slices.Clone(fingerprintsMagic)
	entry := &FingerprintsFile{Number: number, Written: time.Now().UTC()}
	for _, c := range changes {
		data = appendText(data, c.Pipeline)
		data = appendText(data, c.Partition)
		reset := byte(0)
		if c.Reset {
			reset = 1
		}
		data = append(data, reset)
		data = binary.AppendUvarint(data, c.Range.First)
		data = binary.AppendUvarint(data, c.Range.Count)
		data = binary.AppendUvarint(data, uint64(len(c.Range.Fingerprints)))
		for _, fingerprint := range c.Range.Fingerprints {
			data = binary.LittleEndian.AppendUint32(data, fingerprint)
		}
		entry.Events += uint64(len(c.Range.Fingerprints))
	}
	data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
	path := t.Path(folder, FingerprintsName(number))
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return entry, durable.WriteFile(path, data, 0o600)
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// ReadFingerprints returns the changes in a fingerprint file, in order. It returns a *DamageError
// if the file is missing or damaged.
func ReadFingerprints(folder string, t *Table, number uint64) ([]RangeChange, error) {
	path := t.Path(folder, FingerprintsName(number))
	data, err := durable.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &DamageError{File: path, Reason: "it is missing"}
	}
	if err != nil {
		return nil, err
	}
	n := len(data) - 4
	if n < len(fingerprintsMagic) || !bytes.HasPrefix(data, fingerprintsMagic) || crc32.Checksum(data[:n], castagnoli) != binary.LittleEndian.Uint32(data[n:]) {
		return nil, &DamageError{File: path, Reason: "its checksum is wrong"}
	}
	changes, ok := decodeChanges(data[len(fingerprintsMagic):n])
	if !ok {
		return nil, &DamageError{File: path, Reason: "an entry is cut off"}
	}
	return changes, nil
}

func decodeChanges(data []byte) (changes []RangeChange, ok bool) {
	d := decoder{data: data}
	for len(d.data) > 0 && !d.short {
		c := RangeChange{Pipeline: d.text(), Partition: d.text()}
		c.Reset = d.take(1)[0] == 1
		c.Range.First, c.Range.Count = d.number(), d.number()
		if fingerprints := d.number(); fingerprints > 0 {
			if fingerprints != c.Range.Count || fingerprints > uint64(len(d.data))/4 {
				return nil, false
			}
			c.Range.Fingerprints = make([]uint32, fingerprints)
			for i, raw := 0, d.take(4*fingerprints); i < len(c.Range.Fingerprints); i++ {
				c.Range.Fingerprints[i] = binary.LittleEndian.Uint32(raw[4*i:])
			}
		}
		changes = append(changes, c)
	}
	return changes, !d.short
}

// A decoder reads from data. Once data is too short, it sets short and returns zeros.
type decoder struct {
	data  []byte
	short bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.data)
	if size <= 0 {
		d.data, d.short = nil, true
		return 0
	}
	d.data = d.data[size:]
	return n
}

// take returns the next n bytes, or a single zero byte if fewer remain.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.data)) {
		d.data, d.short = nil, true
		return []byte{0}
	}
	taken := d.data[:n]
	d.data = d.data[n:]
	return taken
}

func (d *decoder) text() string { return string(d.take(d.number())) }
