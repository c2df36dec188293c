//go:build linux && cgo

package eventstore

import (
	"fmt"
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
	for _, word := range words {
		// The column's value must differ from the value of a keyword such as true.
		rows, err := s.Query(t.Context(), fmt.Sprintf("SELECT %[1]s FROM (SELECT 'value' AS %[1]q) t WHERE %[1]s = 'value'", word))
		plain := err == nil && rows.Next() && rows.Row()[0] == "value"
		if err == nil {
			rows.Close()
		}
		if plain == sqltext.IsKeyword(word) {
			t.Errorf("a column %s needs quotes: %v, and IsKeyword says the opposite", word, !plain)
		}
	}
}
