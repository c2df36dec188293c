package event

import "fmt"

// A Type is what a column holds. Its zero value is no type.
type Type uint8

const (
	Bool      Type = iota + 1 // Ints: 0 or 1
	Int32                     // Ints
	Int64                     // Ints
	Float64                   // Floats
	Decimal                   // Bytes: the number as it was spelled
	String                    // Bytes: UTF-8, unescaped
	Timestamp                 // Ints: microseconds since 1970-01-01T00:00:00Z
	JSON                      // Bytes: any JSON value as it was spelled
)

var typeNames = [...]string{
	Bool: "bool", Int32: "int32", Int64: "int64", Float64: "float64",
	Decimal: "decimal", String: "string", Timestamp: "timestamp", JSON: "json",
}

// TypeNames lists the names that ParseType knows.
func TypeNames() []string { return typeNames[Bool:] }

func (t Type) String() string {
	if t == 0 || int(t) >= len(typeNames) {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return typeNames[t]
}

// ParseType is the inverse of Type.String.
func ParseType(name string) (Type, bool) {
	for t := Bool; int(t) < len(typeNames); t++ {
		if typeNames[t] == name {
			return t, true
		}
	}
	return 0, false
}

// MarshalText implements encoding.TextMarshaler. No type is no text.
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

// A Column says which field of a document becomes a column, and as what.
type Column struct {
	Name     string   // of the column
	Path     []string // keys from the document's root to the field
	Type     Type
	Required bool // a missing field or null is an error instead of a null
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
