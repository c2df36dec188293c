//go:build cgo && luajit

package luajit

import (
	"encoding/binary"
	"math"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script/stdlib"
)

// Values are the arguments or the results of a call. Their memory is used again, so
// that calls with them need none. The zero value has none. One goroutine uses them
// at a time.
type Values struct {
	data []byte
	size int
}

// depthMax bounds how deep an argument may be nested.
const depthMax = 512

// Reset empties them.
func (v *Values) Reset() { v.data, v.size = v.data[:0], 0 }

// Len is how many there are.
func (v *Values) Len() int { return v.size }

// grow begins one more value.
func (v *Values) grow(tag byte) {
	if len(v.data) == 0 {
		v.data = append(v.data, 'V')
	}
	v.data = append(v.data, tag)
	v.size++
}

// AddNil appends a nil.
func (v *Values) AddNil() { v.grow('N') }

// AddBool appends a boolean.
func (v *Values) AddBool(b bool) {
	if b {
		v.grow('T')
	} else {
		v.grow('F')
	}
}

// AddNumber appends a number.
func (v *Values) AddNumber(x float64) {
	v.grow('D')
	v.data = binary.NativeEndian.AppendUint64(v.data, math.Float64bits(x))
}

// AddString appends a string.
func (v *Values) AddString(s string) {
	v.grow('S')
	v.data = binary.NativeEndian.AppendUint32(v.data, uint32(len(s)))
	v.data = append(v.data, s...)
}

// AddBytes appends bytes, which are a string in Lua.
func (v *Values) AddBytes(b []byte) {
	v.grow('S')
	v.data = binary.NativeEndian.AppendUint32(v.data, uint32(len(b)))
	v.data = append(v.data, b...)
}

// Add appends a value of any kind that Invoke takes.
func (v *Values) Add(value any) error {
	switch value := value.(type) {
	case nil:
		v.AddNil()
	case bool:
		v.AddBool(value)
	case float64:
		v.AddNumber(value)
	case string:
		v.AddString(value)
	case []byte:
		v.AddBytes(value)
	default:
		plain, err := stdlib.Plain(value, depthMax)
		if err != nil {
			return err
		}
		if len(v.data) == 0 {
			v.data = append(v.data, 'V')
		}
		v.data = luajit.AppendValue(v.data, plain)
		v.size++
	}
	return nil
}

// encoded is how they cross.
func (v *Values) encoded() []byte {
	if v == nil {
		return nil
	}
	return v.data
}

// set takes what crossed.
func (v *Values) set(results []byte) {
	v.Reset()
	if len(results) > 0 {
		v.data = append(append(v.data, 'V'), results...)
		v.size = luajit.CountValues(results)
	}
}

// at returns value i as it crosses, nil when there is none.
func (v *Values) at(i int) []byte {
	if i < 0 || i >= v.size {
		return nil
	}
	rest := v.data[1:]
	for range i {
		rest = luajit.SkipValue(rest)
	}
	return rest
}

// IsNil tells whether value i is nil, or not there.
func (v *Values) IsNil(i int) bool {
	value := v.at(i)
	return value == nil || value[0] == 'N'
}

// Bool returns value i, false if it is no boolean.
func (v *Values) Bool(i int) bool {
	value := v.at(i)
	return value != nil && value[0] == 'T'
}

// Number returns value i, and whether it is a number.
func (v *Values) Number(i int) (float64, bool) {
	value := v.at(i)
	if value == nil || value[0] != 'D' {
		return 0, false
	}
	return math.Float64frombits(binary.NativeEndian.Uint64(value[1:])), true
}

// Bytes returns the string that is value i, and whether it is one. It is valid until
// the values change.
func (v *Values) Bytes(i int) ([]byte, bool) {
	value := v.at(i)
	if value == nil || value[0] != 'S' {
		return nil, false
	}
	n := binary.NativeEndian.Uint32(value[1:])
	return value[5 : 5+n : 5+n], true
}

// All returns them as Invoke does.
func (v *Values) All() ([]any, error) {
	if v.size == 0 {
		return nil, nil
	}
	return luajit.DecodeValues(v.data[1:])
}
