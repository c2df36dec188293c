package nodedb

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Kind is the type of a Value.
type Kind uint8

// Kinds of values.
const (
	Absent Kind = iota // no value
	Number             // an exact decimal of up to 18 digits
	String             // bytes
	Boolean
)

func (k Kind) String() string { return [...]string{"absent", "number", "string", "boolean"}[k] }

// A Value is the value of a node, or a subscript. The zero Value is Absent. Values are comparable
// with ==.
type Value struct {
	kind   Kind
	number float64 // a Number that is an integer up to 2^53 or the shortest spelling of a float64; 1 for true
	text   string  // a String, or any other Number
}

// digitsMax is the most significant digits that a Number can have.
const digitsMax = 18

// ValueOf converts v to a Value. v is a string or []byte, an integer, a float, a bool, a type based
// on one of these, a Value, or nil for Absent. A time.Duration becomes its number of seconds. An
// integer of more than 18 digits becomes the string of its digits.
//
// A float64 of 10^18 or more becomes the integer of its shortest spelling, which Float converts
// back to the same float64: 1<<62 is stored as 4611686018427388000. Pass an int64 to keep all
// digits.
func ValueOf(v any) (Value, error) {
	switch v := v.(type) {
	case nil:
		return Value{}, nil
	case Value:
		return v, nil
	case string:
		return Value{kind: String, text: v}, nil
	case []byte:
		return Value{kind: String, text: string(v)}, nil
	case bool:
		return booleanValue(v), nil
	case float64:
		return floatValue(v)
	case int:
		return decimalValue(strconv.FormatInt(int64(v), 10)), nil
	case int64:
		return decimalValue(strconv.FormatInt(v, 10)), nil
	case time.Duration:
		return decimalValue(secondsText(v)), nil
	}
	return valueOfKind(reflect.ValueOf(v))
}

// valueOfKind is ValueOf for less common types.
func valueOfKind(v reflect.Value) (Value, error) {
	switch {
	case v.CanInt():
		return decimalValue(strconv.FormatInt(v.Int(), 10)), nil
	case v.CanUint():
		return decimalValue(strconv.FormatUint(v.Uint(), 10)), nil
	case v.Kind() == reflect.Float32: // its shortest spelling has fewer digits than a float64's
		x, err := strconv.ParseFloat(strconv.FormatFloat(v.Float(), 'g', -1, 32), 64)
		if err != nil {
			return floatValue(v.Float())
		}
		return floatValue(x)
	case v.CanFloat():
		return floatValue(v.Float())
	case v.Kind() == reflect.Bool:
		return booleanValue(v.Bool()), nil
	case v.Kind() == reflect.String:
		return Value{kind: String, text: v.String()}, nil
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		return Value{kind: String, text: string(v.Bytes())}, nil
	}
	return Value{}, invalid("convert a value", "type %s cannot be stored: use a string, []byte, number or bool", v.Type())
}

// secondsText formats a duration as a decimal number of seconds.
func secondsText(d time.Duration) string {
	sign, size := "", uint64(d)
	if d < 0 {
		sign, size = "-", -size
	}
	return fmt.Sprintf("%s%d.%09d", sign, size/uint64(time.Second), size%uint64(time.Second))
}

func booleanValue(v bool) Value {
	if v {
		return Value{kind: Boolean, number: 1}
	}
	return Value{kind: Boolean}
}

// A float64 represents every integer up to exactMax.
const exactMax = 1 << 53

// floatValue converts a float64: its exact value if it is an integer of up to 18 digits, else its
// shortest spelling.
func floatValue(x float64) (Value, error) {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return Value{}, invalid("convert a value", "%v cannot be stored: use a finite number", x)
	case x != 0 && math.Abs(x) < 1e-43: // a string of digits, as M spells them
		return Value{kind: String, text: strings.Replace(strconv.FormatFloat(x, 'f', -1, 64), "0.", ".", 1)}, nil
	case x != math.Trunc(x) || math.Abs(x) <= exactMax:
		return decimalValue(strconv.FormatFloat(x, 'f', -1, 64)), nil
	case math.Abs(x) < 1e18:
		return decimalValue(strconv.FormatFloat(x, 'f', 0, 64)), nil
	}
	return decimalValue(strconv.FormatFloat(x, 'f', -1, 64)), nil
}

// decimalValue returns a decimal as a Number, or as a String if it has too many digits or is out of
// range.
func decimalValue(text string) Value {
	plain := normalizeDecimal(text)
	x, err := strconv.ParseFloat(plain, 64)
	integer := !strings.Contains(plain, ".")
	digits := strings.Trim(strings.Replace(strings.TrimPrefix(plain, "-"), ".", "", 1), "0")
	switch size := math.Abs(x); {
	case err != nil, len(digits) > digitsMax, size >= 1e47, size != 0 && size < 1e-43:
		return Value{kind: String, text: text}
	case (!integer || size <= exactMax) && strconv.FormatFloat(x, 'f', -1, 64) == plain:
		return Value{kind: Number, number: x}
	}
	return Value{kind: Number, text: plain}
}

// normalizeDecimal adds a missing 0 before the point of a decimal, and drops trailing zeros after
// it.
func normalizeDecimal(text string) string {
	sign, digits := "", text
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		sign, digits = "-", rest
	}
	if strings.Contains(digits, ".") {
		digits = strings.TrimRight(strings.TrimRight(digits, "0"), ".")
	}
	if strings.HasPrefix(digits, ".") {
		digits = "0" + digits
	}
	if digits == "0" || digits == "" {
		return "0"
	}
	return sign + digits
}

// Kind returns the type of the value.
func (v Value) Kind() Kind { return v.kind }

// Exists reports whether v is not Absent.
func (v Value) Exists() bool { return v.kind != Absent }

// String returns a string unchanged, a number as a decimal with all of its digits, "true" or
// "false", and "" for Absent.
func (v Value) String() string {
	switch {
	case v.kind == Boolean:
		return strconv.FormatBool(v.number == 1)
	case v.kind == Number && v.text == "":
		return strconv.FormatFloat(v.number, 'f', -1, 64)
	}
	return v.text
}

// Int returns the value as an integer. ok is false if the value is not an integer, or does not fit
// an int64.
func (v Value) Int() (n int64, ok bool) {
	if v.kind != Number && v.kind != String {
		return 0, false
	}
	n, err := strconv.ParseInt(v.String(), 10, 64)
	return n, err == nil
}

// Duration returns the value, a number of seconds, as a duration. ok is false if the value is not a
// number, or if a time.Duration cannot represent it to the nanosecond.
func (v Value) Duration() (d time.Duration, ok bool) {
	if v.kind != Number && v.kind != String {
		return 0, false
	}
	if _, ok := v.Float(); !ok {
		return 0, false
	}
	seconds, fraction, _ := strings.Cut(normalizeDecimal(v.String()), ".")
	if len(fraction) > 9 {
		return 0, false
	}
	n, err := strconv.ParseInt(seconds+fraction+strings.Repeat("0", 9-len(fraction)), 10, 64)
	return time.Duration(n), err == nil
}

// Float returns the float64 nearest to the value. ok is false if the value is not a number.
func (v Value) Float() (x float64, ok bool) {
	if v.kind != Number && v.kind != String {
		return 0, false
	}
	x, err := strconv.ParseFloat(v.String(), 64)
	return x, err == nil
}

// Bool reports whether the value is the boolean true.
func (v Value) Bool() bool { return v.kind == Boolean && v.number == 1 }

// MarshalJSON implements json.Marshaler. Invalid UTF-8 in a string is replaced.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.kind {
	case Absent:
		return []byte("null"), nil
	case String:
		return json.Marshal(v.text)
	}
	return []byte(v.String()), nil
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*|(0|[1-9][0-9]*)?\.[0-9]*[1-9])$`)

// ParseValue returns the value that a person means by a text: a number if the text is one without
// superfluous zeros, a boolean for true and false, otherwise a string.
func ParseValue(text string) Value {
	switch {
	case text == "true" || text == "false":
		return booleanValue(text == "true")
	case text != "-0" && decimal.MatchString(text):
		return decimalValue(text)
	}
	return Value{kind: String, text: text}
}
