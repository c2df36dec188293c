package protocol

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// The types of row values, besides nil, bool, int64, uint64, float32, float64, string, []byte
// and time.Time. Lists are []any.
type (
	Number string  // a number too wide for Go's types: DECIMAL, HUGEINT
	JSON   string  // a JSON value as stored
	Struct []Field // a struct or a map, in its own order
)

// A Field is one entry of a Struct.
type Field struct {
	Name  string
	Value any
}

// A Type is the SQL type of a column. Children are the types of its parts: the values of a
// list or array, the keys and values of a map, the fields of a struct.
type Type struct {
	Name     string `json:"name"`
	Children []Type `json:"children,omitempty"`
}

// Decode returns the value of a row of an Arrow array.
func (t *Type) Decode(values arrow.Array, row int) any {
	if values.IsNull(row) {
		return nil
	}
	switch values := values.(type) {
	case *array.Boolean:
		return values.Value(row)
	case *array.Int8:
		return int64(values.Value(row))
	case *array.Int16:
		return int64(values.Value(row))
	case *array.Int32:
		return int64(values.Value(row))
	case *array.Int64:
		return values.Value(row)
	case *array.Uint8:
		return int64(values.Value(row))
	case *array.Uint16:
		return int64(values.Value(row))
	case *array.Uint32:
		return int64(values.Value(row))
	case *array.Uint64:
		return values.Value(row)
	case *array.Float32:
		return values.Value(row)
	case *array.Float64:
		return values.Value(row)
	case *array.String:
		if t.Name == "JSON" {
			return JSON(strings.Clone(values.Value(row)))
		}
		return strings.Clone(values.Value(row))
	case *array.Binary:
		return append([]byte{}, values.Value(row)...)
	case *array.Decimal128:
		n := values.Value(row)
		halves := [2]uint64{n.LowBits(), uint64(n.HighBits())}
		return Number(decimal(bigInt(halves, t.Name != "UHUGEINT"), int(values.DataType().(*arrow.Decimal128Type).Scale)))
	case *array.Dictionary:
		return t.Decode(values.Dictionary(), values.GetValueIndex(row))
	case array.ExtensionArray:
		return t.Decode(values.Storage(), row)
	}
	if value, ok := t.decodeTime(values, row); ok {
		return value
	}
	return t.decodeNested(values, row)
}

func (t *Type) decodeNested(values arrow.Array, row int) any {
	switch values := values.(type) {
	case *array.Map: // before the list case, which also matches a map
		first, end := values.ValueOffsets(row)
		keys, items := t.Children[0].decodeRun(values.Keys(), first, end), t.Children[1].decodeRun(values.Items(), first, end)
		fields := make(Struct, len(keys))
		for i := range keys {
			fields[i] = Field{Name: Text(keys[i]), Value: items[i]}
		}
		return fields
	case *array.Struct:
		fields := make(Struct, values.NumField())
		names := values.DataType().(*arrow.StructType)
		for i := range fields {
			fields[i] = Field{Name: names.Field(i).Name, Value: t.Children[i].Decode(values.Field(i), row)}
		}
		return fields
	case array.ListLike:
		first, end := values.ValueOffsets(row)
		return t.Children[0].decodeRun(values.ListValues(), first, end)
	}
	return nil // the remaining types have only NULL
}

func (t *Type) decodeRun(values arrow.Array, first, end int64) []any {
	run := make([]any, end-first)
	for i := range run {
		run[i] = t.Decode(values, int(first)+i)
	}
	return run
}

func (t *Type) decodeTime(values arrow.Array, row int) (any, bool) {
	switch values := values.(type) {
	case *array.Date32:
		return time.Unix(int64(values.Value(row))*86400, 0).UTC().Format(time.DateOnly), true
	case *array.Time64:
		return time.UnixMicro(int64(values.Value(row))).UTC().Format("15:04:05.999999"), true
	case *array.MonthDayNanoInterval:
		months := values.Value(row)
		return interval(months.Months, months.Days, months.Nanoseconds/1000), true
	case *array.Timestamp:
		n := int64(values.Value(row))
		switch {
		case n == math.MaxInt64:
			return "infinity", true
		case n == -math.MaxInt64:
			return "-infinity", true
		}
		switch values.DataType().(*arrow.TimestampType).Unit {
		case arrow.Second:
			return time.Unix(n, 0).UTC(), true
		case arrow.Millisecond:
			return time.UnixMilli(n).UTC(), true
		case arrow.Nanosecond:
			return time.Unix(0, n).UTC(), true
		}
		return time.UnixMicro(n).UTC(), true
	}
	return nil, false
}

// bigInt combines a low and a high half into an integer.
func bigInt(halves [2]uint64, signed bool) *big.Int {
	high := new(big.Int).SetUint64(halves[1])
	if signed {
		high.SetInt64(int64(halves[1]))
	}
	return high.Add(high.Lsh(high, 64), new(big.Int).SetUint64(halves[0]))
}

func decimal(n *big.Int, scale int) string {
	digits := new(big.Int).Abs(n).String()
	if scale > 0 {
		if pad := scale + 1 - len(digits); pad > 0 {
			digits = strings.Repeat("0", pad) + digits
		}
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if n.Sign() < 0 {
		digits = "-" + digits
	}
	return digits
}

// interval formats an interval as DuckDB does: 1 year 2 months 3 days 01:00:05.5.
func interval(months, days int32, micros int64) string {
	var parts []string
	for _, part := range []struct {
		n    int32
		unit string
	}{{months / 12, "year"}, {months % 12, "month"}, {days, "day"}} {
		if part.n != 0 {
			parts = append(parts, fmt.Sprintf("%d %s%s", part.n, part.unit, map[bool]string{true: "s"}[part.n != 1 && part.n != -1]))
		}
	}
	if micros != 0 || len(parts) == 0 {
		sign, rest := "", uint64(micros)
		if micros < 0 {
			sign, rest = "-", -rest
		}
		seconds := rest / 1e6
		clock := fmt.Sprintf("%s%02d:%02d:%02d", sign, seconds/3600, seconds/60%60, seconds%60)
		if rest %= 1e6; rest != 0 {
			clock += strings.TrimRight(fmt.Sprintf(".%06d", rest), "0")
		}
		parts = append(parts, clock)
	}
	return strings.Join(parts, " ")
}
