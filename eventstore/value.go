//go:build cgo

package eventstore

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
	"unsafe"

	duck "github.com/duckdb/duckdb-go-bindings"
)

// Beside nil, bool, int64, uint64, float32, float64, string, []byte and
// time.Time, the values of a row are of these types; lists are []any.
type (
	Number string  // a number too wide for Go's own: DECIMAL, HUGEINT
	JSON   string  // a JSON value as it is stored
	Struct []Field // a struct or a map, in its own order
)

// A Field is one entry of a Struct.
type Field struct {
	Name  string
	Value any
}

// A valueType is a column's type, taken apart.
type valueType struct {
	id       duck.Type
	name     string
	json     bool
	internal duck.Type // what a decimal or an enum is stored as
	scale    int
	size     int      // of an array
	names    []string // of the children of a struct, or of an enum's values
	children []valueType
}

var simpleTypes = map[duck.Type]string{
	duck.TypeBoolean: "BOOLEAN", duck.TypeTinyInt: "TINYINT", duck.TypeSmallInt: "SMALLINT",
	duck.TypeInteger: "INTEGER", duck.TypeBigInt: "BIGINT", duck.TypeUTinyInt: "UTINYINT",
	duck.TypeUSmallInt: "USMALLINT", duck.TypeUInteger: "UINTEGER", duck.TypeUBigInt: "UBIGINT",
	duck.TypeFloat: "FLOAT", duck.TypeDouble: "DOUBLE", duck.TypeHugeInt: "HUGEINT", duck.TypeUHugeInt: "UHUGEINT",
	duck.TypeVarchar: "VARCHAR", duck.TypeBlob: "BLOB", duck.TypeUUID: "UUID", duck.TypeSQLNull: "NULL",
	duck.TypeDate: "DATE", duck.TypeTime: "TIME", duck.TypeInterval: "INTERVAL",
	duck.TypeTimestamp: "TIMESTAMP", duck.TypeTimestampTZ: "TIMESTAMP WITH TIME ZONE",
	duck.TypeTimestampS: "TIMESTAMP_S", duck.TypeTimestampMS: "TIMESTAMP_MS", duck.TypeTimestampNS: "TIMESTAMP_NS",
}

// resultTypes takes the types of a result's columns apart.
func resultTypes(res *duck.Result) ([]valueType, error) {
	var types []valueType
	for i := range duck.ColumnCount(res) {
		logical := duck.ColumnLogicalType(res, i)
		t, ok := takeApart(logical)
		duck.DestroyLogicalType(&logical)
		if !ok {
			return nil, &QueryError{
				Message: fmt.Sprintf("column %s has a type that cannot be sent", duck.ColumnName(res, i)),
				Hint:    "cast it to VARCHAR",
			}
		}
		types = append(types, t)
	}
	return types, nil
}

func takeApart(logical duck.LogicalType) (t valueType, ok bool) {
	t.id = duck.GetTypeId(logical)
	if t.name, ok = simpleTypes[t.id]; ok {
		if t.json = duck.LogicalTypeGetAlias(logical) == "JSON"; t.json {
			t.name = "JSON"
		}
		return t, true
	}
	switch t.id {
	case duck.TypeDecimal:
		t.internal, t.scale = duck.DecimalInternalType(logical), int(duck.DecimalScale(logical))
		t.name = fmt.Sprintf("DECIMAL(%d,%d)", duck.DecimalWidth(logical), t.scale)
		return t, true
	case duck.TypeEnum:
		t.internal, t.name = duck.EnumInternalType(logical), "ENUM"
		for i := range duck.EnumDictionarySize(logical) {
			t.names = append(t.names, duck.EnumDictionaryValue(logical, duck.IdxT(i)))
		}
		return t, true
	case duck.TypeList:
		ok = t.child(duck.ListTypeChildType(logical))
		t.name = t.children[0].name + "[]"
	case duck.TypeArray:
		t.size = int(duck.ArrayTypeArraySize(logical))
		ok = t.child(duck.ArrayTypeChildType(logical))
		t.name = fmt.Sprintf("%s[%d]", t.children[0].name, t.size)
	case duck.TypeMap:
		ok = t.child(duck.MapTypeKeyType(logical))
		ok = t.child(duck.MapTypeValueType(logical)) && ok
		t.name = fmt.Sprintf("MAP(%s, %s)", t.children[0].name, t.children[1].name)
	case duck.TypeStruct:
		ok = true
		var parts []string
		for i := range duck.StructTypeChildCount(logical) {
			ok = t.child(duck.StructTypeChildType(logical, i)) && ok
			t.names = append(t.names, duck.StructTypeChildName(logical, i))
			parts = append(parts, quote(t.names[i])+" "+t.children[i].name)
		}
		t.name = "STRUCT(" + strings.Join(parts, ", ") + ")"
	}
	return t, ok
}

func (t *valueType) child(logical duck.LogicalType) bool {
	defer duck.DestroyLogicalType(&logical)
	child, ok := takeApart(logical)
	t.children = append(t.children, child)
	return ok
}

func decodeRow(chunk duck.DataChunk, types []valueType, row int) []any {
	values := make([]any, len(types))
	for i := range types {
		values[i] = types[i].decode(duck.DataChunkGetVector(chunk, duck.IdxT(i)), row)
	}
	return values
}

func at[T any](data unsafe.Pointer, row int) T { return unsafe.Slice((*T)(data), row+1)[row] }

func (t *valueType) decode(v duck.Vector, row int) any {
	if valid := duck.VectorGetValidity(v); valid != nil && at[uint64](valid, row/64)>>(row%64)&1 == 0 {
		return nil
	}
	data := duck.VectorGetData(v)
	switch t.id {
	case duck.TypeBoolean:
		return at[bool](data, row)
	case duck.TypeUBigInt:
		return at[uint64](data, row)
	case duck.TypeFloat:
		return at[float32](data, row)
	case duck.TypeDouble:
		return at[float64](data, row)
	case duck.TypeHugeInt:
		return Number(bigInt(at[[2]uint64](data, row), true).String())
	case duck.TypeUHugeInt:
		return Number(bigInt(at[[2]uint64](data, row), false).String())
	case duck.TypeDecimal:
		return Number(decimal(integer(t.internal, data, row), t.scale))
	case duck.TypeVarchar:
		if t.json {
			return JSON(readText(data, row))
		}
		return readText(data, row)
	case duck.TypeBlob:
		return []byte(readText(data, row))
	case duck.TypeEnum:
		return t.names[integer(t.internal, data, row).Uint64()]
	case duck.TypeUUID:
		return uuid(at[[2]uint64](data, row))
	case duck.TypeSQLNull:
		return nil
	case duck.TypeList, duck.TypeArray, duck.TypeMap, duck.TypeStruct:
		return t.decodeNested(v, data, row)
	case duck.TypeDate, duck.TypeTime, duck.TypeInterval, duck.TypeTimestamp, duck.TypeTimestampTZ,
		duck.TypeTimestampS, duck.TypeTimestampMS, duck.TypeTimestampNS:
		return t.decodeTime(data, row)
	}
	return integer(t.id, data, row).Int64()
}

func (t *valueType) decodeNested(v duck.Vector, data unsafe.Pointer, row int) any {
	switch t.id {
	case duck.TypeList:
		entry := at[[2]uint64](data, row)
		return t.children[0].decodeRun(duck.ListVectorGetChild(v), int(entry[0]), int(entry[1]))
	case duck.TypeArray:
		return t.children[0].decodeRun(duck.ArrayVectorGetChild(v), row*t.size, t.size)
	case duck.TypeMap:
		entry, pairs := at[[2]uint64](data, row), duck.ListVectorGetChild(v)
		keys := t.children[0].decodeRun(duck.StructVectorGetChild(pairs, 0), int(entry[0]), int(entry[1]))
		values := t.children[1].decodeRun(duck.StructVectorGetChild(pairs, 1), int(entry[0]), int(entry[1]))
		fields := make(Struct, len(keys))
		for i := range keys {
			fields[i] = Field{Name: Text(keys[i]), Value: values[i]}
		}
		return fields
	}
	fields := make(Struct, len(t.children))
	for i := range t.children {
		fields[i] = Field{Name: t.names[i], Value: t.children[i].decode(duck.StructVectorGetChild(v, duck.IdxT(i)), row)}
	}
	return fields
}

func (t *valueType) decodeRun(v duck.Vector, first, n int) []any {
	values := make([]any, n)
	for i := range values {
		values[i] = t.decode(v, first+i)
	}
	return values
}

func (t *valueType) decodeTime(data unsafe.Pointer, row int) any {
	switch t.id {
	case duck.TypeDate:
		return time.Unix(int64(at[int32](data, row))*86400, 0).UTC().Format(time.DateOnly)
	case duck.TypeTime:
		return time.UnixMicro(at[int64](data, row)).UTC().Format("15:04:05.999999")
	case duck.TypeInterval:
		months := at[struct {
			months, days int32
			micros       int64
		}](data, row)
		return interval(months.months, months.days, months.micros)
	}
	n := at[int64](data, row)
	switch {
	case n == math.MaxInt64:
		return "infinity"
	case n == -math.MaxInt64:
		return "-infinity"
	}
	switch t.id {
	case duck.TypeTimestampS:
		return time.Unix(n, 0).UTC()
	case duck.TypeTimestampMS:
		return time.UnixMilli(n).UTC()
	case duck.TypeTimestampNS:
		return time.Unix(0, n).UTC()
	}
	return time.UnixMicro(n).UTC()
}

// integer reads an integer of one of the widths.
func integer(id duck.Type, data unsafe.Pointer, row int) *big.Int {
	switch id {
	case duck.TypeTinyInt:
		return big.NewInt(int64(at[int8](data, row)))
	case duck.TypeSmallInt:
		return big.NewInt(int64(at[int16](data, row)))
	case duck.TypeInteger:
		return big.NewInt(int64(at[int32](data, row)))
	case duck.TypeUTinyInt:
		return big.NewInt(int64(at[uint8](data, row)))
	case duck.TypeUSmallInt:
		return big.NewInt(int64(at[uint16](data, row)))
	case duck.TypeUInteger:
		return big.NewInt(int64(at[uint32](data, row)))
	case duck.TypeHugeInt:
		return bigInt(at[[2]uint64](data, row), true)
	}
	return big.NewInt(at[int64](data, row))
}

// bigInt makes an integer of a low and a high half.
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

// uuid spells a UUID. DuckDB stores it with the first bit flipped, for order.
func uuid(halves [2]uint64) string {
	high, low := halves[1]^1<<63, halves[0]
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", high>>32, high>>16&0xffff, high&0xffff, low>>48, low&(1<<48-1))
}

func interval(months, days int32, micros int64) string {
	var parts []string
	if months != 0 {
		parts = append(parts, fmt.Sprintf("%d months", months))
	}
	if days != 0 {
		parts = append(parts, fmt.Sprintf("%d days", days))
	}
	if micros != 0 || len(parts) == 0 {
		parts = append(parts, (time.Duration(micros) * time.Microsecond).String())
	}
	return strings.Join(parts, " ")
}

// readText copies a string out of a vector.
func readText(data unsafe.Pointer, row int) string {
	cell := &unsafe.Slice((*textCell)(data), row+1)[row]
	if cell.length <= inlineMax {
		return string(unsafe.Slice(&cell.prefix[0], cell.length))
	}
	return string(unsafe.Slice(*(**byte)(unsafe.Pointer(&cell.pointer)), cell.length))
}
