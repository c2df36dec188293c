package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
)

// A format is one of those of COPY. The binary one costs the server a third less
// than text before a row is in the table, and the sink less as well; but it differs
// for every type of the server, where one text fits all.
type format struct {
	binary bool
	rows   sqlsink.Format
}

// newFormat returns the binary format if all columns have a known binary form.
func newFormat(target *sqlsink.Target, columns []sqlsink.TableColumn) format {
	f := format{binary: true, rows: sqlsink.Format{Null: "\xff\xff\xff\xff"}}
	for _, c := range target.Columns {
		encode := binaryForms[form{event.Type(c.Type), target.Find(columns, c.Name).Type}]
		if encode == nil {
			return newTextFormat(target, columns)
		}
		f.rows.Encoders = append(f.rows.Encoders, encode)
	}
	return f
}

func newTextFormat(target *sqlsink.Target, columns []sqlsink.TableColumn) format {
	f := format{rows: sqlsink.Format{Separator: "\t", Null: `\N`}}
	for _, c := range target.Columns {
		encode := textForms[c.Type]
		if event.Type(c.Type) == event.Decimal {
			encode = sqlsink.Scaled(encode, target.Find(columns, c.Name).Scale)
		}
		f.rows.Encoders = append(f.rows.Encoders, encode)
	}
	return f
}

// header begins the binary format: the signature, no flags, no extension.
const header = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// append appends rows. If numbered, each ends with its index in rows, as an integer.
// A row that cannot be sent at all is a *sqlsink.Misfit.
func (f *format) append(to []byte, columns *event.Columns, rows []int, numbered bool) (_ []byte, err error) {
	fields := uint16(len(f.rows.Encoders))
	if numbered {
		fields++
	}
	if f.binary {
		to = append(to, header...)
	}
	for i, row := range rows {
		if f.binary {
			to = binary.BigEndian.AppendUint16(to, fields)
		}
		if to, err = f.rows.AppendRow(to, columns, row); err != nil {
			return to, err
		}
		switch {
		case f.binary && numbered:
			to = appendInt4(to, int32(i))
		case numbered:
			to = strconv.AppendInt(append(to, '\t'), int64(i), 10)
		}
		if !f.binary {
			to = append(to, '\n')
		}
	}
	if f.binary {
		to = append(to, 0xff, 0xff)
	}
	return to, nil
}

// A form is a type of event columns in a type of the server.
type form struct {
	of event.Type
	in string
}

var binaryForms = map[form]sqlsink.Encoder{
	{event.Bool, "bool"}:             encodeBool,
	{event.Int32, "int4"}:            encodeInt4,
	{event.Int32, "int8"}:            encodeInt8,
	{event.Int64, "int4"}:            encodeInt4,
	{event.Int64, "int8"}:            encodeInt8,
	{event.Float64, "float8"}:        encodeFloat8,
	{event.String, "text"}:           encodeText,
	{event.String, "varchar"}:        encodeText,
	{event.String, "bpchar"}:         encodeText,
	{event.String, "json"}:           encodeText,
	{event.String, "jsonb"}:          encodeJSONB,
	{event.Decimal, "text"}:          encodeText,
	{event.Decimal, "varchar"}:       encodeText,
	{event.JSON, "text"}:             encodeText,
	{event.JSON, "varchar"}:          encodeText,
	{event.JSON, "json"}:             encodeText,
	{event.JSON, "jsonb"}:            encodeJSONB,
	{event.Timestamp, "timestamp"}:   encodeTime,
	{event.Timestamp, "timestamptz"}: encodeTime,
}

func encodeBool(to []byte, v *event.Vector, row int) ([]byte, error) {
	return append(to, 0, 0, 0, 1, byte(v.Ints[row])), nil
}

func encodeInt4(to []byte, v *event.Vector, row int) ([]byte, error) {
	n := v.Ints[row]
	if n != int64(int32(n)) {
		return to, errors.New("out of range of an integer of 4 bytes")
	}
	return appendInt4(to, int32(n)), nil
}

func appendInt4(to []byte, n int32) []byte {
	return binary.BigEndian.AppendUint32(append(to, 0, 0, 0, 4), uint32(n))
}

func encodeInt8(to []byte, v *event.Vector, row int) ([]byte, error) {
	return binary.BigEndian.AppendUint64(append(to, 0, 0, 0, 8), uint64(v.Ints[row])), nil
}

func encodeFloat8(to []byte, v *event.Vector, row int) ([]byte, error) {
	return binary.BigEndian.AppendUint64(append(to, 0, 0, 0, 8), math.Float64bits(v.Floats[row])), nil
}

// epoch is 2000-01-01T00:00:00Z, from which the server counts, in our microseconds.
const epoch = 946684800000000

func encodeTime(to []byte, v *event.Vector, row int) ([]byte, error) {
	if err := sqlsink.CheckTime(v.Ints[row]); err != nil {
		return to, err
	}
	return binary.BigEndian.AppendUint64(append(to, 0, 0, 0, 8), uint64(v.Ints[row]-epoch)), nil
}

func encodeText(to []byte, v *event.Vector, row int) ([]byte, error) {
	text := v.Text(row)
	if err := checkText(text); err != nil {
		return to, err
	}
	return append(binary.BigEndian.AppendUint32(to, uint32(len(text))), text...), nil
}

// encodeJSONB puts the version of the form before the text.
func encodeJSONB(to []byte, v *event.Vector, row int) ([]byte, error) {
	text := v.Text(row)
	if err := checkText(text); err != nil {
		return to, err
	}
	to = append(binary.BigEndian.AppendUint32(to, uint32(len(text)+1)), 1)
	return append(to, text...), nil
}

// longestText is what the server accepts as one value, less than the gigabyte that
// limits a row.
const longestText = 1<<30 - 1<<10

var errNUL = errors.New(`the text holds \u0000, which PostgreSQL cannot store`)

func checkText(text []byte) error {
	if bytes.IndexByte(text, 0) >= 0 {
		return errNUL
	}
	if len(text) > longestText {
		return fmt.Errorf("the text takes %d bytes, and PostgreSQL keeps %d", len(text), longestText)
	}
	return nil
}

var textForms = [...]sqlsink.Encoder{
	event.Bool:      formatBool,
	event.Int32:     formatInt,
	event.Int64:     formatInt,
	event.Float64:   formatFloat,
	event.Decimal:   escapeText,
	event.String:    escapeText,
	event.Timestamp: formatTime,
	event.JSON:      escapeText,
}

func formatBool(to []byte, v *event.Vector, row int) ([]byte, error) {
	return strconv.AppendBool(to, v.Ints[row] != 0), nil
}

func formatInt(to []byte, v *event.Vector, row int) ([]byte, error) {
	return strconv.AppendInt(to, v.Ints[row], 10), nil
}

func formatFloat(to []byte, v *event.Vector, row int) ([]byte, error) {
	return strconv.AppendFloat(to, v.Floats[row], 'g', -1, 64), nil
}

func formatTime(to []byte, v *event.Vector, row int) ([]byte, error) {
	if err := sqlsink.CheckTime(v.Ints[row]); err != nil {
		return to, err
	}
	return append(sqlsink.AppendTime(to, v.Ints[row]), "+00"...), nil
}

func escapeText(to []byte, v *event.Vector, row int) ([]byte, error) {
	text := v.Text(row)
	if err := checkText(text); err != nil {
		return to, err
	}
	plain := 0 // text[plain:i] needs no escape
	for i, c := range text {
		if escape := escapes[c]; escape != 0 {
			to = append(append(to, text[plain:i]...), '\\', escape)
			plain = i + 1
		}
	}
	return append(to, text[plain:]...), nil
}

// escapes are the bytes after a backslash for bytes that need an escape.
var escapes = [256]byte{'\n': 'n', '\r': 'r', '\t': 't', '\\': '\\'}

// A revocable reader reads data until it is revoked: when a connection ends, the
// driver returns and may still be reading.
type revocable struct {
	mu      sync.Mutex
	data    []byte // not read yet
	revoked bool
}

var errRevoked = errors.New("the rows are no longer to be sent")

// Read implements io.Reader.
func (r *revocable) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.revoked {
		return 0, errRevoked
	}
	n := copy(p, r.data)
	if r.data = r.data[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *revocable) revoke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data, r.revoked = nil, true
}
