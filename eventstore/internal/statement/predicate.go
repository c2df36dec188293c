package statement

import (
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

// CheckPredicate returns an error unless the statement is SELECT 1 FROM table WHERE followed
// by one predicate that depends only on the row.
func (s *Statement) CheckPredicate(table string) error {
	node := Node(s.Tree).Child("node")
	// Some of these conditions imply others. Each is an independent safeguard against a
	// delete that does too much.
	if len(s.Tables) != 1 || node["type"] != "SELECT_NODE" || node["where_clause"] == nil || containsSubquery(node["where_clause"]) || !isBareWhere(node) {
		return &event.Fault{Message: "the predicate must be one expression over the columns of " + table, Hint: "for example: user = 7 AND event <> 'signup'"}
	}
	if name := volatileCall(node["where_clause"]); name != "" {
		return &event.Fault{Message: "the predicate calls " + name + ", whose result changes", Hint: "use constants: the predicate is applied now and later"}
	}
	return nil
}

// isBareWhere reports whether nothing follows the WHERE of a SELECT.
func isBareWhere(node Node) bool {
	groups, _ := node["group_expressions"].([]any)
	modifiers, _ := node["modifiers"].([]any)
	return len(groups) == 0 && len(modifiers) == 0 && node["having"] == nil && node["qualify"] == nil && node["sample"] == nil
}

func containsSubquery(node any) bool {
	found := false
	ForEachObject(node, func(n Node) {
		found = found || n["class"] == "SUBQUERY" || n["class"] == "WINDOW" || n["class"] == "PARAMETER"
	})
	return found
}

// volatileFunctions may return a different result on each call.
var volatileFunctions = SetOf([]catalog.FunctionGroup{{Names: strings.Fields(`now random uuid gen_random_uuid uuidv4 uuidv7 current_date current_time current_timestamp localtime localtimestamp current_localtime
	current_localtimestamp get_current_time get_current_timestamp today transaction_timestamp age`)}})

// volatileCall returns the name of a volatile function below node, or "".
func volatileCall(node any) (name string) {
	ForEachObject(node, func(n Node) {
		called := n.Text("function_name")
		if names, _ := n["column_names"].([]any); len(names) == 1 { // SQL can call it without parentheses
			called, _ = names[0].(string)
		}
		if called = strings.ToLower(called); volatileFunctions[called] {
			name = called
		}
	})
	return name
}

// ForEachObject calls each for every object of a syntax tree.
func ForEachObject(node any, each func(Node)) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			ForEachObject(child, each)
		}
	case map[string]any:
		each(node)
		for _, child := range node {
			ForEachObject(child, each)
		}
	}
}
