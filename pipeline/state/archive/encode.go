package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/sink"
)

// A segment, and the manifest of a snapshot, begin with 5 bytes for their kind and a byte for their
// version, and end with the checksum (xxHash64) of all bytes before. Numbers are varints, checksums
// 8 bytes, least significant first.
//
//	segment:  number and checksum of the note before; how many notes follow; each with its checksum,
//	          its length, and its bytes as the home stores them
//	manifest: numbers and checksums of the notes Applied and Begun; clock, in ms since 1970; nodes;
//	          bytes of all chunks before compression; how many chunks follow: each size and checksum
const (
	segmentMagic  = "PGSEG"
	manifestMagic = "PGSNP"
	sumBytes      = 8
)

const (
	// segmentMax is larger than the largest segment: SegmentBytes and a note of the largest size.
	segmentMax = SegmentBytes + sink.NoteMax + 1<<20
	// manifestMax has room for some millions of chunks.
	manifestMax = 64 << 20
)

// SegmentBytes is the size of notes at which a segment ends.
const SegmentBytes = 4 << 20

// ErrDamaged says that an object does not decode, or that its checksum does not match.
var ErrDamaged = errors.New("the object is damaged")

// Version is the format version of the objects of an archive.
const Version = 1

func begin(magic string) []byte { return append([]byte(magic), Version) }

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b)) }

// unseal returns a reader of what is between the head and the checksum.
func unseal(data []byte, magic string) (*reader, error) {
	body := len(data) - sumBytes
	if body < len(magic)+1 || string(data[:len(magic)]) != magic || binary.LittleEndian.Uint64(data[body:]) != xxhash.Sum64(data[:body]) {
		return nil, ErrDamaged
	}
	if v := data[len(magic)]; v != Version {
		return nil, fmt.Errorf("the object has version %d, and this program reads %d: use the version of perigee that wrote it", v, Version)
	}
	return &reader{rest: data[len(magic)+1 : body]}, nil
}

func appendPoint(b []byte, p Point) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(b, p.Number), p.Sum)
}

func encodeSegment(before Point, notes []*sink.Note) []byte {
	size := 64
	for _, n := range notes {
		size += len(n.Data) + sumBytes + binary.MaxVarintLen64
	}
	b := appendPoint(append(make([]byte, 0, size), begin(segmentMagic)...), before)
	b = binary.AppendUvarint(b, uint64(len(notes)))
	for _, n := range notes {
		b = binary.LittleEndian.AppendUint64(b, n.Sum)
		b = binary.AppendUvarint(b, uint64(len(n.Data)))
		b = append(b, n.Data...)
	}
	return seal(b)
}

// decodeSegment returns notes that share the memory of data.
func decodeSegment(data []byte) (before Point, notes []*sink.Note, err error) {
	r, err := unseal(data, segmentMagic)
	if err != nil {
		return before, nil, err
	}
	before = r.point()
	count := r.uvarint()
	for number := before.Number + 1; count > 0 && !r.bad; count, number = count-1, number+1 {
		n := &sink.Note{Number: number, Sum: r.sum()}
		n.Data = r.bytes(r.uvarint())
		r.bad = r.bad || number == 0 || len(n.Data) > sink.NoteMax
		notes = append(notes, n)
	}
	return before, notes, r.end()
}

// A Manifest describes the chunks of a snapshot.
type Manifest struct {
	Clock  time.Time
	Nodes  uint64
	Bytes  uint64 // of all chunks before compression
	Chunks []ChunkSum
}

// Size returns the bytes of all chunks in the archive.
func (m *Manifest) Size() (size int64) {
	for _, c := range m.Chunks {
		size += int64(c.Size)
	}
	return size
}

// A ChunkSum is the size and the checksum of a chunk as it is stored.
type ChunkSum struct {
	Size uint32
	Sum  uint64
}

func sumOfChunk(data []byte) ChunkSum { return ChunkSum{uint32(len(data)), xxhash.Sum64(data)} }

func (m *Manifest) encode(name SnapshotName) []byte {
	b := appendPoint(appendPoint(begin(manifestMagic), name.Applied), name.Begun)
	for _, v := range []uint64{uint64(m.Clock.UnixMilli()), m.Nodes, m.Bytes, uint64(len(m.Chunks))} {
		b = binary.AppendUvarint(b, v)
	}
	for _, c := range m.Chunks {
		b = binary.LittleEndian.AppendUint64(binary.AppendUvarint(b, uint64(c.Size)), c.Sum)
	}
	return seal(b)
}

func decodeManifest(data []byte, name SnapshotName) (*Manifest, error) {
	r, err := unseal(data, manifestMagic)
	if err != nil {
		return nil, err
	}
	if r.point() != name.Applied || r.point() != name.Begun {
		return nil, fmt.Errorf("%w: it is of other notes than its name says", ErrDamaged)
	}
	m := &Manifest{Clock: time.UnixMilli(int64(r.uvarint())), Nodes: r.uvarint(), Bytes: r.uvarint()}
	for count := r.uvarint(); count > 0 && !r.bad; count-- {
		size := r.uvarint()
		r.bad = r.bad || size > chunkMax
		m.Chunks = append(m.Chunks, ChunkSum{uint32(size), r.sum()})
	}
	return m, r.end()
}

// chunkMax is larger than the largest chunk: one that has a node of the largest size.
const chunkMax = 256 << 20

// A reader reads the parts of an object. bad is set once one of them was damaged.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) sum() uint64 {
	if b := r.bytes(sumBytes); !r.bad {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) point() Point { return Point{r.uvarint(), r.sum()} }

// end returns an error unless all was read.
func (r *reader) end() error {
	if r.bad || len(r.rest) > 0 {
		return ErrDamaged
	}
	return nil
}

// IsUnreadable reports whether an error says that an object is missing or damaged, and not that the
// place cannot be reached.
func IsUnreadable(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist)
}
