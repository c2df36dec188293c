package protocol

import (
	"fmt"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/event"
)

// A Param is a statement parameter: $1 or ? by position, $name by name. Values are nil, bool,
// int, int64, float64, string, []byte, time.Time and TimestampNS.
type Param struct {
	Name  string // "" for a positional parameter
	Value any
}

// Identifier returns the identifier of the ith parameter in a statement.
func (p Param) Identifier(i int) string {
	if p.Name == "" {
		return strconv.Itoa(i + 1)
	}
	return p.Name
}

// A TimestampNS is a parameter of type TIMESTAMP_NS, in nanoseconds since 1970. A time.Time
// is a TIMESTAMP, in microseconds.
type TimestampNS int64

// EncodeParams encodes parameters for a request. It returns an *event.Fault for a value of an
// unsupported type.
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
			return nil, &event.Fault{Message: fmt.Sprintf("a parameter cannot be a %T", value)}
		}
		all = append(all, encoded)
	}
	return all, nil
}

// DecodeParams decodes the parameters of a request.
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
