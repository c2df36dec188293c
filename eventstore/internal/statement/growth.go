package statement

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A function with a result much larger than its arguments allocates memory that DuckDB does
// not account for, and cannot be interrupted. The arguments that determine the size must
// therefore be bounded constants. The growth factors of all calls that a value passes through
// are multiplied.

const (
	countMax     = 1000   // of an argument that sizes a result
	growthMax    = 50_000 // maximum product of the growth factors of a value
	separatorMax = 100    // bytes
	formatMax    = 200    // bytes of a format
	patternMax   = 1000   // bytes of a regular expression
	wildcardsMax = 4      // in a pattern that is matched by backtracking
)

// sizeArguments maps functions to the index of the argument that sizes the result.
var sizeArguments = map[string]int{
	"repeat": 1, "lpad": 1, "rpad": 1, "bar": 3, "to_base": 2,
	"approx_top_k": 1, "reservoir_quantile": 2, "min": 1, "max": 1,
	"arg_min": 2, "arg_max": 2, "argmin": 2, "argmax": 2, "min_by": 2, "max_by": 2,
	"arg_min_null": 2, "arg_max_null": 2, "arg_min_nulls_last": 2, "arg_max_nulls_last": 2,
}

// textArguments maps functions to a text argument, by index, that must be constant and at
// most bytesMax long, because the result repeats it.
var textArguments = map[string]struct{ argument, bytesMax int }{
	"array_to_string": {1, separatorMax}, "concat_ws": {0, separatorMax}, "string_agg": {1, separatorMax},
	"group_concat": {1, separatorMax}, "listagg": {1, separatorMax},
	"strftime": {1, formatMax}, "strptime": {1, formatMax}, "try_strptime": {1, formatMax},
	"format": {0, formatMax}, "printf": {0, formatMax},
	"replace": {2, separatorMax}, "regexp_replace": {2, separatorMax},
	"~~*": {1, formatMax}, "!~~*": {1, formatMax}, "~~~": {1, formatMax},
	"like_escape": {1, formatMax}, "not_like_escape": {1, formatMax}, "ilike_escape": {1, formatMax}, "not_ilike_escape": {1, formatMax},
}

// collectors gather the values of a group. As window functions, they would do so for every
// row.
var collectors = []string{
	"list", "array_agg", "string_agg", "group_concat", "listagg", "histogram", "json_group_array", "json_group_object",
	"approx_quantile", "approx_top_k", "reservoir_quantile",
}

// joiners return a result as large as all their arguments together.
var joiners = []string{
	"concat", "concat_ws", "list_value", "list_pack", "array_value", "struct_pack", "row", "map", "map_concat", "json_array", "json_object",
	"list_concat", "list_cat", "array_concat", "array_cat", "list_append", "array_append", "array_push_back", "list_prepend", "array_prepend",
	"array_push_front", "list_zip", "array_zip", "struct_concat", "struct_insert", "struct_update", "unpivot_list",
}

// pathFunctions take a path into a document as their second argument. A ** in the path
// returns nested parts once for each enclosing part.
var pathFunctions = []string{
	"->", "->>", "json_extract", "json_extract_path", "json_extract_string", "json_extract_path_text",
	"json_value", "json_exists", "json_keys", "json_type", "json_array_length",
}

// lambdaFunctions call a lambda for each element. Elsewhere, the syntax tree represents the
// JSON operator -> as a lambda.
var lambdaFunctions = []string{"list_transform", "list_apply", "array_transform", "array_apply", "apply", "list_filter", "array_filter", "filter"}

// checkArrows checks the paths of -> operators among nodes.
func checkArrows(nodes []Node) error {
	for _, node := range nodes {
		if isLambda(node) && !isPlainPath(node.Child("expr")) {
			return &event.Fault{Message: "->: the path must be constant, without **", Hint: "docs/reference/sql.md has the bounds of arguments"}
		}
	}
	return nil
}

// isPlainPath reports whether an argument is a constant path without **, or a list of such
// paths.
func isPlainPath(arg Node) bool {
	if arg["class"] == "FUNCTION" && arg["function_name"] == "list_value" {
		return !slices.ContainsFunc(arg.List("children"), func(child Node) bool { return !isPlainPath(child) })
	}
	value, ok := Constant(arg)
	return ok && !strings.Contains(fmt.Sprint(value), "**")
}

// badFormat matches a format that makes a result much wider than its arguments: a width or
// precision of four digits, or one taken from an argument.
var badFormat = regexp.MustCompile(`[0-9]{4}|\*|\{[^}]*\{`)

// Constant returns the value of a constant node.
func Constant(node Node) (value any, ok bool) {
	if node["class"] != "CONSTANT" {
		return nil, false
	}
	value, ok = node.Child("value")["value"]
	return value, ok
}

// ConstantCount returns the value of a whole number constant.
func ConstantCount(node Node) (int, bool) {
	value, _ := Constant(node)
	n, ok := value.(float64)
	return int(min(max(n, -1<<53), 1<<53)), ok
}

// ConstantText returns the value of a text constant.
func ConstantText(node Node) (string, bool) {
	value, _ := Constant(node)
	text, ok := value.(string)
	return text, ok
}

func callError(call Node, format string, args ...any) error {
	return &event.Fault{Message: fmt.Sprintf("%s: %s", call.Text("function_name"), fmt.Sprintf(format, args...)),
		Hint: "docs/reference/sql.md has the bounds of arguments"}
}

// checkCall checks the arguments of a call that determine the size of its result.
func checkCall(call Node) error {
	name, args := strings.ToLower(call.Text("function_name")), call.List("children")
	if i, sized := sizeArguments[name]; sized && i < len(args) {
		if n, ok := ConstantCount(args[i]); !ok || n > countMax {
			return callError(call, "argument %d must be a constant of at most %d", i+1, countMax)
		}
	}
	if bound, found := textArguments[name]; found && bound.argument < len(args) {
		text, ok := ConstantText(args[bound.argument])
		if !ok || len(text) > bound.bytesMax {
			return callError(call, "argument %d must be a constant of at most %d bytes", bound.argument+1, bound.bytesMax)
		}
		if err := checkPattern(call, name, text); err != nil {
			return err
		}
	}
	switch {
	case slices.Contains(pathFunctions, name) && len(args) > 1:
		if !isPlainPath(args[1]) {
			return callError(call, "the path must be constant, without **")
		}
	case strings.HasPrefix(name, "regexp_") && len(args) > 1:
		if text, ok := ConstantText(args[1]); ok && len(text) > patternMax {
			return callError(call, "the pattern has %d bytes; the limit is %d", len(text), patternMax)
		}
	case name == "range" || name == "generate_series":
		if _, ok := seriesLength(args); !ok {
			return callError(call, "a list needs constant whole numbers for arguments and may have %d elements; rows have no bound: FROM %s(…)", countMax, name)
		}
	case call["class"] == "WINDOW" && slices.Contains(collectors, name):
		return callError(call, "collects values, which a window would repeat in every row")
	case call["class"] == "WINDOW" && call["distinct"] == true:
		return callError(call, "DISTINCT collects values, which a window would repeat in every row")
	}
	for _, arg := range args {
		if isLambda(arg) && !strings.HasSuffix(name, "filter") && capturesColumns(arg) {
			return callError(call, "the lambda may use only its own parameters")
		}
	}
	return nil
}

func checkPattern(call Node, name, text string) error {
	switch name {
	case "format", "printf":
		if badFormat.MatchString(text) {
			return callError(call, "widths and precisions must be constants below 1000")
		}
	case "~~*", "!~~*", "ilike_escape", "not_ilike_escape", "like_escape", "not_like_escape":
		if strings.Count(text, "%") > wildcardsMax {
			return callError(call, "the pattern has more than %d wildcards: use regexp_matches", wildcardsMax)
		}
	case "~~~":
		if strings.Count(text, "*") > wildcardsMax {
			return callError(call, "the pattern has more than %d wildcards: use regexp_matches", wildcardsMax)
		}
	}
	return nil
}

// seriesLength returns the number of elements in a series of whole numbers.
func seriesLength(args []Node) (n int, ok bool) {
	start, step := 0, 1
	var numbers []int
	for _, arg := range args {
		n, ok := ConstantCount(arg)
		if !ok {
			return 0, false
		}
		numbers = append(numbers, n)
	}
	switch len(numbers) {
	case 1:
		n = numbers[0]
	case 2:
		start, n = numbers[0], numbers[1]
	case 3:
		start, n, step = numbers[0], numbers[1], numbers[2]
	}
	if step == 0 {
		return 0, false
	}
	n = max((n-start)/step+1, 0)
	return n, n <= countMax+1
}

// capturesColumns reports whether a lambda uses a name that is not a parameter of it or of a
// nested lambda.
func capturesColumns(lambda Node) bool {
	parameters := map[string]bool{}
	captured := false
	var look func(any)
	look = func(node any) {
		switch node := node.(type) {
		case []any:
			for _, child := range node {
				look(child)
			}
		case map[string]any:
			if node["class"] == "LAMBDA" {
				forEachColumn(node["lhs"], func(name string) { parameters[name] = true })
				look(node["expr"])
				return
			}
			if names, ok := node["column_names"].([]any); ok && len(names) > 0 {
				first, _ := names[0].(string)
				captured = captured || !parameters[first]
			}
			for _, child := range node {
				look(child)
			}
		}
	}
	look(map[string]any(lambda))
	return captured
}

// forEachColumn calls each with the first part of every column name below node.
func forEachColumn(node any, each func(string)) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			forEachColumn(child, each)
		}
	case map[string]any:
		if names, ok := node["column_names"].([]any); ok && len(names) > 0 {
			first, _ := names[0].(string)
			each(first)
		}
		for _, child := range node {
			forEachColumn(child, each)
		}
	}
}

// growthOf returns the factor by which the calls below node may multiply the size of a value,
// capped slightly above growthMax. Sibling values do not multiply each other's growth, except
// through WITH, FROM and the aliases of a SELECT.
func growthOf(node any) float64 {
	growth := 1.0
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			growth = max(growth, growthOf(child))
		}
	case map[string]any:
		growth = objectGrowth(node)
	}
	return min(growth, 2*growthMax)
}

func objectGrowth(node Node) float64 {
	switch {
	case node["type"] == "SELECT_NODE":
		return selectGrowth(node)
	case node["type"] == "TABLE_FUNCTION":
		return maxGrowth(node.Child("function"))
	case node["cte_map"] != nil:
		return withGrowth(node) * maxGrowth(node, "cte_map")
	case node["function_name"] == "||":
		leaves := concatenated(node)
		growth := 1.0
		for _, leaf := range leaves {
			growth = max(growth, growthOf(map[string]any(leaf)))
		}
		return growth * float64(max(countVariables(leaves), 1))
	}
	if args := node.List("children"); slices.ContainsFunc(args, isLambda) {
		growth := 1.0
		for _, arg := range args {
			growth *= growthOf(map[string]any(arg))
		}
		return growth
	}
	return callFactor(node) * maxGrowth(node)
}

func isLambda(node Node) bool { return node["class"] == "LAMBDA" }

// concatenated returns the operands of a chain of ||.
func concatenated(node Node) (leaves []Node) {
	for _, operand := range node.List("children") {
		if operand["function_name"] == "||" {
			leaves = append(leaves, concatenated(operand)...)
		} else {
			leaves = append(leaves, operand)
		}
	}
	return leaves
}

// maxGrowth returns the largest growth among the members of node that are not in except.
func maxGrowth(node Node, except ...string) float64 {
	growth := 1.0
	for key, child := range node {
		if !slices.Contains(except, key) {
			growth = max(growth, growthOf(child))
		}
	}
	return growth
}

// withGrowth returns the growth of a chain through all parts of a WITH.
func withGrowth(node Node) float64 {
	growth := 1.0
	for _, part := range node.Child("cte_map").List("map") {
		growth = min(growth*growthOf(part["value"]), 2*growthMax)
	}
	return growth
}

// selectGrowth returns the growth of a SELECT. An expression may use the alias of another
// expression of the same SELECT.
func selectGrowth(node Node) float64 {
	items := node.List("select_list")
	aliases := map[string]bool{}
	for _, item := range items {
		if alias := item.Text("alias"); alias != "" {
			aliases[strings.ToLower(alias)] = true
		}
	}
	chained, listed, product := false, 1.0, 1.0
	for _, item := range items {
		growth := growthOf(map[string]any(item))
		listed, product = max(listed, growth), min(product*growth, 2*growthMax)
		forEachColumn(map[string]any(item), func(name string) { chained = chained || aliases[strings.ToLower(name)] })
	}
	if chained {
		listed = product
	}
	return listed * withGrowth(node) * growthOf(node["from_table"]) * maxGrowth(node, "select_list", "cte_map", "from_table")
}

// callFactor returns the factor by which the call itself may multiply the size of its
// arguments.
func callFactor(node Node) float64 {
	name, args := strings.ToLower(node.Text("function_name")), node.List("children")
	switch {
	case slices.Contains(joiners, name):
		return float64(max(countVariables(args), 1))
	case name == "repeat" && len(args) == 2:
		n, _ := ConstantCount(args[1])
		return float64(max(n, 1))
	case name == "range" || name == "generate_series":
		n, _ := seriesLength(args)
		return float64(max(n, 1))
	case (name == "replace" || name == "regexp_replace") && len(args) >= 3:
		with, _ := ConstantText(args[2])
		replaced := 1
		if text, ok := ConstantText(args[1]); ok && name == "replace" {
			replaced = max(len(text), 1)
		}
		return float64(max((len(with)+replaced-1)/replaced, 1))
	}
	return 1
}

// countVariables returns the number of nodes that are not constants.
func countVariables(nodes []Node) (n int) {
	for _, node := range nodes {
		if _, ok := Constant(node); !ok {
			n++
		}
	}
	return n
}
