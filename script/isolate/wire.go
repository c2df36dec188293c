package isolate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// An encoder appends values to a message. It never grows buf beyond its capacity; if a value does
// not fit, it sets full.
type encoder struct {
	buf  []byte
	full bool
}

func (e *encoder) uint(n uint64) {
	var b [binary.MaxVarintLen64]byte
	e.raw(b[:binary.PutUvarint(b[:], n)])
}

func (e *encoder) int(n int) { e.uint(uint64(n)) }

func (e *encoder) bool(b bool) {
	if b {
		e.uint(1)
	} else {
		e.uint(0)
	}
}

func (e *encoder) float(x float64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], math.Float64bits(x))
	e.raw(b[:])
}

func (e *encoder) text(s string) {
	e.int(len(s))
	if e.full || len(s) > cap(e.buf)-len(e.buf) {
		e.full = true
		return
	}
	e.buf = append(e.buf, s...)
}

// short appends the start of a string, at most limit bytes.
func (e *encoder) short(s string, limit int) { e.text(s[:min(len(s), limit)]) }

func (e *encoder) raw(b []byte) {
	if e.full || len(b) > cap(e.buf)-len(e.buf) {
		e.full = true
		return
	}
	e.buf = append(e.buf, b...)
}

// Kinds of values in a call of a Go function.
const (
	valueNil = iota
	valueFalse
	valueTrue
	valueFloat
	valueText
	valueNumber
	valueList
	valueMap
)

// depthMax is how deep values of a call may be nested.
const depthMax = 1000

// values encodes the arguments or the results of a script.Func.
func (e *encoder) values(list []any, depth int) error {
	if depth > depthMax {
		return fmt.Errorf("a value is nested deeper than %d", depthMax)
	}
	e.int(len(list))
	for _, v := range list {
		if err := e.value(v, depth); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) value(v any, depth int) error {
	switch v := v.(type) {
	case nil:
		e.uint(valueNil)
	case bool:
		if v {
			e.uint(valueTrue)
		} else {
			e.uint(valueFalse)
		}
	case float64:
		e.uint(valueFloat)
		e.float(v)
	case string:
		e.uint(valueText)
		e.text(v)
	case json.Number:
		e.uint(valueNumber)
		e.text(string(v))
	case []any:
		e.uint(valueList)
		return e.values(v, depth+1)
	case map[string]any:
		if depth > depthMax {
			return fmt.Errorf("a value is nested deeper than %d", depthMax)
		}
		e.uint(valueMap)
		e.int(len(v))
		for key, one := range v {
			e.text(key)
			if err := e.value(one, depth+1); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("a value of type %T cannot be passed to a script", v)
	}
	return nil
}

// errFrame means that a message is truncated or contains something that its sender never writes.
var errFrame = errors.New("invalid frame")

// A decoder reads the output of an encoder from an untrusted sender. After the first error every
// read returns zero, and no count exceeds the number of bytes left.
type decoder struct {
	buf    []byte
	err    error
	memory int // limit on the memory of decoded values, in bytes; 0: no limit
	used   int
}

func (d *decoder) fail() {
	d.buf, d.err = nil, errFrame
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.buf)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.buf = d.buf[size:]
	return n
}

// int reads a number of at most limit.
func (d *decoder) int(limit int) int {
	n := d.uint()
	if n > uint64(limit) {
		d.fail()
		return 0
	}
	return int(n)
}

// count reads the number of following items, each of at least one byte.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.buf)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) bool() bool { return d.int(1) == 1 }

func (d *decoder) float() float64 {
	if len(d.buf) < 8 {
		d.fail()
		return 0
	}
	x := math.Float64frombits(binary.LittleEndian.Uint64(d.buf))
	d.buf = d.buf[8:]
	return x
}

// text reads a string and copies it.
func (d *decoder) text() string {
	n := d.count()
	s := string(d.buf[:n])
	d.buf = d.buf[n:]
	return s
}

// short reads a string of at most limit bytes.
func (d *decoder) short(limit int) string {
	if n, size := binary.Uvarint(d.buf); size > 0 && n > uint64(limit) {
		d.fail()
		return ""
	}
	return d.text()
}

// spend counts the memory of decoded values, which can be many times larger than their encoding.
func (d *decoder) spend(bytes int) {
	if d.used += bytes; d.memory > 0 && d.used > d.memory {
		d.fail()
	}
}

// Approximate memory of values in the parent, without their text.
const (
	valueBytes = 32
	listBytes  = 64
	mapBytes   = 128
)

func (d *decoder) values(depth int) []any {
	if depth > depthMax {
		d.fail()
		return nil
	}
	n := d.count()
	d.spend(listBytes + n*valueBytes)
	if n == 0 {
		return []any{}
	}
	list := make([]any, 0, min(n, 64))
	for range n {
		if d.err != nil {
			return nil
		}
		list = append(list, d.value(depth))
	}
	return list
}

func (d *decoder) value(depth int) any {
	switch d.uint() {
	case valueNil:
		return nil
	case valueFalse:
		return false
	case valueTrue:
		return true
	case valueFloat:
		return d.float()
	case valueText:
		text := d.text()
		d.spend(len(text))
		return text
	case valueNumber:
		return d.number()
	case valueList:
		return d.values(depth + 1)
	case valueMap:
		return d.valueMap(depth + 1)
	}
	d.fail()
	return nil
}

func (d *decoder) number() any {
	text := d.text()
	d.spend(2 * len(text))
	var n json.Number
	if json.Unmarshal([]byte(text), &n) != nil || n.String() != text {
		d.fail()
		return nil
	}
	return n
}

func (d *decoder) valueMap(depth int) any {
	if depth > depthMax {
		d.fail()
		return nil
	}
	n := d.count()
	d.spend(mapBytes + 2*n*valueBytes)
	m := make(map[string]any, min(n, 64))
	for range n {
		key := d.text()
		d.spend(len(key))
		m[key] = d.value(depth)
		if d.err != nil {
			return nil
		}
	}
	return m
}

// end returns an error if decoding failed or bytes are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.buf) > 0 {
		d.fail()
	}
	return d.err
}
