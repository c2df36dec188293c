// Package report holds what the readers of documents say about them: the kinds
// of values met, and why a document or a value was refused, in words that a
// person can act on. It is apart from package document so that the reader in C
// and the one in Go use the same words.
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
	Int         // an integral number that fits int64, however it is spelled
	BigInt      // an integral number that does not
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

// A Report says what an extraction met beside the values that it filled in.
type Report struct {
	Rejected []Rejected
	Unknown  []Field
}

// Rejected is a value that does not fit its column, or a document that is none. The
// cell is null.
type Rejected struct {
	Row    int
	Column int    // in the spec; -1 when the whole document is refused
	Kind   Kind   // of the value; 0 when it is missing or the document is refused
	Value  string // as spelled, clipped to ValueMax bytes
	Reason string
}

// ValueMax is the length at which Bad.Value is clipped.
const ValueMax = 64

// A Field is a top-level field that the spec does not name.
type Field struct {
	Name  string
	Kinds Kind // the union of what was seen
}

// A Misfit says why a value is not in its column.
type Misfit uint8

const (
	Mistyped   Misfit = iota + 1 // the kind is wrong
	Missing                      // required, but missing or null
	OutOfRange                   // a number beyond the type
	Fractional                   // a number that is not integral
	BadTime                      // a string that is no RFC 3339 time
	LateTime                     // a number beyond the years that the column holds, in its unit
	TimeNumber                   // a number where a time is text
	FarTime                      // a time beyond the years that nanoseconds reach
)

// lateTimes says what a number in each unit is not, and may be.
var lateTimes = [...]string{
	event.Seconds:      "Unix seconds; it looks like milliseconds",
	event.Milliseconds: "milliseconds since 1970; it looks like microseconds",
	event.Microseconds: "microseconds since 1970; it looks like nanoseconds",
	event.Nanoseconds:  "nanoseconds since 1970",
}

// nanoYears are the years of timestamp_ns.
const nanoYears = "1678 to 2261"

// Column returns the sentence for a value that does not fit column c.
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

// Clip shortens a value for a message, on the border of a character.
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
