//go:build cgo && luajit

package luajit

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// Values are encoded as a letter and its data, in the machine's byte order:
//
//	N T F    nil, true, false
//	D        8 bytes of a double
//	S B J    a length of 4 bytes and a text: a string, a number that a double cannot hold,
//	         a document as JSON (only from Lua)
//	L        a count of 4 bytes and the elements
//	M … E    keys, which are strings, and values
//
// values.c implements the other side.

var errTruncated = errors.New("values from Lua are cut short")

// A decoder decodes values.
type decoder struct{ data []byte }

// DecodeValues decodes values from Lua; no data gives nil.
func DecodeValues(data []byte) ([]any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	return decodeValues(data)
}

// AppendValue appends the encoding of a value.
func AppendValue(out []byte, v any) []byte { return encodeValue(out, v) }

// SkipValue returns the data after the first value.
func SkipValue(data []byte) []byte {
	switch tag := data[0]; tag {
	case 'D':
		return data[9:]
	case 'S', 'B', 'J':
		return data[5+binary.NativeEndian.Uint32(data[1:]):]
	case 'L':
		count := binary.NativeEndian.Uint32(data[1:])
		for data = data[5:]; count > 0; count-- {
			data = SkipValue(data)
		}
		return data
	case 'M':
		for data = data[1:]; data[0] != 'E'; {
			data = SkipValue(SkipValue(data))
		}
	}
	return data[1:]
}

// CountValues returns the number of encoded values.
func CountValues(data []byte) int {
	count := 0
	for ; len(data) > 0; count++ {
		data = SkipValue(data)
	}
	return count
}

func decodeValues(data []byte) ([]any, error) {
	values := []any{}
	for d := (decoder{data}); len(d.data) > 0; {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// take removes n bytes from the front.
func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.data) {
		return nil, errTruncated
	}
	taken := d.data[:n]
	d.data = d.data[n:]
	return taken, nil
}

func (d *decoder) length() (int, error) {
	n, err := d.take(4)
	if err != nil {
		return 0, err
	}
	return int(binary.NativeEndian.Uint32(n)), nil
}

func (d *decoder) text() (string, error) {
	n, err := d.length()
	if err != nil {
		return "", err
	}
	text, err := d.take(n)
	return string(text), err
}

func (d *decoder) value() (any, error) {
	tag, err := d.take(1)
	if err != nil {
		return nil, err
	}
	switch tag[0] {
	case 'N':
		return nil, nil
	case 'T', 'F':
		return tag[0] == 'T', nil
	case 'D':
		bits, err := d.take(8)
		if err != nil {
			return nil, err
		}
		return math.Float64frombits(binary.NativeEndian.Uint64(bits)), nil
	case 'S':
		return d.text()
	case 'B':
		text, err := d.text()
		return json.Number(text), err
	case 'J':
		return d.document()
	case 'L':
		return d.list()
	case 'M':
		return d.fields()
	}
	return nil, fmt.Errorf("values from Lua have unknown kind %q", tag)
}

func (d *decoder) document() (any, error) {
	text, err := d.text()
	if err != nil {
		return nil, err
	}
	v, err := pure.Parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("read a document: %w", err)
	}
	return pure.Plain(v)
}

func (d *decoder) list() (any, error) {
	n, err := d.length()
	if err != nil || n > len(d.data) {
		return nil, errTruncated
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = d.value(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (d *decoder) fields() (any, error) {
	fields := make(map[string]any)
	for {
		tag, err := d.take(1)
		if err != nil || tag[0] == 'E' {
			return fields, err
		}
		key, err := d.text()
		if err != nil {
			return nil, err
		}
		if fields[key], err = d.value(); err != nil {
			return nil, err
		}
	}
}

func encodeValues(out []byte, values []any) []byte {
	for _, v := range values {
		out = encodeValue(out, v)
	}
	return out
}

func encodeValue(out []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		if v {
			return append(out, 'T')
		}
		return append(out, 'F')
	case float64:
		return binary.NativeEndian.AppendUint64(append(out, 'D'), math.Float64bits(v))
	case string:
		return encodeText(out, 'S', v)
	case json.Number:
		return encodeText(out, 'B', string(v))
	case []any:
		out = binary.NativeEndian.AppendUint32(append(out, 'L'), uint32(len(v)))
		return encodeValues(out, v)
	case map[string]any:
		out = append(out, 'M')
		for key, value := range v {
			out = encodeValue(encodeText(out, 'S', key), value)
		}
		return append(out, 'E')
	}
	return append(out, 'N')
}

func encodeText(out []byte, tag byte, text string) []byte {
	out = binary.NativeEndian.AppendUint32(append(out, tag), uint32(len(text)))
	return append(out, text...)
}
