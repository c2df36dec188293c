package sqltext

import (
	"regexp"
	"strings"
)

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// NameHint says which names IsPlainName takes.
const NameHint = "use up to 63 letters, digits and underscores, not a digit first"

// IsPlainName reports whether a name can be that of a table or a function.
func IsPlainName(name string) bool { return plainName.MatchString(name) }

// QuoteName makes an identifier of SQL of any name.
func QuoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Literal makes a string literal of SQL of any text.
func Literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }

// catalogPrefix begins the names of DuckDB's catalog. Statements such as SHOW TABLES read views
// of such names without their schema, and would read a table instead.
const catalogPrefix = "duckdb_"

// TableNameHint says what to do if no table can have a name. It is empty for a name that one can
// have.
func TableNameHint(name string) string {
	switch {
	case !IsPlainName(name):
		return NameHint
	case strings.HasPrefix(strings.ToLower(name), catalogPrefix):
		return "use a name that does not begin with " + catalogPrefix + ": SHOW TABLES reads the SQL catalog by such names"
	}
	return ""
}

// keywords are the words that SQL does not take for a column without quotes, as duckdb_keywords()
// has them in the categories reserved and type_function.
var keywords = func() map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(`all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast
		check collate collation column concurrently constraint create cross default deferrable desc describe distinct do else end except false fetch
		for foreign freeze from full glob group having ilike in initially inner intersect into is isnull join lambda lateral leading left like limit
		natural not notnull null offset on only or order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify references
		returning right select semi show similar some summarize symmetric table tablesample then to trailing true union unique unpack unpivot using
		variadic verbose when where window with`) {
		words[word] = true
	}
	return words
}()

// IsKeyword reports whether SQL takes a name for a keyword, so that a column of that name needs
// quotes.
func IsKeyword(name string) bool { return keywords[strings.ToLower(name)] }
