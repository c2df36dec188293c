package event

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Type is what a column holds. Its zero value is no type.
type Type uint8

const (
	Bool        Type = iota + 1 // Ints: 0 or 1
	Int32                       // Ints
	Int64                       // Ints
	Float64                     // Floats
	Decimal                     // Bytes: the number as it was spelled
	String                      // Bytes: UTF-8, unescaped
	Timestamp                   // Ints: microseconds since 1970-01-01T00:00:00Z
	JSON                        // Bytes: any JSON value as it was spelled
	TimestampNS                 // Ints: nanoseconds since 1970-01-01T00:00:00Z, in the years 1678 to 2261
	Bytes                       // Bytes: any bytes
)

var typeNames = [...]string{
	Bool: "bool", Int32: "int32", Int64: "int64", Float64: "float64",
	Decimal: "decimal", String: "string", Timestamp: "timestamp", JSON: "json",
	TimestampNS: "timestamp_ns", Bytes: "bytes",
}

// TypeNames lists the types that every sink with columns has.
func TypeNames() []string { return slices.Clone(typeNames[Bool : JSON+1]) }

// TableTypeNames lists the types that tables of the event store have.
func TableTypeNames() []string { return slices.Clone(typeNames[Bool:]) }

func (t Type) String() string {
	if int(t) >= len(typeNames) || typeNames[t] == "" {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return typeNames[t]
}

// ParseType is the inverse of Type.String.
func ParseType(name string) (Type, bool) {
	for t := Bool; int(t) < len(typeNames); t++ {
		if name != "" && typeNames[t] == name {
			return t, true
		}
	}
	return 0, false
}

// MarshalText implements encoding.TextMarshaler. The zero Type marshals to empty text.
func (t Type) MarshalText() ([]byte, error) {
	if t == 0 {
		return nil, nil
	}
	return []byte(t.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Type) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*t = 0
		return nil
	}
	parsed, ok := ParseType(string(text))
	if !ok {
		return fmt.Errorf("unknown column type %q", text)
	}
	*t = parsed
	return nil
}

// A Unit says how the times of a column are spelled. RFC 3339 is always understood.
type Unit uint8

const (
	Seconds      Unit = iota // a number counts seconds since 1970-01-01T00:00:00Z
	Milliseconds             // or milliseconds
	Microseconds
	Nanoseconds
	TextOnly // a number is not a timestamp
)

var unitNames = [...]string{Seconds: "s", Milliseconds: "ms", Microseconds: "us", Nanoseconds: "ns", TextOnly: "text"}

func (u Unit) String() string {
	if int(u) >= len(unitNames) {
		return fmt.Sprintf("unit(%d)", uint8(u))
	}
	return unitNames[u]
}

// ParseUnit is the inverse of Unit.String.
func ParseUnit(name string) (Unit, bool) {
	i := slices.Index(unitNames[:], name)
	return Unit(max(i, 0)), i >= 0
}

// MarshalText implements encoding.TextMarshaler.
func (u Unit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *Unit) UnmarshalText(text []byte) error {
	parsed, ok := ParseUnit(string(text))
	if !ok {
		return fmt.Errorf("unknown unit %q", text)
	}
	*u = parsed
	return nil
}

// Digits says which decimal numbers a column holds: those with at most Scale digits after
// the point and Precision-Scale before it.
type Digits struct {
	Precision uint8
	Scale     uint8
}

// exponentMax is beyond what the digits of any document make up for.
const exponentMax = 1 << 40

// PrecisionMax is the largest Precision.
const PrecisionMax = 38

// String returns the digits as SQL has them behind DECIMAL: (18,2).
func (d Digits) String() string {
	if d == (Digits{}) {
		return ""
	}
	return fmt.Sprintf("(%d,%d)", d.Precision, d.Scale)
}

// Holds reports whether a JSON number has no digit outside of d.
func (d Digits) Holds(number []byte) bool {
	digits, exponent := 0, 0 // of the number as 0.digits·10^exponent
	trailing := 0            // zeros at the end of digits
	point, any := false, false
	for i, c := range number {
		switch {
		case c == '.':
			point = true
		case c == 'e' || c == 'E':
			e, err := strconv.Atoi(strings.TrimPrefix(string(number[i+1:]), "+"))
			if err != nil || e > exponentMax || e < -exponentMax {
				return !any
			}
			exponent += e
			return d.hold(digits-trailing, exponent, any)
		case c >= '0' && c <= '9':
			if c != '0' {
				any = true
			}
			switch {
			case any && !point:
				exponent++
			case !any && point:
				exponent--
			}
			if any {
				digits++
				trailing++
				if c != '0' {
					trailing = 0
				}
			}
		}
	}
	return d.hold(digits-trailing, exponent, any)
}

// hold is Holds for the number 0.digits·10^exponent.
func (d Digits) hold(digits, exponent int, any bool) bool {
	return !any || exponent <= int(d.Precision)-int(d.Scale) && digits-exponent <= int(d.Scale)
}

// A Column says which field of a document becomes a column, and as what.
type Column struct {
	Name     string   // of the column
	Path     []string // keys from the document's root to the field
	Type     Type
	Unit     Unit   // of a Timestamp or TimestampNS
	Digits   Digits // of a Decimal; zero means any number
	Required bool   // a missing field or null is an error instead of a null
}

// Columns holds typed columns for the rows of one Output.
type Columns struct {
	Spec    []Column
	Rows    int
	Vectors []Vector // Vectors[c] belongs to Spec[c]
}

// A Vector is one column. Null has an entry per row, 1 for null. Which of the
// others is filled follows from the column's Type; a null row has a zero there.
type Vector struct {
	Null   []uint8
	Ints   []int64
	Floats []float64
	Bytes  []byte   // values back to back
	Ends   []uint32 // Ends[r] is the offset in Bytes just past row r
}

// Text returns the bytes of row r, valid until the columns are filled again.
func (v *Vector) Text(r int) []byte { return v.Bytes[start(v.Ends, r):v.Ends[r]:v.Ends[r]] }

// Reset empties the columns and keeps their memory.
func (c *Columns) Reset() {
	c.Rows = 0
	for i := range c.Vectors {
		v := &c.Vectors[i]
		v.Null, v.Ints, v.Floats = v.Null[:0], v.Ints[:0], v.Floats[:0]
		v.Bytes, v.Ends = v.Bytes[:0], v.Ends[:0]
	}
}
