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
	"github.com/perigeedb/perigee/sink/internal/positions"
	"github.com/perigeedb/perigee/sink/internal/table"
)

// An encoder appends the value of a row, which is not null, as COPY takes it.
type encoder func(to []byte, v *event.Vector, row int) ([]byte, error)

// A format is one of those of COPY. The binary one costs the server a third less
// than text before a row is in the table, and the sink less as well; but it has
// a form of its own for every type of the server, where text will do for all.
type format struct {
	binary   bool
	encoders []encoder // of our columns
}

// newFormat returns the binary format where all columns have a form that is known.
func newFormat(columns []table.Column, target *target) format {
	f := format{binary: true}
	for _, c := range columns {
		as := binaryForms[form{event.Type(c.Type), find(target.columns, c.Name).kind}]
		if as == nil {
			return textFormat(columns, target)
		}
		f.encoders = append(f.encoders, as)
	}
	return f
}

func textFormat(columns []table.Column, target *target) format {
	var f format
	for _, c := range columns {
		as := textForms[c.Type]
		if scale := find(target.columns, c.Name).scale; scale >= 0 && event.Type(c.Type) == event.Decimal {
			as = scaled(as, scale)
		}
		f.encoders = append(f.encoders, as)
	}
	return f
}

// header begins the binary format: the signature, no flags, no extension.
const header = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// append appends rows. With numbered they end in their places among rows, as
// an integer. A row that can't be sent at all is a *refusal.
func (f *format) append(to []byte, columns *event.Columns, rows []int, numbered bool) ([]byte, error) {
	if f.binary {
		return f.appendBinary(append(to, header...), columns, rows, numbered)
	}
	return f.appendText(to, columns, rows, numbered)
}

func (f *format) appendBinary(to []byte, columns *event.Columns, rows []int, numbered bool) ([]byte, error) {
	fields := uint16(len(f.encoders))
	if numbered {
		fields++
	}
	var err error
	for i, row := range rows {
		to = binary.BigEndian.AppendUint16(to, fields)
		for c, encode := range f.encoders {
			v := &columns.Vectors[c]
			if v.Null[row] != 0 {
				to = append(to, 0xff, 0xff, 0xff, 0xff)
				continue
			}
			if to, err = encode(to, v, row); err != nil {
				return to, &refusal{i, c, err}
			}
		}
		if numbered {
			to = appendInt4(to, int32(i))
		}
	}
	return append(to, 0xff, 0xff), nil
}

func (f *format) appendText(to []byte, columns *event.Columns, rows []int, numbered bool) ([]byte, error) {
	var err error
	for i, row := range rows {
		for c, encode := range f.encoders {
			if c > 0 {
				to = append(to, '\t')
			}
			v := &columns.Vectors[c]
			if v.Null[row] != 0 {
				to = append(to, `\N`...)
				continue
			}
			if to, err = encode(to, v, row); err != nil {
				return to, &refusal{i, c, err}
			}
		}
		if numbered {
			to = strconv.AppendInt(append(to, '\t'), int64(i), 10)
		}
		to = append(to, '\n')
	}
	return to, nil
}

// A form is a type of ours in a type of the server's.
type form struct {
	of event.Type
	in string
}

var binaryForms = map[form]encoder{
	{event.Bool, "bool"}:             putBool,
	{event.Int32, "int4"}:            putInt4,
	{event.Int32, "int8"}:            putInt8,
	{event.Int64, "int4"}:            putInt4,
	{event.Int64, "int8"}:            putInt8,
	{event.Float64, "float8"}:        putFloat8,
	{event.String, "text"}:           putText,
	{event.String, "varchar"}:        putText,
	{event.String, "bpchar"}:         putText,
	{event.String, "json"}:           putText,
	{event.String, "jsonb"}:          putJSONB,
	{event.Decimal, "text"}:          putText,
	{event.Decimal, "varchar"}:       putText,
	{event.JSON, "text"}:             putText,
	{event.JSON, "varchar"}:          putText,
	{event.JSON, "json"}:             putText,
	{event.JSON, "jsonb"}:            putJSONB,
	{event.Timestamp, "timestamp"}:   putTime,
	{event.Timestamp, "timestamptz"}: putTime,
}

func putBool(to []byte, v *event.Vector, row int) ([]byte, error) {
	return append(to, 0, 0, 0, 1, byte(v.Ints[row])), nil
}

func putInt4(to []byte, v *event.Vector, row int) ([]byte, error) {
	n := v.Ints[row]
	if n != int64(int32(n)) {
		return to, errors.New("out of range of an integer of 4 bytes")
	}
	return appendInt4(to, int32(n)), nil
}

func appendInt4(to []byte, n int32) []byte {
	return binary.BigEndian.AppendUint32(append(to, 0, 0, 0, 4), uint32(n))
}

func putInt8(to []byte, v *event.Vector, row int) ([]byte, error) {
	return binary.BigEndian.AppendUint64(append(to, 0, 0, 0, 8), uint64(v.Ints[row])), nil
}

func putFloat8(to []byte, v *event.Vector, row int) ([]byte, error) {
	return binary.BigEndian.AppendUint64(append(to, 0, 0, 0, 8), math.Float64bits(v.Floats[row])), nil
}

// epoch is 2000-01-01T00:00:00Z, from which the server counts, in our microseconds.
const epoch = 946684800000000

func putTime(to []byte, v *event.Vector, row int) ([]byte, error) {
	if err := table.CheckTime(v.Ints[row]); err != nil {
		return to, err
	}
	return binary.BigEndian.AppendUint64(append(to, 0, 0, 0, 8), uint64(v.Ints[row]-epoch)), nil
}

func putText(to []byte, v *event.Vector, row int) ([]byte, error) {
	text := v.Text(row)
	if err := checkText(text); err != nil {
		return to, err
	}
	return append(binary.BigEndian.AppendUint32(to, uint32(len(text))), text...), nil
}

// putJSONB puts the version of the form before the text.
func putJSONB(to []byte, v *event.Vector, row int) ([]byte, error) {
	text := v.Text(row)
	if err := checkText(text); err != nil {
		return to, err
	}
	to = append(binary.BigEndian.AppendUint32(to, uint32(len(text)+1)), 1)
	return append(to, text...), nil
}

// longestText is what the server takes as one value, less than the gigabyte at
// which a row ends.
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

var textForms = [...]encoder{
	event.Bool:      writeBool,
	event.Int32:     writeInt,
	event.Int64:     writeInt,
	event.Float64:   writeFloat,
	event.Decimal:   writeText,
	event.String:    writeText,
	event.Timestamp: writeTime,
	event.JSON:      writeText,
}

func writeBool(to []byte, v *event.Vector, row int) ([]byte, error) {
	return strconv.AppendBool(to, v.Ints[row] != 0), nil
}

func writeInt(to []byte, v *event.Vector, row int) ([]byte, error) {
	return strconv.AppendInt(to, v.Ints[row], 10), nil
}

func writeFloat(to []byte, v *event.Vector, row int) ([]byte, error) {
	return strconv.AppendFloat(to, v.Floats[row], 'g', -1, 64), nil
}

func writeTime(to []byte, v *event.Vector, row int) ([]byte, error) {
	if err := table.CheckTime(v.Ints[row]); err != nil {
		return to, err
	}
	return append(table.AppendTime(to, v.Ints[row]), "+00"...), nil
}

func writeText(to []byte, v *event.Vector, row int) ([]byte, error) {
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

// escapes are what stands after a backslash for a byte that can't stand alone.
var escapes = [256]byte{'\n': 'n', '\r': 'r', '\t': 't', '\\': '\\'}

// scaled refuses what a numeric would round in silence.
func scaled(as encoder, scale int) encoder {
	return func(to []byte, v *event.Vector, row int) ([]byte, error) {
		if err := table.CheckScale(v.Text(row), scale); err != nil {
			return to, err
		}
		return as(to, v, row)
	}
}

// A batch is one transaction on its way to the server. Its memory is used again.
type batch struct {
	statement []byte
	data      []byte
}

// A lent is data that somebody else reads until it is taken back: when a
// connection ends, the driver returns and may go on reading.
type lent struct {
	mu   sync.Mutex
	data []byte // what is left
	back bool
}

var errTakenBack = errors.New("the rows are no longer to be sent")

// Read implements io.Reader.
func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back {
		return 0, errTakenBack
	}
	n := copy(p, l.data)
	if l.data = l.data[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (l *lent) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data, l.back = nil, true
}

// encode makes the data of rows.
func (b *batch) encode(f *format, rows *positions.Rows, index []int, numbered bool) (err error) {
	b.data, err = f.append(b.data[:0], rows.Columns, index, numbered)
	return err
}
