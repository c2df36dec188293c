package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/boltfile"
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
	Damaged     bool      // only where it is stored is known, and Error says what to do
	event.DeadLetter
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
	if l.Damaged { // its number is not that of a row
		key = append(key, damagedStage...)
	}
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
	Row       []byte     `json:"row,omitempty"`
	Document  string     `json:"document,omitempty"` // of a script, which returns UTF-8
}

// origin is where the event of a letter was first read.
type origin struct {
	Partition string `json:"partition"`
	Position  uint64 `json:"position"`
}

// encode returns the stored form of a letter for a location.
func (l *Letter) encode(at location) ([]byte, error) {
	e := entry{
		Sink: l.Sink, Number: l.Number, Time: l.Time.UTC(), Retried: l.Retried, Stage: l.Stage,
		Error: l.Error, Traceback: l.Traceback, Script: l.Script, Row: l.Row, Document: string(l.Document),
	}
	if !l.First.Equal(l.Time) {
		first := l.First.UTC()
		e.First = &first
	}
	if l.Partition != string(at.partition) || l.Position != decodePosition(at.key) {
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
	return boltfile.AppendChecksum(value, at.pipeline, at.partition, at.key), nil
}

// decodeLetter decodes the letter stored at a location, or returns boltfile.ErrDamagedValue.
func decodeLetter(at location, value []byte) (l Letter, err error) {
	var e entry
	content, err := boltfile.VerifyChecksum(value, at.pipeline, at.partition, at.key)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(content, &e); err != nil {
		return l, fmt.Errorf("%w: %w", boltfile.ErrDamagedValue, err)
	}
	if !bytes.HasSuffix(content, []byte("}")) { // the rest of a checksum
		return l, boltfile.ErrDamagedValue
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
	l.Original, l.Row = e.Base64, e.Row
	if e.Original != nil {
		l.Original = []byte(*e.Original)
	}
	if e.Document != "" {
		l.Document = []byte(e.Document)
	}
	return l, nil
}

// damagedStage is the stage of a damaged letter.
const damagedStage = "damaged"

// damagedLetter stands for the letter at a location that err says is damaged.
func damagedLetter(at location, err error) Letter {
	l := Letter{Pipeline: string(at.pipeline), Partition: string(at.partition), Damaged: true}
	l.Position, l.Stage, l.Error = decodePosition(at.key), damagedStage, err.Error()
	if ordinal := at.key[len(positionKey(0)):]; len(ordinal) == 4 {
		l.Number = binary.BigEndian.Uint32(ordinal)
	}
	return l
}

// damageAt says where a letter of the retry queue is damaged, as after a power cut on a disk that
// says it has synced what it has not. Reading it again does not help.
func (s *Store) damageAt(at location, err error) error {
	return &event.PermanentError{
		Err: fmt.Errorf("the retry of a dead letter of %s, partition %s, position %d in %s: %w",
			at.pipeline, at.partition, decodePosition(at.key), s.db.Path(), err),
		Hint: "restore " + s.db.Path() + " from a copy, or move it away and lose its dead letters and requested retries",
	}
}
