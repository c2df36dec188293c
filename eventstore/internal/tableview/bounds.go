//go:build linux && cgo

package tableview

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
)

// bounds are the conditions of a statement on the rows of a table. They exclude frames and
// files before DuckDB reads them; DuckDB still applies the whole WHERE.
type bounds struct {
	min, max int64               // event time in microseconds, inclusive
	Equal    map[string][]string // texts that a column may equal, by lower-case column name
}

var unbounded = bounds{min: math.MinInt64, max: math.MaxInt64}

// timeSlack is added to a computed upper bound of the time, because the statement evaluates
// the bound again later.
const timeSlack = 10 * int64(time.Second/time.Microsecond)

// union returns bounds that include the rows of both.
func (b bounds) union(other bounds) bounds {
	u := bounds{min: min(b.min, other.min), max: max(b.max, other.max), Equal: map[string][]string{}}
	for name, texts := range b.Equal {
		if more, found := other.Equal[name]; found {
			u.Equal[name] = append(slices.Clone(texts), more...)
		}
	}
	return u
}

// A boundsFinder finds the bounds of one table in a statement.
type boundsFinder struct {
	conn   *duckdb.Conn
	table  *manifest.Table
	params map[string]protocol.Param // by identifier
	time   string                    // name of the time column; "" if it cannot be bounded
}

// FindBounds returns the bounds of the rows of a table that a statement needs.
func FindBounds(c *duckdb.Conn, s *statement.Statement, t *manifest.Table, params []protocol.Param) bounds {
	name := strings.ToLower(t.Name)
	references := 0
	for _, read := range s.Tables {
		if read == name {
			references++
		}
	}
	if references == 0 || s.HasCTE(name) {
		return unbounded
	}
	f := &boundsFinder{conn: c, table: t, params: map[string]protocol.Param{}}
	for i, p := range params {
		f.params[p.Identifier(i)] = p
	}
	if tablesql.TimeType(t) != 0 {
		f.time = t.Time
	}
	var found []bounds
	statement.ForEachObject(s.Tree, func(n statement.Node) {
		if n["type"] == "SELECT_NODE" {
			found = append(found, f.ofSelect(n)...)
		}
	})
	if len(found) != references {
		return unbounded
	}
	all := found[0]
	for _, one := range found[1:] {
		all = all.union(one)
	}
	return all
}

// ofSelect returns the bounds of each reference to the table in the FROM of a SELECT. In an
// inner, outer or cross join, rows that do not satisfy the WHERE can be excluded on either
// side, because a comparison with null is not true.
func (f *boundsFinder) ofSelect(n statement.Node) (found []bounds) {
	from := n.Child("from_table")
	references, whole := f.references(from)
	for _, alias := range references {
		b := bounds{min: math.MinInt64, max: math.MaxInt64, Equal: map[string][]string{}}
		if whole && n["sample"] == nil {
			f.narrow(&b, n.Child("where_clause"), alias, from["type"] == "BASE_TABLE")
		}
		found = append(found, b)
	}
	return found
}

// references returns the names that qualify columns of the table. whole is false if rows that
// the WHERE excludes may affect others.
func (f *boundsFinder) references(from statement.Node) (aliases []string, whole bool) {
	switch from["type"] {
	case "BASE_TABLE":
		renamed, _ := from["column_name_alias"].([]any)
		whole = from["sample"] == nil && from["at_clause"] == nil && len(renamed) == 0
		if !strings.EqualFold(from.Text("table_name"), f.table.Name) {
			return nil, whole
		}
		alias := from.Text("alias")
		if alias == "" {
			alias = f.table.Name
		}
		return []string{alias}, whole
	case "JOIN":
		left, wholeLeft := f.references(from.Child("left"))
		right, wholeRight := f.references(from.Child("right"))
		kind := from.Text("ref_type")
		return append(left, right...), wholeLeft && wholeRight && (kind == "REGULAR" || kind == "CROSS" || kind == "NATURAL")
	}
	return nil, true
}

// narrow applies a condition to bounds. bare reports that column names need no qualifier.
func (f *boundsFinder) narrow(b *bounds, condition statement.Node, alias string, bare bool) {
	column := func(n statement.Node) string { return f.column(n, alias, bare) }
	switch condition["class"] {
	case "CONJUNCTION":
		if condition["type"] == "CONJUNCTION_AND" {
			for _, child := range condition.List("children") {
				f.narrow(b, child, alias, bare)
			}
		}
	case "BETWEEN":
		if name := column(condition.Child("input")); condition["type"] == "COMPARE_BETWEEN" && f.isTime(name) {
			f.raiseMin(b, condition.Child("lower"))
			f.lowerMax(b, condition.Child("upper"))
		}
	case "OPERATOR":
		if children := condition.List("children"); condition["type"] == "COMPARE_IN" && len(children) > 1 {
			f.narrowEqual(b, column(children[0]), children[1:])
		}
	case "COMPARISON":
		left, right, operator := condition.Child("left"), condition.Child("right"), condition.Text("type")
		if column(left) == "" {
			left, right, operator = right, left, mirrored[operator]
		}
		f.compare(b, column(left), operator, right)
	}
}

// mirrored maps a comparison to the equivalent one with exchanged operands.
var mirrored = map[string]string{
	"COMPARE_EQUAL": "COMPARE_EQUAL", "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN", "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
	"COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO", "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}

func (f *boundsFinder) compare(b *bounds, name, operator string, value statement.Node) {
	switch {
	case operator == "COMPARE_EQUAL" && !f.isTime(name):
		f.narrowEqual(b, name, []statement.Node{value})
	case !f.isTime(name):
	case operator == "COMPARE_GREATERTHAN", operator == "COMPARE_GREATERTHANOREQUALTO":
		f.raiseMin(b, value)
	case operator == "COMPARE_LESSTHAN", operator == "COMPARE_LESSTHANOREQUALTO":
		f.lowerMax(b, value)
	case operator == "COMPARE_EQUAL":
		f.raiseMin(b, value)
		f.lowerMax(b, value)
	}
}

func (f *boundsFinder) isTime(name string) bool {
	return f.time != "" && strings.EqualFold(name, f.time)
}

// column returns the name of the table's column that a node refers to, or "".
func (f *boundsFinder) column(n statement.Node, alias string, bare bool) string {
	if n["class"] != "COLUMN_REF" {
		return ""
	}
	names, _ := n["column_names"].([]any)
	qualified := len(names) == 2 && strings.EqualFold(fmt.Sprint(names[0]), alias)
	if !qualified && !(bare && len(names) == 1) {
		return ""
	}
	name, _ := names[len(names)-1].(string)
	return name
}

// narrowEqual records that a text or integer column equals one of some values.
func (f *boundsFinder) narrowEqual(b *bounds, name string, values []statement.Node) {
	if !slices.ContainsFunc(f.table.Current().Columns, func(c manifest.Column) bool {
		return strings.EqualFold(c.Name, name) && c.Type == event.String
	}) && !f.isInteger(name) {
		return
	}
	var texts []string
	for _, value := range values {
		text, ok := f.text(value, f.isInteger(name))
		if !ok {
			return
		}
		texts = append(texts, text)
	}
	if _, known := b.Equal[strings.ToLower(name)]; !known {
		b.Equal[strings.ToLower(name)] = texts
	}
}

// isInteger reports whether a column is of an integer type.
func (f *boundsFinder) isInteger(name string) bool {
	return slices.ContainsFunc(f.table.Current().Columns, func(c manifest.Column) bool {
		return strings.EqualFold(c.Name, name) && (c.Type == event.Int64 || c.Type == event.Int32)
	})
}

// text returns the text of a constant that is compared with a column. An integer becomes its
// decimal text.
func (f *boundsFinder) text(value statement.Node, integer bool) (string, bool) {
	constant, ok := statement.Constant(value)
	if p, given := f.params[value.Text("identifier")]; value["class"] == "PARAMETER" && given {
		constant, ok = p.Value, true
	}
	switch constant := constant.(type) {
	case string:
		return constant, ok && !integer
	case int64:
		return strconv.FormatInt(constant, 10), ok && integer
	case float64: // from JSON
		kind := value.Child("value").Child("type")["id"]
		whole := kind == "INTEGER" || kind == "BIGINT" && math.Abs(constant) < 1<<53
		return strconv.FormatInt(int64(constant), 10), ok && integer && whole
	}
	return "", false
}

func (f *boundsFinder) raiseMin(b *bounds, value statement.Node) {
	if at, _, ok := f.micros(value); ok {
		if tablesql.TimeType(f.table) == event.TimestampNS { // it may have been rounded up
			at--
		}
		b.min = max(b.min, at)
	}
}

func (f *boundsFinder) lowerMax(b *bounds, value statement.Node) {
	if at, computed, ok := f.micros(value); ok {
		if at++; computed { // TIMESTAMP_NS was rounded
			at += timeSlack
		}
		b.max = min(b.max, at)
	}
}

// timeFormats are the formats of time constants that need no evaluation by DuckDB.
var timeFormats = []string{"2006-01-02 15:04:05", time.DateOnly, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z"}

// micros returns the value of a time expression without columns, in microseconds.
func (f *boundsFinder) micros(value statement.Node) (at int64, computed, ok bool) {
	inner := value
	if value["class"] == "CAST" && value.Child("cast_type")["id"] == "TIMESTAMP" {
		inner = value.Child("child")
	}
	if text, isText := statement.ConstantText(inner); isText {
		for _, format := range timeFormats {
			if t, err := time.Parse(format, text); err == nil {
				return t.UnixMicro(), false, true
			}
		}
	}
	expression, computed, ok := f.fold(value)
	if !ok {
		return 0, false, false
	}
	at, ok = evaluateTime(f.conn, expression, tablesql.TimeType(f.table))
	return at, computed, ok
}

// fold returns an expression with its parameters replaced by their values. ok is false if it
// has columns or is volatile.
func (f *boundsFinder) fold(value statement.Node) (folded map[string]any, computed, ok bool) {
	switch value["class"] {
	case "PARAMETER":
		p, given := f.params[value.Text("identifier")]
		if !given {
			return nil, false, false
		}
		folded, ok = constantNode(p.Value)
		return folded, false, ok
	case "CONSTANT":
		return withoutLocation(value), false, true
	case "CAST":
		child, computed, ok := f.fold(value.Child("child"))
		folded = withoutLocation(value)
		folded["child"] = child
		return folded, computed, ok
	case "FUNCTION":
		name := strings.ToLower(value.Text("function_name"))
		if !timeFunctions[name] {
			return nil, false, false
		}
		folded = withoutLocation(value)
		children := []any{}
		for _, child := range value.List("children") {
			one, _, ok := f.fold(child)
			if !ok {
				return nil, false, false
			}
			children = append(children, one)
		}
		folded["children"] = children
		return folded, true, true
	case "COLUMN_REF":
		names, _ := value["column_names"].([]any)
		name, _ := names[len(names)-1].(string)
		return withoutLocation(value), true, len(names) == 1 && strings.EqualFold(name, "current_timestamp") && !f.has(name)
	}
	return nil, false, false
}

// withoutLocation returns a copy of a node without its location in the SQL, which may be a
// number that Go's JSON decoding does not preserve.
func withoutLocation(n statement.Node) statement.Node {
	n = maps.Clone(n)
	delete(n, "query_location")
	return n
}

// has reports whether the table has a column.
func (f *boundsFinder) has(name string) bool {
	return slices.ContainsFunc(tablesql.Shown(f.table.Current()), func(c manifest.Column) bool { return strings.EqualFold(c.Name, name) })
}

// timeFunctions are the functions allowed in a time bound.
var timeFunctions = statement.SetOf([]catalog.FunctionGroup{{Names: strings.Fields(`now current_timestamp get_current_timestamp transaction_timestamp today current_date + - * / to_seconds to_minutes
	to_hours to_days to_weeks to_months to_years to_milliseconds to_microseconds to_timestamp make_timestamp make_timestamp_ms epoch_ms date_trunc datetrunc time_bucket
	date_add date_sub strptime trunc`)}})

// constantNode returns the syntax node of a parameter's value.
func constantNode(value any) (map[string]any, bool) {
	kind, text := "", ""
	switch value := value.(type) {
	case string:
		kind, text = "VARCHAR", value
	case int64:
		kind, text = "BIGINT", strconv.FormatInt(value, 10)
	case time.Time:
		kind, text = "TIMESTAMP", value.UTC().Format("2006-01-02 15:04:05.999999")
	case protocol.TimestampNS:
		kind, text = "TIMESTAMP", time.Unix(0, int64(value)).UTC().Format("2006-01-02 15:04:05.999999")
	default:
		return nil, false
	}
	constant := map[string]any{"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "value": map[string]any{
		"type": map[string]any{"id": "VARCHAR", "type_info": nil}, "is_null": false, "value": text,
	}}
	if kind == "VARCHAR" {
		return constant, true
	}
	return map[string]any{"class": "CAST", "type": "OPERATOR_CAST", "alias": "", "child": constant, "cast_type": map[string]any{"id": kind, "type_info": nil}, "try_cast": false}, true
}

// evaluateTime evaluates an expression without columns and casts it to the type of the time
// column, as DuckDB does in a comparison. The type matters: casting a text to TIMESTAMP drops
// its offset, casting to TIMESTAMP_NS applies it.
func evaluateTime(c *duckdb.Conn, expression map[string]any, kind event.Type) (micros int64, ok bool) {
	tree, err := json.Marshal(map[string]any{"error": false, "statements": []any{map[string]any{"node": map[string]any{
		"type": "SELECT_NODE", "modifiers": []any{}, "cte_map": map[string]any{"map": []any{}}, "select_list": []any{expression},
		"from_table": map[string]any{"type": "EMPTY", "alias": "", "sample": nil}, "where_clause": nil, "group_expressions": []any{}, "group_sets": []any{},
		"aggregate_handling": "STANDARD_HANDLING", "having": nil, "sample": nil, "qualify": nil,
	}, "named_param_map": []any{}}}})
	if err != nil {
		return 0, false
	}
	sql, err := c.Deparse(string(tree))
	if err != nil {
		return 0, false
	}
	column, perMicro := manifest.Column{Type: kind}, int64(1)
	epoch := "epoch_us"
	if kind == event.TimestampNS {
		epoch, perMicro = "epoch_ns", 1000
	}
	rows, err := c.Run("SELECT " + epoch + "(CAST(one AS " + column.SQLType() + ")) FROM (" + sql + ") AS x(one)")
	if err != nil || len(rows) != 1 {
		return 0, false
	}
	at, ok := rows[0][0].(int64) // not an infinity
	return tablesql.Micros(at, perMicro), ok
}
