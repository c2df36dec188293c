package statement

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// DuckDB casts '2026-01-06T00:00:00+05:30' to TIMESTAMP as 00:00 and drops the offset. A
// comparison with a time column would thus be silently wrong by the offset, so it is
// rejected. An explicit cast in the statement is the user's choice.

// offsetText matches a time with an offset from UTC.
var offsetText = regexp.MustCompile(`^\s*(\d+-\d+-\d+[ T]+\d+:\d+[\d:.]*)\s*([+-])(\d{1,2}):?(\d{2})?(?::?(\d{2}))?\s*$`)

// utcOf converts a time with an offset to UTC. It returns "" for a text without an offset.
func utcOf(text string) string {
	parts := offsetText.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	offset, err := time.ParseDuration(fmt.Sprintf("%s%sh%sm%ss", parts[2], parts[3], "0"+parts[4], "0"+parts[5]))
	if err != nil || offset == 0 {
		return ""
	}
	for _, layout := range []string{"2006-1-2 15:4:5", "2006-1-2 15:4"} {
		if at, err := time.Parse(layout, strings.Join(strings.FieldsFunc(parts[1], func(c rune) bool { return c == 'T' || c == ' ' }), " ")); err == nil {
			return at.Add(-offset).Format("2006-01-02T15:04:05.999999999Z")
		}
	}
	return "2026-01-02T03:04:05Z" // an example
}

// keepsTime are the functions that return the type of an argument.
var keepsTime = SetOf([]catalog.FunctionGroup{{Names: strings.Fields(`min max any_value arbitrary first last first_value last_value nth_value lag lead mode median
	coalesce ifnull nullif least greatest date_trunc datetrunc time_bucket + - add subtract date_add date_sub latest earliest arg_max arg_min argmax argmin max_by min_by`)}})

// CheckOffsets returns an error if a comparison in the statement would drop the offset of a
// time.
func (s *Statement) CheckOffsets(tables []*manifest.Table, params []protocol.Param) (err error) {
	ForEachObject(s.Tree, func(n Node) {
		operands := operandsOf(n)
		for _, one := range operands {
			text, name := comparedText(one, params)
			utc := utcOf(text)
			if utc == "" || err != nil {
				continue
			}
			for _, other := range operands {
				if column := timeColumnOf(other, tables, event.Timestamp); column != "" {
					q := &event.Fault{
						Message: fmt.Sprintf("the comparison with column %s would drop the offset of %s", column, name),
						Hint:    fmt.Sprintf("write the time in UTC, '%s', or as TIMESTAMPTZ %s", utc, sqltext.Literal(text)),
					}
					q.Line, q.Column = s.place(one)
					err = q
				}
			}
		}
	})
	return err
}

// operandsOf returns the operands of a comparison.
func operandsOf(n Node) []Node {
	switch {
	case n["class"] == "COMPARISON":
		return []Node{n.Child("left"), n.Child("right")}
	case n["class"] == "BETWEEN":
		return []Node{n.Child("input"), n.Child("lower"), n.Child("upper")}
	case n["type"] == "COMPARE_IN", n["type"] == "COMPARE_NOT_IN":
		return n.List("children")
	}
	return nil
}

// comparedText returns the text of a constant or parameter, and a name for it in errors.
func comparedText(n Node, params []protocol.Param) (text, name string) {
	if n["class"] == "PARAMETER" {
		for i, p := range params {
			if p.Identifier(i) == n.Text("identifier") {
				text, _ = p.Value.(string)
				return text, "parameter " + n.Text("identifier")
			}
		}
	}
	text, _ = ConstantText(n)
	return text, sqltext.Literal(text)
}

// timeColumnOf returns the name of the TIMESTAMP column that a node refers to. It also
// returns a time column that a function converts to TIMESTAMP: DuckDB applies the offset for
// TIMESTAMP_NS, but most functions of that type do not return it.
func timeColumnOf(n Node, tables []*manifest.Table, kinds ...event.Type) string {
	switch {
	case n["class"] == "COLUMN_REF":
		names, _ := n["column_names"].([]any)
		name, _ := names[len(names)-1].(string)
		if isTime(name, tables, kinds) {
			return name
		}
	case keepsTime[strings.ToLower(n.Text("function_name"))], n["type"] == "OPERATOR_COALESCE":
		for _, child := range n.List("children") {
			if name := timeColumnOf(child, tables, event.Timestamp, event.TimestampNS); name != "" {
				return name
			}
		}
	}
	return ""
}

// isTime reports whether a column has one of the given types in every table that has it.
func isTime(name string, tables []*manifest.Table, kinds []event.Type) bool {
	found := false
	for _, t := range tables {
		i := slices.IndexFunc(t.Current().Columns, func(c manifest.Column) bool { return strings.EqualFold(c.Name, name) && c.Type != 0 })
		if i < 0 {
			continue
		}
		if !slices.Contains(kinds, t.Current().Columns[i].Type) {
			return false
		}
		found = true
	}
	return found
}

// place returns the position of a node in the SQL, or 0, 0 if DuckDB does not report it.
func (s *Statement) place(n Node) (line, column int) { return s.source.place(n) }

// A source is SQL text with a prefix that DuckDB does not parse.
type source struct {
	sql    string
	prefix int // bytes
}

func (s source) place(n Node) (line, column int) {
	at, ok := n["query_location"].(float64)
	if !ok || at > float64(len(s.sql)-s.prefix) {
		return 0, 0
	}
	before := s.sql[:s.prefix+int(at)]
	begin := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, len([]rune(before[begin:])) + 1
}
