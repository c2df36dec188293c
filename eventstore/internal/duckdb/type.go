//go:build linux && cgo

package duckdb

import (
	"fmt"
	"strings"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/sqltext"
)

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

// resultTypes returns the types of a result's columns.
func resultTypes(res *duck.Result) ([]protocol.Type, error) {
	var types []protocol.Type
	for i := range duck.ColumnCount(res) {
		logical := duck.ColumnLogicalType(res, i)
		t, ok := describeType(logical)
		duck.DestroyLogicalType(&logical)
		if !ok {
			return nil, &event.Fault{
				Message: fmt.Sprintf("column %s has a type that cannot be sent", duck.ColumnName(res, i)),
				Hint:    "cast it to VARCHAR",
			}
		}
		types = append(types, t)
	}
	return types, nil
}

func describeType(logical duck.LogicalType) (t protocol.Type, ok bool) {
	id := duck.GetTypeId(logical)
	if t.Name, ok = simpleTypes[id]; ok {
		if duck.LogicalTypeGetAlias(logical) == "JSON" {
			t.Name = "JSON"
		}
		return t, true
	}
	switch id {
	case duck.TypeDecimal:
		t.Name = fmt.Sprintf("DECIMAL(%d,%d)", duck.DecimalWidth(logical), duck.DecimalScale(logical))
		return t, true
	case duck.TypeEnum:
		t.Name = "ENUM"
		return t, true
	case duck.TypeList:
		ok = addChild(&t, duck.ListTypeChildType(logical))
		t.Name = t.Children[0].Name + "[]"
	case duck.TypeArray:
		ok = addChild(&t, duck.ArrayTypeChildType(logical))
		t.Name = fmt.Sprintf("%s[%d]", t.Children[0].Name, duck.ArrayTypeArraySize(logical))
	case duck.TypeMap:
		ok = addChild(&t, duck.MapTypeKeyType(logical))
		ok = addChild(&t, duck.MapTypeValueType(logical)) && ok
		t.Name = fmt.Sprintf("MAP(%s, %s)", t.Children[0].Name, t.Children[1].Name)
	case duck.TypeStruct:
		ok = true
		var parts []string
		for i := range duck.StructTypeChildCount(logical) {
			ok = addChild(&t, duck.StructTypeChildType(logical, i)) && ok
			parts = append(parts, sqltext.QuoteName(duck.StructTypeChildName(logical, i))+" "+t.Children[i].Name)
		}
		t.Name = "STRUCT(" + strings.Join(parts, ", ") + ")"
	}
	return t, ok
}

func addChild(t *protocol.Type, logical duck.LogicalType) bool {
	defer duck.DestroyLogicalType(&logical)
	child, ok := describeType(logical)
	t.Children = append(t.Children, child)
	return ok
}
