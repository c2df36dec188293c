//go:build linux && cgo

package eventstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/sqltext"
)

// TestKeywords uses each word of DuckDB's grammar as a column name. The words that need
// quotes must be the ones that declarations warn about.
func TestKeywords(t *testing.T) {
	s := openStore(t, t.TempDir())
	words := strings.Split(ask(t, s, `SELECT keyword_name FROM duckdb_keywords()`), "\n")
	if len(words) < 400 {
		t.Fatalf("DuckDB has %d keywords", len(words))
	}
	// isPlain reports whether all of some words name a column without quotes. The column's value must
	// differ from the value of a keyword such as true.
	isPlain := func(words []string) bool {
		var each []string
		for _, word := range words {
			each = append(each, fmt.Sprintf("SELECT %[1]s FROM (SELECT 'value' AS %[1]q) t WHERE %[1]s = 'value'", word))
		}
		rows, err := s.Query(t.Context(), strings.Join(each, " UNION ALL "))
		if err != nil {
			return false
		}
		defer rows.Close()
		n := 0
		for rows.Next() && rows.Row()[0] == "value" {
			n++
		}
		return rows.Err() == nil && n == len(words)
	}
	var unquoted []string
	for _, word := range words {
		switch {
		case !sqltext.IsKeyword(word):
			unquoted = append(unquoted, word)
		case isPlain([]string{word}):
			t.Errorf("a column %s needs no quotes, and IsKeyword says that it does", word)
		}
	}
	for some := range slices.Chunk(unquoted, 40) { // a query of all would nest too deeply
		if isPlain(some) {
			continue
		}
		for _, word := range some {
			if !isPlain([]string{word}) {
				t.Errorf("a column %s needs quotes, and IsKeyword says that it does not", word)
			}
		}
	}
}
