// Package report defines what readers of documents report: the kinds of values found, and why a
// document or a value was rejected, in sentences for users. It is separate from package document so
// that the readers in C and in Go use the same texts.
package report

import (
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A Kind is a set of kinds of JSON values.
type Kind uint16

const (
	Null   Kind = 1 << iota
	Bool        // true or false
	Int         // an integral number that fits int64, in any spelling
	BigInt      // any other integral number
	Float       // any other number
	String
	Object
	Array
)

var kindNames = [...]string{"null", "bool", "int", "bigint", "float", "string", "object", "array"}

func (k Kind) String() string {
	var names []string
	for i, name := range kindNames {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// A Report lists what an extraction found, besides the values.
type Report struct {
	Rejected []Rejected
	Unknown  []Field
}

// A Rejected is a value that does not fit its column, or an invalid document. The cell is null.
type Rejected struct {
	Row    int
	Column int    // in the spec; -1 if the whole document is rejected
	Kind   Kind   // of the value; 0 if it is missing or the document is rejected
	Value  string // its text, truncated to ValueMax bytes
	Reason string
}

// ValueMax is the length in bytes to which Rejected.Value is truncated.
const ValueMax = 64

// A Field is a top-level field that the spec does not name.
type Field struct {
	Name  string
	Kinds Kind // all kinds seen
}

// A Misfit is the reason why a value does not fit its column.
type Misfit uint8

const (
	Mistyped   Misfit = iota + 1 // the kind is wrong
	Missing                      // required, but missing or null
	OutOfRange                   // a number beyond the type
	Fractional                   // a number that is not integral
	BadTime                      // a string that is not an RFC 3339 time
	LateTime                     // a number, in its unit, beyond the years that the column can hold
	TimeNumber                   // a number where a time must be text
	FarTime                      // a time beyond the years that nanoseconds can represent
)

// lateTimes describes, by unit, the number expected and the likely mistake.
var lateTimes = [...]string{
	event.Seconds:      "Unix seconds; it looks like milliseconds",
	event.Milliseconds: "milliseconds since 1970; it looks like microseconds",
	event.Microseconds: "microseconds since 1970; it looks like nanoseconds",
	event.Nanoseconds:  "nanoseconds since 1970",
}

// nanoYears are the years that timestamp_ns can represent.
const nanoYears = "1678 to 2261"

// Column returns an error sentence for a value that does not fit column c.
func (m Misfit) Column(c event.Column, value string) string {
	const wants = "column %s wants %s, got %s"
	switch m {
	case Missing:
		return fmt.Sprintf("column %s is required, but %s is missing or null", c.Name, strings.Join(c.Path, "."))
	case OutOfRange:
		return fmt.Sprintf(wants+", which is out of range", c.Name, c.Type, value)
	case Fractional:
		return fmt.Sprintf(wants+", which is not a whole number", c.Name, c.Type, value)
	case BadTime:
		return fmt.Sprintf(wants+": use RFC 3339 like 2006-01-02T15:04:05Z", c.Name, c.Type, value)
	case LateTime:
		years := "1 to 9999"
		if c.Type == event.TimestampNS {
			years = nanoYears
		}
		return fmt.Sprintf(wants+", which is beyond the years "+years+" as "+lateTimes[min(int(c.Unit), len(lateTimes)-1)], c.Name, c.Type, value)
	case TimeNumber:
		return fmt.Sprintf(wants+": use RFC 3339 like 2006-01-02T15:04:05Z, or declare the unit of numbers", c.Name, c.Type, value)
	case FarTime:
		return fmt.Sprintf(wants+", which is beyond the years "+nanoYears, c.Name, c.Type, value)
	}
	return fmt.Sprintf(wants, c.Name, c.Type, value)
}

// Clip shortens a value for a message, at a character boundary.
func Clip(value []byte) string {
	if len(value) <= ValueMax {
		return string(value)
	}
	n := ValueMax - len("…")
	for n > 0 && value[n]&0xC0 == 0x80 {
		n--
	}
	return string(value[:n]) + "…"
}
