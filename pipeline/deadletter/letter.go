package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
)

// A Letter is a dead event, or one row of it, and where it belongs. Partition
// and Position are those at which the event was first read; a retry does not
// change them.
type Letter struct {
	Pipeline    string
	Partition   string
	First       time.Time // when the event first failed
	Time        time.Time // when it last failed
	Retried     int       // number of retries
	Uncommitted bool      // its range may not be durable in every sink yet: it cannot be retried
	event.Dead
}

// idLength makes it unlikely that two of a million letters share an ID.
const idLength = 10

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// ID returns a short name of the letter. It depends only on where the letter
// belongs, so a rerun and a failed retry keep it.
func (l *Letter) ID() string {
	var key []byte
	for _, name := range []string{l.Pipeline, l.Partition, l.Sink} {
		key = binary.BigEndian.AppendUint32(key, uint32(len(name)))
		key = append(key, name...)
	}
	key = binary.BigEndian.AppendUint64(key, l.Position)
	key = binary.BigEndian.AppendUint32(key, l.Number)
	sum := sha256.Sum256(key)
	return idEncoding.EncodeToString(sum[:])[:idLength]
}

// entry is the stored form of a letter. Its bucket path and key hold pipeline,
// partition and position; Origin holds the partition and position of a letter
// that was retried. An event in UTF-8 is stored legibly, any other as base64.
type entry struct {
	Sink      string     `json:"sink,omitempty"`
	Number    uint32     `json:"number"`
	Time      time.Time  `json:"time"`
	First     *time.Time `json:"first,omitempty"` // if it differs from Time
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

// encode returns the stored form of a letter for a position of a partition.
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
	return appendSum(value, position), nil
}

// sumField begins the last field of a stored letter, which an older version ignores: the
// CRC-32C of the position and of all fields before. No string has it, as quotes in it are escaped.
const sumField = `,"sum":`

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is for a letter that is not as it was stored, as after a power cut on a disk that
// says it has synced what it has not.
var errDamaged = errors.New("a dead letter is damaged; restore " + FileName + " from a copy, or move it away and lose what it holds")

// appendSum adds the checksum to a JSON object.
func appendSum(object []byte, position uint64) []byte {
	sum := checksum(object, position)
	return fmt.Appendf(object[:len(object)-1], "%s%d}", sumField, sum)
}

func checksum(object []byte, position uint64) uint32 {
	return crc32.Update(crc32.Checksum(positionKey(position), castagnoli), castagnoli, object)
}

// checkSum returns an error unless the checksum is right. An older version stored none.
func checkSum(value []byte, position uint64) error {
	i := bytes.LastIndex(value, []byte(sumField))
	if i < 0 {
		return nil
	}
	object := append(bytes.Clone(value[:i]), '}')
	if !bytes.Equal(appendSum(object, position), value) {
		return errDamaged
	}
	return nil
}

// decodeLetter decodes the letter stored at a location.
func decodeLetter(at location, value []byte) (l Letter, err error) {
	var e entry
	if err := json.Unmarshal(value, &e); err != nil {
		return l, fmt.Errorf("%w (%w)", errDamaged, err)
	}
	if err := checkSum(value, decodePosition(at.key)); err != nil {
		return l, err
	}
	l.Pipeline, l.Partition, l.Position = string(at.pipeline), string(at.partition), decodePosition(at.key)
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
