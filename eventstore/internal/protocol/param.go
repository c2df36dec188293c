package protocol

import (
	"fmt"
	"strconv"
	"time"
)

// A Param is the value of a parameter of a statement: $1 or ? by its place, $name by its
// name. Values are nil, bool, int, int64, float64, string, []byte, time.Time and TimestampNS.
type Param struct {
	Name  string // "" for the next by place
	Value any
}

// Identifier returns the name by which a statement knows the ith parameter.
func (p Param) Identifier(i int) string {
	if p.Name == "" {
		return strconv.Itoa(i + 1)
	}
	return p.Name
}

// A TimestampNS is the value of a parameter of type TIMESTAMP_NS: nanoseconds since 1970. A
// time.Time is of type TIMESTAMP, in microseconds.
type TimestampNS int64

// EncodeParams returns parameters as a request carries them, or a *QueryError for a value of another type.
func EncodeParams(params []Param) ([]JSONParam, error) {
	var all []JSONParam
	for _, p := range params {
		encoded := JSONParam{Name: p.Name}
		switch value := p.Value.(type) {
		case nil:
		case bool:
			encoded.Bool = &value
		case int:
			wide := int64(value)
			encoded.Int = &wide
		case int64:
			encoded.Int = &value
		case float64:
			text := strconv.FormatFloat(value, 'g', -1, 64)
			encoded.Float = &text
		case string:
			encoded.Text = &value
		case []byte:
			encoded.Bytes = &value
		case time.Time:
			encoded.Time = &value
		case TimestampNS:
			nanos := int64(value)
			encoded.Nanos = &nanos
		default:
			return nil, &QueryError{Message: fmt.Sprintf("a parameter cannot be a %T", value)}
		}
		all = append(all, encoded)
	}
	return all, nil
}

// DecodeParams returns the parameters of a request.
func DecodeParams(params []JSONParam) (all []Param) {
	for _, p := range params {
		decoded := Param{Name: p.Name}
		switch {
		case p.Bool != nil:
			decoded.Value = *p.Bool
		case p.Int != nil:
			decoded.Value = *p.Int
		case p.Float != nil:
			decoded.Value, _ = strconv.ParseFloat(*p.Float, 64)
		case p.Text != nil:
			decoded.Value = *p.Text
		case p.Bytes != nil:
			decoded.Value = *p.Bytes
		case p.Time != nil:
			decoded.Value = *p.Time
		case p.Nanos != nil:
			decoded.Value = TimestampNS(*p.Nanos)
		}
		all = append(all, decoded)
	}
	return all
}
